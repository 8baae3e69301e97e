// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// machine is a fake clock.
type machine struct {
	mu   sync.Mutex
	boot string
	up   time.Duration
	now  time.Time // the wall clock
}

func newMachine(boot string) *machine {
	return &machine{boot: boot, up: time.Hour, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
}

func (m *machine) read() (reading, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return reading{boot: m.boot, Now: rules.Now{At: m.up}}, nil
}

func (m *machine) wall() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// set changes the clock between two calls of the driver.
func (m *machine) set(f func(m *machine)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

func (m *machine) open(t testing.TB, path string) *Driver {
	t.Helper()
	d := newDriver(openDSN(t, patientDSN(path)), m.read, m.wall)
	d.fileWait = time.Minute
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

// Rule: a step of the wall clock, in whichever direction, neither ends a lease
// nor prolongs one, and fences rise.
func TestWallClockSteps(t *testing.T) {
	m := newMachine("one")
	d := m.open(t, newFile(t))
	var last uint64
	for _, step := range []time.Duration{0, 240 * time.Hour, -2400 * time.Hour, time.Millisecond} {
		m.set(func(m *machine) { m.now = m.now.Add(step) })
		a, b := request("k"), request("k")
		res := granted(t, d, a)
		failIf(t, res.Fence <= last, "after a step of %v the fence is %d after %d", step, res.Fence, last)
		last = res.Fence
		m.set(func(m *machine) { m.now = m.now.Add(step); m.up += a.TTL - 1 })
		refused(t, d, b)
		if info, err := d.Inspect(t.Context(), "k"); err != nil || info.Left != 1 {
			t.Errorf("after a step of %v: %v left, %v", step, info.Left, err)
		}
		m.set(func(m *machine) { m.up++ })
		res = granted(t, d, b)
		failIf(t, !res.Abandoned || res.Fence <= last, "after a step of %v: %+v", step, res)
		last = res.Fence
		must(t, contend.Release(t.Context(), d, b))
	}
}

// Rule: after a reboot every key is free at once, without waiting; fences
// rise although the clock that ends leases began anew. What may be no reboot
// leaves each lease the time that it had left.
func TestReboot(t *testing.T) {
	const off, day = time.Minute, 24 * time.Hour
	for _, c := range []struct {
		name       string
		from, to   string
		up         time.Duration // when the machine is used again
		later      time.Duration // the same by the wall clock
		freedLater time.Duration
	}{
		{"boots have names", "one", "two", time.Second, off + time.Second, 0},
		{"boots have names, and the wall clock went back", "one", "two", time.Second, -time.Minute, 30 * time.Second},
		{"boots have names, and this one is older already", "one", "two", 100 * time.Hour, off + 100*time.Hour, 30 * time.Second},
		{"boots have no names", "", "", time.Second, off + time.Second, 0},
		{"boots have no names, and the wall clock went back", "", "", time.Second, -day, 30 * time.Second},
		{"boots have no names, and this one is older already", "", "", time.Hour + time.Second, off + time.Hour, 29 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := newFile(t)
			m := newMachine(c.from)
			d := m.open(t, path)
			a, waiter := request("k"), queued(request("k"))
			first := granted(t, d, a)
			refused(t, d, waiter)
			m.set(func(m *machine) { m.boot, m.up, m.now = c.to, c.up, m.now.Add(c.later) })
			d = m.open(t, path)
			if c.freedLater > 0 {
				if info, err := d.Inspect(t.Context(), "k"); err != nil || !info.Held || info.Left != c.freedLater {
					t.Errorf("Inspect: held %v, %v left, %v", info.Held, info.Left, err)
				}
				refused(t, d, request("k"))
				m.set(func(m *machine) { m.up += c.freedLater - 1 })
				refused(t, d, request("k"))
				m.set(func(m *machine) { m.up++ })
			}
			if info, err := d.Inspect(t.Context(), "k"); err != nil || info.Held || info.Waiters != 0 {
				t.Errorf("Inspect: %+v, %v", info, err)
			}
			for info, err := range d.List(t.Context(), "") {
				t.Errorf("List: %+v, %v", info, err)
			}
			next := request("k")
			if res := granted(t, d, next); res.Fence <= first.Fence {
				t.Errorf("the fence is %d after %d", res.Fence, first.Fence)
			}
			contend.Renew(t.Context(), d, []contend.Owner{a, waiter}, func(i int, r driver.Renewal) {
				failIf(t, r.Err == nil, "what was held before the boot was renewed: %d, %+v", i, r)
			})
			refused(t, d, request("k"))
		})
	}
}

// Rule: the time of a transaction is from after its wait for the file, so that
// what others wrote meanwhile is never taken for something of the future: it
// would look like a clock that went back.
func TestTimeIsTakenInTheTransaction(t *testing.T) {
	path := newFile(t)
	m := newMachine("")
	d := m.open(t, path)
	granted(t, d, request("held"))
	unlock := lockFile(t, path)
	done := make(chan error)
	go func() { done <- contend.Release(t.Context(), d, request("nobody's")) }()
	waitFor(t, "the Release waits for the file", d.writes.waits)
	m.set(func(m *machine) { m.up += time.Second })
	unlock(fmt.Sprintf("UPDATE hasp_meta SET clock = %d", int64(m.up)))
	tooLate(t, <-done)
	refused(t, d, request("held"))
}

// Rule: a container whose boot id is its own has the machine's clock: what is held
// stays held, by whomever and in whatever order they come, also over a step of the
// wall clock, and ends when its TTL is over.
func TestOwnBootID(t *testing.T) {
	path := newFile(t)
	host, container := newMachine("host"), newMachine("container")
	both := func(f func(m *machine)) { host.set(f); container.set(f) }
	one, two := host.open(t, path), container.open(t, path)
	for _, step := range []time.Duration{0, time.Second, time.Hour, -100 * time.Hour} {
		a, b := request("k"), request("k")
		granted(t, one, a)
		both(func(m *machine) { m.now = m.now.Add(step); m.up += time.Second; m.now = m.now.Add(time.Second) })
		refused(t, two, b)
		granted(t, two, request(fmt.Sprint("other ", step)))
		renewed(t, one, a)
		refused(t, two, b)
		both(func(m *machine) { m.up += a.TTL - 1; m.now = m.now.Add(a.TTL - 1) })
		refused(t, two, b)
		both(func(m *machine) { m.up++ })
		granted(t, two, b)
		refused(t, one, a)
		must(t, contend.Release(t.Context(), two, b))
	}
}

// Rule: if clocks are unrelated nobody's lease ends early:
// it has what was left of it at the last write. Two machines that share a file are
// found out as soon as the one that is behind comes back, and every call says so.
func TestTwoMachines(t *testing.T) {
	path := newFile(t)
	ahead, behind := newMachine("ahead"), newMachine("behind")
	behind.up = time.Minute
	one, two := ahead.open(t, path), behind.open(t, path)
	a := request("k")
	granted(t, one, a)
	refused(t, two, request("k"))
	behind.set(func(m *machine) { m.up += a.TTL - 1 })
	refused(t, two, request("k"))
	b := request("other")
	granted(t, two, b)
	renewed(t, one, a)
	refused(t, one, request("other"))
	ahead.set(func(m *machine) { m.up += b.TTL - 1 })
	refused(t, one, request("other"))
	check := func(what string, err error) {
		t.Helper()
		if err == nil || two.Classify(err) != driver.ClassMisconfigured || !strings.Contains(err.Error(), "two machines") || !strings.Contains(err.Error(), "delete it") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := contend.Try(t.Context(), two, request("k"))
	check("Try", err)
	check("Release", contend.Release(t.Context(), two, request("k")))
	check("Renew", renewal(t, two, b).Err)
	_, err = two.Inspect(t.Context(), "k")
	check("Inspect", err)
	ahead.set(func(m *machine) { m.up += a.TTL })
	granted(t, one, request("k"))
}

// Rule: nothing is permanent: what has expired is swept by the next writer.
func TestSweep(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	m := newMachine("one")
	d := m.open(t, path)
	rows := func() (n int) {
		must(t, d.db.QueryRow("SELECT count(*) FROM hasp_lease").Scan(&n))
		return n
	}
	most := 0
	for i := range 100 {
		held, waits, dies := request(fmt.Sprint(i)), request(fmt.Sprint(i)), request(fmt.Sprint("dies ", i))
		granted(t, d, held)
		granted(t, d, dies)
		refused(t, d, queued(waits))
		must(t, contend.Release(t.Context(), d, held))
		m.set(func(m *machine) { m.up += 3 * time.Second })
		most = max(most, rows())
	}
	// A lease that died stays for its TTL of 30 s and 64 s, one that was released
	// for 64 s; a place for 10 s.
	failIf(t, most > 65, "%d rows at a time", most)
	m.set(func(m *machine) { m.up += time.Hour })
	for range 20 {
		r := request("k")
		granted(t, d, r)
		must(t, contend.Release(t.Context(), d, r))
	}
	if n := rows(); n > 20 {
		t.Errorf("%d rows are left", n)
	}
}

// Rule: a TTL and a patience may be as long as the type allows.
func TestEndlessTTL(t *testing.T) {
	d := newMachine("one").open(t, newFile(t))
	a, b := request("k"), queued(request("k"))
	a.TTL, b.TTL, b.Patience = math.MaxInt64, math.MaxInt64, math.MaxInt64
	for range 2 {
		if res := granted(t, d, a); res.TTL < 1000*time.Hour {
			t.Errorf("granted for %v", res.TTL)
		}
		if res := refused(t, d, b); res.Left < 1000*time.Hour {
			t.Errorf("%v left", res.Left)
		}
		contend.Renew(t.Context(), d, []contend.Owner{a, b}, func(i int, r driver.Renewal) {
			failIf(t, r.Err != nil, "renewal %d: %v", i, r.Err)
		})
	}
	must(t, contend.Release(t.Context(), d, a))
	granted(t, d, b)
}

// Rule: a lease after its TTL is nobody's: its owner cannot renew or
// release it even while no other has come. The next holder hears that it was
// abandoned, also when others have written, and so swept, meanwhile.
func TestOverIsOver(t *testing.T) {
	m := newMachine("one")
	d := m.open(t, newFile(t))
	late, gone := request("late"), request("gone")
	granted(t, d, late)
	granted(t, d, gone)
	m.set(func(m *machine) { m.up += late.TTL })
	tooLate(t, renewal(t, d, late).Err)
	tooLate(t, contend.Release(t.Context(), d, late))
	if res := granted(t, d, request("late")); res.Abandoned {
		t.Errorf("its owner came back and released it: %+v", res)
	}
	if res := granted(t, d, request("gone")); !res.Abandoned {
		t.Errorf("nobody released it: %+v", res)
	}
}

// Rule: the clock counts since the boot, which has the same name for every
// process of the machine.
func TestSystemClock(t *testing.T) {
	const coarse = 20 * time.Millisecond // of the clocks of some systems
	before := time.Now()
	a, err := system()
	must(t, err)
	began := time.Now()
	time.Sleep(50 * time.Millisecond)
	ended := time.Now()
	b, err := system()
	must(t, err)
	least, most := ended.Sub(began), time.Since(before)
	if a.boot != b.boot || b.At-a.At < least-coarse || b.At-a.At > most+coarse {
		t.Errorf("%+v and then %+v, at least %v and at most %v later", a, b, least, most)
	}
}

func TestOffset(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"", 0, true},
		{"monotonic           0         0\nboottime            0         0\n", 0, true},
		{"monotonic 5 0\nboottime       100000         7\n", 100000*time.Second + 7, true},
		{"boottime -3 500000000\n", -2500 * time.Millisecond, true},
		{"boottime x 0\n", 0, false},
		{"boottime 1 -1\n", 0, false},
		{"boottime 9223372036854775807 0\n", 0, false},
	} {
		if got, err := offset(c.text); got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: %v, %v, want %v", c.text, got, err, c.want)
		}
	}
}

func FuzzOffset(f *testing.F) {
	f.Add("monotonic           0         0\nboottime            0         0\n")
	f.Add("boottime -1 999999999")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := offset(text); err != nil && d != 0 {
			t.Errorf("%v with the error %v", d, err)
		}
	})
}
