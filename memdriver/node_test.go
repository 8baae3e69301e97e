// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
)

// wall is a clock that only the test advances.
type wall struct{ micros atomic.Int64 }

func newWall() *wall {
	w := new(wall)
	w.micros.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	return w
}

func (w *wall) now() time.Time       { return time.UnixMicro(w.micros.Load()) }
func (w *wall) step(d time.Duration) { w.micros.Add(d.Microseconds()) }
func (w *wall) fence() uint64        { return uint64(w.micros.Load()) }

// newNode returns a store that waits to be admitted, and its clock.
func newNode() (*memdriver.Store, *wall) {
	w := newWall()
	return memdriver.NewNode(memdriver.NodeOptions{MaxTTL: time.Hour, Now: w.now}), w
}

func admit(t *testing.T, s *memdriver.Store) voting.Record {
	t.Helper()
	rec, err := s.Record(t.Context())
	need(t, err)
	need(t, s.Admit(t.Context(), rec, time.Hour))
	return rec
}

func heldBack(t *testing.T, s *memdriver.Store) {
	t.Helper()
	res := try(t, s, ask())
	failIf(t, res.Why != voting.NotVoting, "Try: %+v, want NotVoting", res)
}

func TestTraitsOfNodes(t *testing.T) {
	w := newWall()
	for _, c := range []struct {
		of       memdriver.NodeOptions
		survives driver.Fault
	}{
		{memdriver.NodeOptions{}, driver.ClockStep},
		{memdriver.NodeOptions{Now: w.now}, 0},
		{memdriver.NodeOptions{MaxTTL: time.Hour}, driver.StoreRestart | driver.StoreLoss | driver.ClockStep},
		{memdriver.NodeOptions{MaxTTL: time.Hour, Now: w.now}, driver.StoreRestart | driver.StoreLoss},
	} {
		if got := memdriver.NewNode(c.of).Traits(); got.Survives != c.survives|driver.Failover || got.MaxTTL != c.of.MaxTTL {
			t.Errorf("MaxTTL %v, own clock %v: %+v, want %b", c.of.MaxTTL, c.of.Now != nil, got, c.survives)
		}
	}
}

func TestRestartFromNothing(t *testing.T) {
	s, _ := newNode()
	first := admit(t, s)
	a := ask()
	res := try(t, s, a)
	failIf(t, res.Run != first.Run, "granted by %q, the record is of %q", res.Run, first.Run)
	b := ask()
	b.Queue = true
	try(t, s, b)
	hints, err := contend.Watch(t.Context(), s, b)
	need(t, err)
	s.Restart(nil)
	select {
	case <-hints:
	default:
		t.Error("a watcher got no hint when its connection was lost")
	}
	heldBack(t, s)
	info, _ := s.Inspect(t.Context(), "k")
	failIf(t, info.Held || info.Waiters != 0, "a store that was to have nothing: %+v", info)
	failIf(t, admit(t, s).Run == first.Run, "the run is the same after a restart")
	if err := renew(t, s, a); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("the lease before the restart: %v", err)
	}
}

// A restart brings back what was saved, including what has expired since.
func TestRestartFromASnapshot(t *testing.T) {
	s, w := newNode()
	admit(t, s)
	a, b, later := ask(), ask(), ask()
	b.Queue = true
	first := try(t, s, a)
	try(t, s, b)
	saved := s.Snapshot()

	w.step(30 * time.Second)
	need(t, renew(t, s, a))
	for _, r := range []contend.Owner{a, b} {
		need(t, contend.Release(t.Context(), s, r))
	}
	last := try(t, s, later)
	w.step(time.Second)

	for range 2 { // a snapshot is not used up
		s.Restart(saved)
		heldBack(t, s)
		info, _ := s.Inspect(t.Context(), "k")
		if info.Holder.Owner != a.Owner || info.Left != 29*time.Second || info.Fence != first.Fence || info.Waiters != 1 {
			t.Errorf("after the restart: %+v", info)
		}
		if err := renew(t, s, a); !errors.Is(err, voting.ErrNotVoting) {
			t.Errorf("the lease that was saved, held back: %v", err)
		}
		admit(t, s)
		if err := renew(t, s, later); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("a lease that was not saved: %v", err)
		}
		need(t, contend.Release(t.Context(), s, a))
		if res := try(t, s, b); !res.Granted || res.Fence <= last.Fence {
			t.Errorf("the first in the queue: %+v, want a fence above %d", res, last.Fence)
		}
	}
}

// The fences that were granted since a snapshot was saved are not granted again.
func TestFencesAfterASnapshot(t *testing.T) {
	s, w := newNode()
	admit(t, s)
	grantAndRelease(t, s, proposal("k", w.fence()+1))
	saved := s.Snapshot()
	w.step(time.Second)
	fence := w.fence()
	grantAndRelease(t, s, proposal("k", fence))
	s.Restart(saved)
	w.step(time.Second)
	admit(t, s)
	for _, r := range []contend.Owner{proposal("k", fence), proposal("unseen", fence)} {
		res := try(t, s, r)
		failIf(t, res.Why != voting.FenceTooLow, "%q: the fence is granted again: %+v", r.Key, res)
	}
}

// Waiters at a node that is held back get no hints: there is nothing to ask for.
func TestNoHintsWhileHeldBack(t *testing.T) {
	s, _ := newNode()
	admit(t, s)
	a, b, c := ask(), ask(), ask()
	b.Queue, c.Queue = true, true
	for _, r := range []contend.Owner{a, b, c} {
		try(t, s, r)
	}
	s.Restart(s.Snapshot())
	hints, err := contend.Watch(t.Context(), s, c)
	need(t, err)
	for _, r := range []contend.Owner{b, a} {
		need(t, contend.Release(t.Context(), s, r))
	}
	select {
	case <-hints:
		t.Error("a hint")
	default:
	}
	admit(t, s)
	res := try(t, s, c)
	failIf(t, !res.Granted, "admitted, the first in the queue: %+v", res)
}

func TestFlush(t *testing.T) {
	s, _ := newNode()
	first := admit(t, s)
	try(t, s, ask())
	s.Flush()
	heldBack(t, s)
	second, err := s.Record(t.Context())
	if err != nil || second.Run != first.Run || second.Text == first.Text || second.Voting {
		t.Errorf("the record was %+v, is %+v, %v", first, second, err)
	}
	if err := s.Admit(t.Context(), first, time.Hour); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Admit with the record before the flush: %v", err)
	}
	heldBack(t, s)
	admit(t, s)
	res := try(t, s, ask())
	failIf(t, !res.Granted, "admitted: %+v", res)
}

// Leases end by the store's clock, whatever it does.
func TestClockSteps(t *testing.T) {
	s, w := newNode()
	admit(t, s)
	a, b := ask(), ask()
	fence := try(t, s, a).Fence
	w.step(-time.Hour)
	if res := try(t, s, b); res.Granted || res.Left != time.Hour+time.Minute {
		t.Errorf("a lease of a minute, the clock an hour back: %+v", res)
	}
	w.step(time.Hour + time.Minute)
	res := try(t, s, b)
	if !res.Granted || !res.Abandoned || res.Fence <= fence {
		t.Errorf("a lease of a minute, the clock a minute on: %+v, want a fence above %d", res, fence)
	}
	need(t, contend.Release(t.Context(), s, b))
	fence = res.Fence
	w.step(-24 * time.Hour) // fences rise nevertheless
	for range 3 {
		c := ask()
		if res = try(t, s, c); !res.Granted || res.Fence <= fence {
			t.Errorf("the clock a day back: %+v, want a fence above %d", res, fence)
		}
		fence = res.Fence
		w.step(20 * time.Minute)
	}
}

// Who admits a node says for how long a lease may be, up to the node's own bound.
func TestAdmitBounds(t *testing.T) {
	s, _ := newNode()
	rec, err := s.Record(t.Context())
	need(t, err)
	if err := s.Admit(t.Context(), rec, time.Millisecond-1); err == nil || errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Admit for less than a millisecond: %v", err)
	}
	need(t, s.Admit(t.Context(), rec, 2*time.Hour))
	r := ask()
	r.TTL = time.Hour + 1
	res := try(t, s, r)
	failIf(t, res.Why != voting.TTLTooLong || res.TTL != time.Hour, "a TTL above the node's own bound: %+v", res)
	if err := renew(t, s, r); s.Classify(err) != driver.ClassImpossible {
		t.Errorf("a renewal above the node's own bound: %v", err)
	}
}

func TestUnreachableNode(t *testing.T) {
	s, _ := newNode()
	s.SetUnreachable(true)
	_, err := s.Record(t.Context())
	for what, err := range map[string]error{"Record": err, "Admit": s.Admit(t.Context(), voting.Record{}, time.Hour)} {
		failIf(t, s.Classify(err) != driver.ClassUnreachable, "%s of an unreachable store: %v", what, err)
	}
}

// A store without a record may be restarted, too: that is how two owners hold
// one key.
func TestWithoutARecord(t *testing.T) {
	s := memdriver.New()
	_, err := s.Record(t.Context())
	for what, err := range map[string]error{"Record": err, "Admit": s.Admit(t.Context(), voting.Record{}, time.Hour)} {
		failIf(t, !errors.Is(err, driver.ErrUnsupported), "%s: %v, want ErrUnsupported", what, err)
	}
	for _, forget := range []func(){func() { s.Restart(nil) }, s.Flush} {
		try(t, s, ask())
		forget()
		res := try(t, s, ask())
		failIf(t, !res.Granted, "a store that forgot: %+v", res)
	}
}
