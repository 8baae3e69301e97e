// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// shared is a request of a fresh owner, with a limit unless it is 0.
func shared(key string, limit int) contend.Owner {
	r := request(key)
	r.Mode, r.Limit = driver.Shared, limit
	return r
}

func converting(r contend.Owner, limit int) contend.Owner {
	r.Mode, r.Limit, r.Convert = driver.Shared, limit, true
	return r
}

func ended(r contend.Owner, end driver.End) contend.Owner {
	r.End = end
	return r
}

func renewal(t testing.TB, d driver.Driver, r contend.Owner) (a driver.Renewal) {
	contend.Renew(t.Context(), d, []contend.Owner{r}, func(_ int, got driver.Renewal) { a = got })
	return a
}

func renewed(t testing.TB, d driver.Driver, r contend.Owner) (a driver.Renewal) {
	t.Helper()
	a = renewal(t, d, r)
	must(t, a.Err)
	return a
}

func inspect(t testing.TB, d driver.Driver, key string) driver.Info {
	t.Helper()
	info, err := d.Inspect(t.Context(), key)
	must(t, err)
	return info
}

// tooLate fails unless an error says that the owner had nothing.
func tooLate(t testing.TB, err error) {
	t.Helper()
	failIf(t, !errors.Is(err, driver.ErrNotHeld), "it was too late: %v", err)
}

// tells is granted the key, and must learn whether it was abandoned.
func tells(t testing.TB, d *Driver, r contend.Owner, abandoned bool) driver.Result {
	t.Helper()
	res := granted(t, d, r)
	failIf(t, res.Abandoned != abandoned, "Abandoned is %v, want %v: %+v", res.Abandoned, abandoned, res)
	return res
}

// Rule: after a reboot a shared key is free at once.
func TestRebootFreesSharedKeys(t *testing.T) {
	path := newFile(t)
	m := newMachine("one")
	d := m.open(t, path)
	a, b, w := shared("k", 0), shared("k", 3), queued(request("k"))
	first := granted(t, d, a)
	granted(t, d, b)
	refused(t, d, w)
	m.set(func(m *machine) { m.boot, m.up, m.now = "two", time.Second, m.now.Add(time.Minute) })
	d = m.open(t, path)
	if info := inspect(t, d, "k"); info.Held || info.Leases != 0 || info.Waiters != 0 {
		t.Errorf("%+v", info)
	}
	for info, err := range d.List(t.Context(), "") {
		t.Errorf("List: %+v, %v", info, err)
	}
	if res := granted(t, d, request("k")); res.Fence <= first.Fence {
		t.Errorf("the fence is %d after %d", res.Fence, first.Fence)
	}
	contend.Renew(t.Context(), d, []contend.Owner{a, b}, func(i int, r driver.Renewal) {
		failIf(t, !errors.Is(r.Err, driver.ErrNotHeld), "what was held before the boot was renewed: %d, %+v", i, r)
	})
}

// Rule: a writer is granted a shared key when the last lease ends, not
// before: whichever of them was prolonged, released or let go.
func TestLastOfThoseWhoShare(t *testing.T) {
	for name, c := range map[string]struct {
		change func(d *Driver, a, b contend.Owner) // a came first, and has more left
		left   time.Duration
	}{
		"nothing":            {func(*Driver, contend.Owner, contend.Owner) {}, 20 * time.Second},
		"the last released":  {func(d *Driver, a, _ contend.Owner) { must(t, contend.Release(t.Context(), d, a)) }, 10 * time.Second},
		"another released":   {func(d *Driver, _, b contend.Owner) { must(t, contend.Release(t.Context(), d, b)) }, 20 * time.Second},
		"another was raised": {func(d *Driver, _, b contend.Owner) { b.TTL = time.Minute; granted(t, d, b) }, time.Minute},
		"another was renewed": {func(d *Driver, _, b contend.Owner) {
			b.TTL = time.Minute
			renewed(t, d, b)
		}, time.Minute},
		"both released": {func(d *Driver, a, b contend.Owner) {
			b.Settled = true
			must(t, errors.Join(contend.Release(t.Context(), d, a), contend.Release(t.Context(), d, b)))
		}, 0},
	} {
		m := newMachine("one")
		d := m.open(t, newFile(t))
		a, b := shared("k", 0), shared("k", 0)
		a.TTL, b.TTL = 20*time.Second, 10*time.Second
		granted(t, d, a)
		granted(t, d, b)
		c.change(d, a, b)
		t.Log(name)
		if c.left > 0 {
			if res := refused(t, d, request("k")); res.Left != c.left || res.Holder.Mode != driver.Shared {
				t.Errorf("want %v left: %+v", c.left, res)
			}
			m.pass(c.left - 1)
			refused(t, d, request("k"))
			m.pass(1)
		}
		granted(t, d, request("k"))
	}
}

// Rule: the mark of an abandoned key outlives everything that becomes of the row
// of the lease that left it: its owner joins the queue again, others share the
// key meanwhile or end, somebody is granted and puts it back.
func TestMarkStays(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, m *machine, d *Driver){
		"a writer joins again": func(t *testing.T, m *machine, d *Driver) {
			gone, first := request("k"), request("k")
			granted(t, d, gone)
			refused(t, d, queued(first))
			m.pass(gone.TTL - time.Second)
			refused(t, d, queued(first))
			m.pass(time.Second)
			refused(t, d, queued(gone))
			tells(t, d, first, true)
			must(t, contend.Release(t.Context(), d, first))
			tells(t, d, gone, false)
		},
		"one of several joins again": func(t *testing.T, m *machine, d *Driver) {
			gone, reader, w := shared("k", 3), shared("k", 0), request("k")
			granted(t, d, reader)
			granted(t, d, gone)
			m.pass(gone.TTL - time.Second)
			renewed(t, d, reader)
			refused(t, d, queued(w))
			m.pass(time.Second)
			refused(t, d, queued(gone))
			must(t, contend.Release(t.Context(), d, reader))
			tells(t, d, w, true)
		},
		"readers beside it join again": func(t *testing.T, m *machine, d *Driver) {
			gone, stays, w := shared("k", 9), shared("k", 0), queued(request("k"))
			stays.TTL, w.Patience = time.Hour, time.Hour
			readers := []contend.Owner{shared("k", 0), shared("k", 0)}
			for _, r := range append(readers, gone, stays) {
				granted(t, d, r)
			}
			refused(t, d, w)
			m.pass(gone.TTL)
			readers[1].Mode = driver.Exclusive
			for _, r := range readers {
				refused(t, d, queued(r))
			}
			m.pass(rules.KeepFence - 1)
			_ = contend.Release(t.Context(), d, request("sweeps")) // of an owner that has nothing
			must(t, contend.Release(t.Context(), d, stays))
			tells(t, d, w, true)
		},
		"the last of several joins again": func(t *testing.T, m *machine, d *Driver) {
			gone, w := shared("k", 3), request("k")
			granted(t, d, gone)
			m.pass(gone.TTL - time.Second)
			refused(t, d, queued(w))
			m.pass(time.Second)
			refused(t, d, queued(gone))
			tells(t, d, w, true)
		},
		"others of it end": func(t *testing.T, m *machine, d *Driver) {
			gone, a, b := shared("k", 3), shared("k", 3), shared("k", 0)
			granted(t, d, gone)
			m.pass(gone.TTL - 1)
			granted(t, d, a)
			granted(t, d, b)
			m.pass(1)
			must(t, errors.Join(contend.Release(t.Context(), d, a), contend.Release(t.Context(), d, b)))
			tells(t, d, shared("k", 0), true)
			tells(t, d, shared("k", 9), true)
			tells(t, d, shared("k", 9), false)
			tells(t, d, shared("k", 0), false)
		},
		"it is put back": func(t *testing.T, m *machine, d *Driver) {
			granted(t, d, request("k"))
			m.pass(time.Hour)
			for _, settled := range []bool{false, true} {
				granted(t, d, request("k"))
				m.pass(30 * time.Second)
				for _, r := range []contend.Owner{request("k"), shared("k", 1), shared("k", 0), request("k")} {
					r.Settled = settled
					tells(t, d, r, true)
					tells(t, d, r, true)
					must(t, contend.Release(t.Context(), d, ended(r, driver.EndUnused)))
				}
			}
			r := request("k")
			tells(t, d, r, true)
			must(t, contend.Release(t.Context(), d, r))
			tells(t, d, request("k"), false)
		},
		"it is put back beside others": func(t *testing.T, m *machine, d *Driver) {
			granted(t, d, request("k"))
			m.pass(30 * time.Second)
			a := shared("k", 3)
			tells(t, d, a, true)
			tells(t, d, shared("k", 3), false)
			must(t, contend.Release(t.Context(), d, ended(a, driver.EndUnused)))
			tells(t, d, shared("k", 0), true)
			tells(t, d, shared("k", 4), true)
		},
		"its owner released too late": func(t *testing.T, m *machine, d *Driver) {
			for _, end := range []driver.End{driver.EndFinished, driver.EndUnfinished} {
				for _, r := range []contend.Owner{request("k"), shared("k", 2)} {
					granted(t, d, r)
					m.pass(r.TTL)
					tooLate(t, contend.Release(t.Context(), d, ended(r, end)))
					next := request("k")
					tells(t, d, next, end == driver.EndUnfinished)
					must(t, contend.Release(t.Context(), d, next))
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine("one")
			run(t, m, m.open(t, newFile(t)))
		})
	}
}

// Rule: a converted lease is one of several, whatever the rows that were beside
// it: a key that remembers a fence, tombstones, a queue.
func TestConvertBesideOtherRows(t *testing.T) {
	m := newMachine("one")
	d := m.open(t, newFile(t))
	settled, unsettled := proposal("k", 0), request("k")
	for _, r := range []contend.Owner{settled, unsettled} {
		granted(t, d, r)
		must(t, contend.Release(t.Context(), d, r))
	}
	a, b, w := request("k"), queued(shared("k", 2)), queued(request("k"))
	fence := granted(t, d, a).Fence
	refused(t, d, b)
	refused(t, d, w)
	for range 2 {
		if res := granted(t, d, converting(a, 2)); res.Fence != fence || res.Slot != 0 {
			t.Errorf("%+v, want the fence %d", res, fence)
		}
	}
	if res := granted(t, d, b); res.Slot != 1 || res.Fence <= fence {
		t.Errorf("%+v", res)
	}
	if a := renewed(t, d, a); !a.Wanted {
		t.Errorf("%+v", a)
	}
	refused(t, d, unsettled)
	must(t, contend.Release(t.Context(), d, b))
	must(t, contend.Release(t.Context(), d, a))
	refused(t, d, converting(a, 0))
	must(t, contend.Release(t.Context(), d, w))
	refusedFence(t, d, proposal("k", fence), fence)
}

// Rule: a reader's fence is remembered as long as a writer's, for writers; that of
// a writer for readers, too, also when readers had the key since.
func TestFencesOfThoseWhoShare(t *testing.T) {
	m := newMachine("one")
	d := m.open(t, newFile(t))
	gone := request("gone")
	late := restored(proposal("gone", granted(t, d, gone).Fence-1))
	late.Mode = driver.Shared
	m.pass(gone.TTL)
	refusedFence(t, d, late, late.Fence+1)
	wrote := m.fence() + 1000
	read := wrote + 1000
	grantAndRelease(t, d, proposal("k", wrote))
	readers := []contend.Owner{proposal("k", read), proposal("k", wrote+1), proposal("k", read)}
	for i := range readers {
		readers[i].Mode = driver.Shared
		granted(t, d, readers[i])
	}
	readers[1].Settled, readers[2].Settled = false, false
	for _, r := range readers {
		must(t, contend.Release(t.Context(), d, r))
	}
	refused(t, d, readers[1])
	refused(t, d, readers[2])
	m.pass(rules.KeepFence - 1)
	_ = contend.Release(t.Context(), d, request("sweeps")) // of an owner that has nothing
	w, r := restored(proposal("k", read-1)), restored(proposal("k", wrote-1))
	r.Mode = driver.Shared
	refusedFence(t, d, w, read)
	refusedFence(t, d, r, wrote)
	r.Fence = wrote
	grantAndRelease(t, d, r)
	w.Fence = read
	grantAndRelease(t, d, w)
	m.pass(rules.KeepFence)
	_ = contend.Release(t.Context(), d, request("sweeps"))
	for _, r := range []contend.Owner{w, r} {
		r.Restore = false
		refusedFence(t, d, r, read)
	}
}

// Rule: nothing is left of a shared key after its last lease.
func TestSweepOfThoseWhoShared(t *testing.T) {
	m := newMachine("one")
	d := m.open(t, newFile(t))
	for i := range 20 {
		key := fmt.Sprint(i)
		for _, r := range []contend.Owner{shared(key, 0), shared(key, 3), shared(key, 3), queued(request(key)), queued(shared(key, 0))} {
			r.TTL = time.Duration(i+1) * time.Second
			try(t, d, r)
			if i%2 == 0 && r.Limit > 0 {
				r.Settled = i%4 == 0
				must(t, contend.Release(t.Context(), d, ended(r, driver.End(i/2%3))))
			}
		}
	}
	m.pass(time.Hour)
	for range 40 {
		r := shared("k", 0)
		r.Settled = true
		granted(t, d, r)
		must(t, contend.Release(t.Context(), d, r))
	}
	var rows int
	must(t, d.db.QueryRow("SELECT count(*) FROM hasp_lease").Scan(&rows))
	if rows != 1 { // what the key remembers
		t.Errorf("%d rows are left", rows)
	}
}

// Rule: a place whose owner died does not hold up those behind it who could
// share the key with it; one who wants it alone does, until its patience is over.
func TestDeadPlaces(t *testing.T) {
	m := newMachine("one")
	d := m.open(t, newFile(t))
	w, dead, a, b := request("k"), queued(shared("k", 0)), queued(shared("k", 2)), queued(shared("k", 0))
	granted(t, d, w)
	for i, r := range []contend.Owner{dead, a, b} {
		if res := refused(t, d, r); res.Ahead != i {
			t.Errorf("Ahead is %d, want %d", res.Ahead, i)
		}
	}
	must(t, contend.Release(t.Context(), d, w))
	refused(t, d, b) // the two before it would fill the place
	if res := granted(t, d, a); res.Slot != 0 {
		t.Errorf("%+v", res)
	}
	refused(t, d, b)
	m.pass(dead.Patience)
	granted(t, d, b)
	must(t, contend.Release(t.Context(), d, a))
	alone, late := queued(request("k")), queued(shared("k", 0))
	refused(t, d, alone)
	refused(t, d, late)
	m.pass(alone.Patience)
	granted(t, d, queued(shared("k", 0)))
}
