// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// proposal is a request of a fresh owner, whose Tries are all answered.
func proposal(key string, fence uint64) contend.Owner {
	r := request(key)
	r.Fence, r.Settled = fence, true
	return r
}

func restored(r contend.Owner) contend.Owner {
	r.Restore = true
	return r
}

// pass lets time pass on both clocks.
func (m *machine) pass(d time.Duration) {
	m.set(func(m *machine) { m.up, m.now = m.up+d, m.now.Add(d) })
}

// fence is one that a client with a good clock would propose.
func (m *machine) fence() uint64 { return uint64(m.wall().UnixMicro()) }

func grantAndRelease(t testing.TB, d *Driver, r contend.Owner) {
	t.Helper()
	if res := granted(t, d, r); res.Fence != r.Fence {
		t.Fatalf("proposed %d: %+v", r.Fence, res)
	}
	must(t, contend.Release(t.Context(), d, r))
}

func refusedFence(t testing.TB, d *Driver, r contend.Owner, least uint64) driver.Result {
	t.Helper()
	res := refused(t, d, r)
	if res.Why != voting.FenceTooLow || res.Fence < least {
		t.Errorf("proposed %d for %q: %+v, want FenceTooLow and at least %d", r.Fence, r.Key, res, least)
	}
	return res
}

// Rule: at the end of the numbers a fence neither repeats nor falls: it is refused,
// with the key and what to do.
func TestLastFences(t *testing.T) {
	for _, c := range []struct {
		change string
		grants int // before the end
	}{
		{"UPDATE hasp_meta SET fence = 9223372036854775804", 3},
		{"UPDATE hasp_meta SET fence = 9223372036854775807", 0},
		{"UPDATE hasp_meta SET fence = -5", 0},
		{"UPDATE hasp_lease SET fence = 9223372036854775807", 0},
	} {
		path := newFile(t)
		change(t, path, "UPDATE hasp_lease SET expires = 0; "+c.change)
		d := openDriver(t, path)
		var last uint64
		for range c.grants {
			r := request("held")
			res := granted(t, d, r)
			failIf(t, res.Fence <= last, "%s: the fence is %d after %d", c.change, res.Fence, last)
			last = res.Fence
			must(t, contend.Release(t.Context(), d, r))
		}
		_, err := contend.Try(t.Context(), d, request("held"))
		if err == nil || d.Classify(err) != driver.ClassMisconfigured || !strings.Contains(err.Error(), `no fence for the key "held"`) {
			t.Errorf("%s: class %d: %v", c.change, d.Classify(err), err)
		}
		if res, err := contend.Try(t.Context(), d, proposal("held", 1<<63)); err == nil && res.Granted {
			t.Errorf("%s: a proposal beyond the end: %+v", c.change, res)
		}
	}
}

// Rule: proposals for different keys may overtake each other by 20 seconds, at
// any time and with any number of keys.
func TestProposalsOvertake(t *testing.T) {
	t.Parallel()
	m := newMachine("one")
	d := m.open(t, newFile(t))
	grantAndRelease(t, d, proposal("before", m.fence()+1)) // what is older than the file is refused
	m.pass(rules.Overtake)
	for i := range 200 {
		m.pass(500 * time.Millisecond)
		grantAndRelease(t, d, proposal("new"+strconv.Itoa(i), m.fence()))
		grantAndRelease(t, d, proposal("late"+strconv.Itoa(i), m.fence()-uint64(rules.Overtake.Microseconds())+1))
	}
}

// Rule: however long nobody used the file, a lock is granted at once with a larger fence; a proposal of a client whose clock is
// behind is refused once at most, for this key and any other.
func TestIdleFile(t *testing.T) {
	t.Parallel()
	m, path := newMachine("one"), newFile(t)
	old, last := m.open(t, path), uint64(0)
	for _, gap := range []time.Duration{0, time.Hour, 13 * time.Hour, 25 * time.Hour, 8 * 24 * time.Hour, 60 * 24 * time.Hour} {
		m.pass(gap)
		for _, d := range []*Driver{old, m.open(t, path)} {
			r := request("k")
			r.Settled = true
			fence := granted(t, d, r).Fence
			if must(t, contend.Release(t.Context(), d, r)); fence <= last {
				t.Errorf("after %v: fence %d after %d", gap, fence, last)
			}
			floor := refusedFence(t, d, proposal("k", m.fence()-1e9), fence).Fence
			m.pass(time.Second)
			grantAndRelease(t, d, proposal("k", floor+1))
			grantAndRelease(t, d, proposal("other", m.fence()))
			last = floor + 1
		}
	}
}

// Rule: a key that is forgotten leaves no way back for its fences, whether they
// were proposed or minted, and whatever made the store forget.
func TestForgottenFences(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(m *machine){
		"it was swept":            func(m *machine) { m.up += rules.KeepFence },
		"and much later":          func(m *machine) { m.up += 1000 * time.Hour },
		"and the wall clock back": func(m *machine) { m.up, m.now = m.up+rules.KeepFence, m.now.Add(-time.Hour) },
		"a reboot":                func(m *machine) { m.boot, m.up, m.now = "two", time.Second, m.now.Add(time.Minute) },
	} {
		m := newMachine("one")
		path := newFile(t)
		d := m.open(t, path)
		grantAndRelease(t, d, proposal("before", m.fence()+1))
		fence := m.fence() + uint64(voting.MaxFenceSkew.Microseconds())
		grantAndRelease(t, d, proposal("k", fence))
		dead := proposal("dead", fence)
		granted(t, d, dead)
		m.pass(dead.TTL)
		minted := request("minted")
		minted.Settled = true
		newest := granted(t, d, minted).Fence
		must(t, contend.Release(t.Context(), d, minted))
		m.set(forget)
		_ = contend.Release(t.Context(), d, request("sweeps")) // of an owner that has nothing
		var rows int
		must(t, d.db.QueryRow("SELECT count(*) FROM hasp_lease WHERE key <> CAST('sweeps' AS BLOB)").Scan(&rows))
		failIf(t, rows != 0, "%s: %d rows are left", name, rows)
		for _, key := range []string{"k", "dead", "unseen"} {
			refusedFence(t, d, proposal(key, fence), fence)
		}
		res := refusedFence(t, m.open(t, path), proposal("minted", newest), newest)
		grantAndRelease(t, d, proposal("minted", res.Fence+1))
	}
}

// Rule: until then a Restore with an earlier fence is refused, whatever became
// of the lease: it was released, it ended, or its owner went back to the queue.
func TestRememberedFences(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(d *Driver, m *machine, r contend.Owner) error{
		"settled": func(d *Driver, _ *machine, r contend.Owner) error { return contend.Release(t.Context(), d, r) },
		"unsettled": func(d *Driver, _ *machine, r contend.Owner) error {
			r.Settled = false
			return contend.Release(t.Context(), d, r)
		},
		"over": func(_ *Driver, m *machine, r contend.Owner) error { m.pass(r.TTL); return nil },
		"over and then released": func(d *Driver, m *machine, r contend.Owner) error {
			m.pass(r.TTL)
			tooLate(t, contend.Release(t.Context(), d, r))
			return nil
		},
		"back in the queue": func(d *Driver, m *machine, r contend.Owner) error {
			first := queued(request("k"))
			first.Settled, first.Patience = true, time.Hour
			refused(t, d, first)
			m.pass(r.TTL)
			r.Fence = 0
			refused(t, d, queued(r))
			return errors.Join(contend.Release(t.Context(), d, r), contend.Release(t.Context(), d, first))
		},
	} {
		m := newMachine("one")
		d := m.open(t, newFile(t))
		fence := m.fence() + 1000
		r := proposal("k", fence)
		if name == "unsettled" { // the same fence twice
			grantAndRelease(t, d, r)
			r.Restore = true
		}
		granted(t, d, r)
		must(t, end(d, m, r))
		m.pass(time.Minute + voting.MaxFenceSkew - 1)
		_ = contend.Release(t.Context(), d, request("sweeps")) // of an owner that has nothing
		t.Log(name)
		refusedFence(t, d, restored(proposal("k", fence-1)), fence)
		grantAndRelease(t, d, restored(proposal("k", fence)))
	}
}

// Rule: the owner of a lease that expired and was released learns that, and the
// next holder does not see it as abandoned, also when nothing of the owner
// is left.
func TestSettledReleaseOfWhatIsOver(t *testing.T) {
	m := newMachine("one")
	d := m.open(t, newFile(t))
	a, b := proposal("k", 0), queued(proposal("k", 0))
	granted(t, d, a)
	refused(t, d, b)
	m.pass(a.TTL)
	for _, r := range []contend.Owner{a, b} {
		tooLate(t, contend.Release(t.Context(), d, r))
	}
	if res := granted(t, d, a); res.Abandoned {
		t.Errorf("%+v", res)
	}
}

// Rule: a Release up to a fence leaves a lease with a larger one as it is, also
// when something of the owner may be under way.
func TestReleaseUpTo(t *testing.T) {
	m := newMachine("one")
	d := m.open(t, newFile(t))
	r := proposal("k", m.fence()+10)
	r.TTL = time.Second
	granted(t, d, r)
	for _, r.Settled = range []bool{true, false} {
		r.UpTo = r.Fence - 1
		tooLate(t, contend.Release(t.Context(), d, r))
		if info, err := d.Inspect(t.Context(), "k"); err != nil || info.Left != r.TTL || info.Fence != r.Fence {
			t.Errorf("Inspect: %+v, %v", info, err)
		}
	}
	r.UpTo++
	must(t, contend.Release(t.Context(), d, r))
	refused(t, d, r)
}

// Rule: a file begins above the fences of one that was there before.
func TestFirstProposal(t *testing.T) {
	m := newMachine("one")
	d := m.open(t, newFile(t))
	refusedFence(t, d, proposal("k", m.fence()), m.fence())
	grantAndRelease(t, d, proposal("k", m.fence()+1))
}

// Rule: a refusal of a proposal is a mere read.
func TestRefusedProposalIsARead(t *testing.T) {
	m := newMachine("one")
	path := newFile(t)
	d := m.open(t, path)
	held := proposal("held", m.fence()+1000)
	granted(t, d, held)
	grantAndRelease(t, d, proposal("free", m.fence()+1000))
	unlock := lockFile(t, path)
	defer unlock("SELECT 1")
	if res := refused(t, d, proposal("held", held.Fence+1)); res.Why != driver.WhyHeld || res.Fence != held.Fence || res.Run == "" {
		t.Errorf("%+v", res)
	}
	refusedFence(t, d, proposal("free", m.fence()+1000), m.fence()+1000)
	refusedFence(t, d, restored(proposal("free", m.fence()+999)), m.fence()+1000)
	held.Raise = true
	for _, held.Fence = range []uint64{held.Fence - 1, held.Fence + 10_000_000} {
		refusedFence(t, d, held, m.fence()+1000)
	}
}

// Rule: whatever clients propose and the clocks do, a key's fences rise.
func TestFencesRiseWhateverTheClocksDo(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 4 {
		m := newMachine("0")
		d := m.open(t, newFile(t))
		newest := make(map[string]uint64)
		for i := range 150 {
			switch rnd.IntN(8) {
			case 0:
				m.set(func(m *machine) {
					m.now, m.up = m.now.Add(time.Duration(rnd.Int64N(int64(48*time.Hour)))-24*time.Hour), m.up+clockEvery
				})
			case 1:
				m.pass(10 * time.Second)
				_ = contend.Release(t.Context(), d, request("writes")) // of an owner that has nothing
				m.set(func(m *machine) {                               // it was off for a while
					m.now = m.now.Add(m.up + time.Minute)
					m.boot, m.up = strconv.Itoa(i+1), time.Duration(rnd.Int64N(int64(m.up/2)+1))
				})
			default:
				m.pass(time.Duration(rnd.Int64N(int64(30 * time.Second))))
			}
			key := strconv.Itoa(rnd.IntN(3))
			r := proposal(key, 0)
			switch rnd.IntN(6) {
			case 0: // minted
			case 1: // the newest, or a little above
				r.Fence = newest[key] + uint64(rnd.IntN(3))
			default:
				r.Fence = m.fence() + uint64(rnd.Int64N(60_000_000)) - 30_000_000
			}
			r.Fences, r.Settled = rnd.IntN(4), rnd.IntN(2) == 0
			res := try(t, d, r)
			if res.Why == voting.FenceTooLow {
				r.Fence = res.Fence + 1
				res = granted(t, d, r)
			}
			if first := res.Fence - uint64(max(res.Fences, 1)) + 1; !res.Granted || first <= newest[key] {
				t.Fatalf("%q after %d: %+v", key, newest[key], res)
			}
			newest[key] = res.Fence
			if rnd.IntN(2) == 0 {
				r.Fence, r.Raise = res.Fence+uint64(rnd.IntN(1000)), true
				if res = granted(t, d, r); res.Fence != r.Fence {
					t.Fatalf("%q: raised to %d: %+v", key, r.Fence, res)
				}
				newest[key] = res.Fence
			}
			if rnd.IntN(4) > 0 {
				must(t, contend.Release(t.Context(), d, r))
			} else {
				m.pass(r.TTL)
			}
		}
	}
}

// Rule: of several processes that propose fences one holds the key at a time,
// and the fence of each is larger than the one's before.
func TestProcessesPropose(t *testing.T) {
	t.Parallel()
	const processes, rounds = 4, 15
	path, log := newFile(t), filepath.Join(t.TempDir(), "log")
	must(t, os.WriteFile(log, nil, 0o600))
	all := ready(t, processes, func(_ int) *process { return start(t, "bid", path, "orders/42", log, strconv.Itoa(rounds)) })
	beginAll(all)
	nodes := map[string]bool{}
	for _, p := range all {
		nodes[p.says("node")] = true
	}
	failIf(t, len(nodes) != 1 || nodes[""], "the processes name the file %v", nodes)
	checkLog(t, log, processes*rounds)
}
