// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
)

// converting makes what converts a writer's lease, and what it does from then on.
func converting(w contend.Owner, fence uint64) (convert, reader contend.Owner) {
	w.Mode, w.Fence = driver.Shared, fence
	convert = w
	convert.Convert = true
	return convert, w
}

// modes are how an owner has the key on each node: -1 where it has not.
func modes(t *testing.T, nodes []*spy, r contend.Owner) (all []int) {
	t.Helper()
	for _, n := range nodes {
		mode := -1
		if l := n.lease(t, r); l != nil {
			mode = int(l.Holder.Mode)
		}
		all = append(all, mode)
	}
	return all
}

// allShared fails a test unless every node has an owner's lease, and has it Shared.
func allShared(t *testing.T, nodes []*spy, r contend.Owner) {
	t.Helper()
	got := modes(t, nodes, r)
	failIf(t, got[0]+got[1]+got[2] != 3, "the modes on the nodes: %v", got)
}

var errOnTheWay = errors.New("lost on the way")

// A converted lease keeps its fence, readers in the queue are let in on every node, and
// a writer is not.
func TestConvertLetsReadersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		w := asks("k")
		fence := granted(t, d, w).Fence
		waiting := []contend.Owner{reads("k"), reads("k")}
		for i := range waiting {
			waiting[i].Queue = true
			refused(t, d, waiting[i])
		}
		hints, err := contend.Watch(t.Context(), d, waiting[1])
		need(t, err)
		convert, reader := converting(w, fence)
		for range 2 {
			res := granted(t, d, convert)
			failIf(t, res.Fence != fence, "the fence is %d, want %d", res.Fence, fence)
		}
		synctest.Wait()
		<-hints
		for _, r := range waiting {
			res := granted(t, d, r)
			failIf(t, res.Fence <= fence, "a reader's fence is %d after %d", res.Fence, fence)
		}
		refused(t, d, w) // an older request, which comes late
		res := granted(t, d, withFence(reader, 0))
		failIf(t, res.Fence != fence, "asked again: %+v", res)
		late := w
		late.Fence = fence
		for _, r := range []contend.Owner{late, reader} { // renewals of before and after
			check(t, renewed(t, d, r).Err)
		}
		allShared(t, nodes, w)
		refused(t, d, asks("k"))
		release(t, d, reader)
		for _, r := range waiting {
			release(t, d, r)
		}
		granted(t, d, asks("k"))
	})
}

func withFence(r contend.Owner, fence uint64) contend.Owner {
	r.Fence = fence
	return r
}

// A Convert of unknown outcome changes nothing but that the lease is Shared from then
// on, wherever its nodes are told.
func TestConvertWithoutAnswer(t *testing.T) {
	for name, lost := range map[string]func(s *spy, f func(voting.VoteRequest) error){
		"request lost": (*spy).on, "answer lost": (*spy).loses,
	} {
		bubbled(t, name, func(t *testing.T) {
			d, nodes := spies(t, 3)
			w := asks("k")
			fence := granted(t, d, w).Fence
			synctest.Wait()
			for _, n := range nodes[:2] {
				lost(n, func(r voting.VoteRequest) error {
					if r.Convert {
						return errOnTheWay
					}
					return nil
				})
			}
			convert, reader := converting(w, fence)
			fails(t, d, convert) // with the answer of one node of three
			for _, n := range nodes[:2] {
				lost(n, nil)
			}
			refused(t, d, w) // it may be Shared: no node takes it for Exclusive any more
			if got := modes(t, nodes, w); got[0] < 0 || got[1] < 0 || got[2] != 1 {
				t.Fatalf("the modes on the nodes: %v", got)
			}
			check(t, renewed(t, d, reader).Err)
			other := reads("k")
			granted(t, d, other)
			allShared(t, nodes, w)
			if res := granted(t, d, convert); res.Fence != fence {
				t.Errorf("%+v", res)
			}
			release(t, d, reader)
		})
	}
}

// A Convert returns once the queue node, which is slower than most, lets others in.
func TestConvertWaitsForTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		w := asks("k")
		convert, _ := converting(w, granted(t, d, w).Fence)
		synctest.Wait()
		nodes[0].on(func(r voting.VoteRequest) error {
			if r.Convert {
				time.Sleep(d.timeout(ruleTTL) / 2)
			}
			return nil
		})
		granted(t, d, convert)
		granted(t, d, reads("k"))
	})
}

// The holder of a lease takes it for Shared from the call on, also when that sends
// nothing.
func TestConvertThatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		w := asks("k")
		convert, reader := converting(w, granted(t, d, w).Fence)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := contend.Try(ctx, d, convert)
		stopIf(t, err == nil, "no error")
		check(t, renewed(t, d, reader).Err)
		allShared(t, nodes, w)
	})
}

// A lease that stands converts on the nodes that have it; its queue node may have
// another's by now. An earlier vote of the same owner is not the lease.
func TestConvertCountsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		w := asks("k")
		fence := granted(t, d, w).Fence
		synctest.Wait()
		convert, _ := converting(w, fence)
		nodes[0].Lose("k")
		nodes[0].Hold("k", ruleTTL, driver.Label{})
		granted(t, d, convert)
		for _, n := range nodes {
			n.restarted(t)
			old := withFence(w, fence-1)
			old.Restore = true
			granted(t, n, old)
		}
		refused(t, d, convert)
		refused(t, d, withFence(convert, 0))
	})
}

// A Convert that a majority refuses comes too late: the lease is lost, as a renewal
// would say. Whoever has none is granted nothing.
func TestConvertOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		w := asks("k")
		fence := granted(t, d, w).Fence
		synctest.Wait()
		for _, n := range nodes[:2] {
			n.Lose("k")
		}
		convert, reader := converting(w, fence)
		refused(t, d, convert)
		got := renewed(t, d, reader)
		failIf(t, !errors.Is(got.Err, driver.ErrNotHeld), "%+v", got)
		stranger, _ := converting(asks("k2"), 0)
		stranger.Queue = true
		refused(t, d, stranger)
		refused(t, d, withFence(stranger, fence))
		failIf(t, d.owners.get(stranger.Claim()) != nil, "a lease of nobody is kept")
		waiter, gate := asks("k"), asks("k3")
		if err := contend.Release(t.Context(), d, reader); !errors.Is(err, driver.ErrNotHeld) {
			t.Error(err)
		}
		holder := asks("k")
		granted(t, d, holder)
		waiter.Queue = true
		refused(t, d, waiter)
		convert, _ = converting(waiter, 0)
		refused(t, d, convert)
		for _, n := range nodes[1:] { // the queue node's vote is not the lease
			n.Hold("k3", ruleTTL, driver.Label{})
		}
		gate.Queue = true
		refused(t, d, gate)
		convert, _ = converting(gate, 0)
		refused(t, d, convert)
		synctest.Wait()
		if got := modes(t, nodes, gate); got[0] != 0 {
			t.Errorf("the modes on the nodes: %v", got)
		}
		for _, key := range []string{"k2", "k3"} {
			info, err := nodes[0].Inspect(t.Context(), key)
			if err != nil || info.Held && info.Holder.Owner != gate.Owner || info.Waiters != 0 {
				t.Errorf("%s: %+v, %v", key, info, err)
			}
		}
	})
}

// Nodes that missed a Convert are told with the renewals, and wake the waiters.
func TestMissedConvertIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		w, waits := asks("k"), reads("k")
		fence := granted(t, d, w).Fence
		synctest.Wait()
		waits.Queue = true
		refused(t, d, waits)
		hints, err := contend.Watch(t.Context(), d, waits)
		need(t, err)
		nodes[0].on(func(r voting.VoteRequest) error { // the queue node, which is well otherwise
			if r.Convert {
				return driver.ErrUnsupported
			}
			return nil
		})
		convert, reader := converting(w, fence)
		granted(t, d, convert)
		failIf(t, hinted(hints), "the queue node did not hear of it, and woke a reader")
		if got := renewed(t, d, reader); got.Err != nil || !got.Wanted {
			t.Errorf("%+v", got)
		}
		if got := modes(t, nodes, w); got[0] != 0 {
			t.Fatalf("the modes on the nodes: %v", got)
		}
		nodes[0].on(nil)
		check(t, renewed(t, d, reader).Err)
		<-hints
		granted(t, d, waits)
		allShared(t, nodes, w)
		told := len(nodes[0].asked("k"))
		check(t, renewed(t, d, reader).Err)
		more := len(nodes[0].asked("k")) - told
		failIf(t, more != 0, "the node knows, and is told %d times more", more)
		nodes[1].SetUnreachable(true) // what it has afterwards is not known
		_ = renewed(t, d, reader)
		nodes[1].SetUnreachable(false)
		time.Sleep(time.Second)
		told = len(nodes[1].asked("k"))
		_ = renewed(t, d, reader)
		more = len(nodes[1].asked("k")) - told
		failIf(t, more != 1, "a node that was away is told %d times, want once", more)
	})
}

// A lease of another process, whose Convert may have been missed anywhere, is told
// to the nodes, and converted, by the process that took it over.
func TestAdoptedLeaseConverts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, nodes := spies(t, 3)
		d := over(t, nodes, nil)
		w := asks("k")
		convert, reader := converting(w, granted(t, first, w).Fence)
		synctest.Wait()
		nodes[0].on(func(voting.VoteRequest) error { return errOnTheWay })
		granted(t, first, convert)
		synctest.Wait()
		nodes[0].on(nil)
		info, err := d.Inspect(t.Context(), "k")
		failIf(t, err != nil || info.Holder.Mode != driver.Shared, "%+v, %v", info, err)
		check(t, renewed(t, d, reader).Err)
		allShared(t, nodes, w)
		for _, fence := range []uint64{reader.Fence, 0} {
			d := over(t, nodes, nil)
			nodes[1].Lose("k") // and has it as it was before
			old := withFence(w, reader.Fence)
			old.Restore = true
			granted(t, nodes[1], old)
			nodes[1].on(func(voting.VoteRequest) error { return errOnTheWay })
			res := granted(t, d, withFence(convert, fence))
			failIf(t, res.Fence != reader.Fence, "%+v, want the fence %d", res, reader.Fence)
			synctest.Wait()
			nodes[1].on(nil)
			refused(t, d, w)
			granted(t, d, withFence(reader, 0))
			synctest.Wait()
			if got := modes(t, nodes, w); got[0]+got[1]+got[2] != 3 {
				t.Errorf("the modes after the fence %d: %v", fence, got)
			}
			check(t, renewed(t, d, reader).Err)
		}
	})
}

// A node that lost a converted lease gives its vote back as Shared, also when the
// renewal that found it gone was sent before; a reader beside it, or since
// with a larger fence, is not in the way.
func TestRestoreOfASharedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		w := asks("k")
		fence := granted(t, d, w).Fence
		convert, reader := converting(w, fence)
		granted(t, d, convert)
		synctest.Wait()
		for i, n := range nodes {
			n.Lose("k")
			beside, left := reads("k"), reads("k")
			for _, r := range []*contend.Owner{&beside, &left} {
				time.Sleep(time.Millisecond)
				r.Fence = d.clock.next()
				granted(t, n, *r)
			}
			release(t, n, left)
			late := withFence(w, fence) // Exclusive, as before the Convert
			for _, r := range []contend.Owner{late, reader} {
				need(t, renewed(t, d, r).Err)
			}
			if got := modes(t, nodes, w); got[i] != 1 {
				t.Errorf("the modes after node %d lost it: %v", i, got)
			}
			release(t, n, beside)
		}
		for i, n := range nodes { // and no reader is beside it
			n.Lose("k")
			need(t, renewed(t, d, withFence(w, fence)).Err)
			if got := modes(t, nodes, w); got[i] != 1 {
				t.Errorf("the modes after node %d lost it: %v", i, got)
			}
		}
	})
}

// A reader outlives the restart of all nodes, one after the other, while others come
// and go.
func TestRollingRestartUnderAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		other := over(t, nodes, nil)
		r := reads("k")
		r.Fence = granted(t, d, r).Fence
		synctest.Wait()
		for i, n := range nodes {
			n.Restart(nil)
			for !d.nodes[i].serving() || d.nodes[i].latest().Run != *d.nodes[i].life.Load() || n.lease(t, r) == nil {
				for range 3 {
					time.Sleep(time.Second)
					beside := reads("k")
					granted(t, other, beside)
					release(t, other, beside)
				}
				got := renewed(t, d, r)
				stopIf(t, got.Err != nil, "while node %d restarts: %v", i, got.Err)
			}
			refused(t, other, asks("k"))
		}
		release(t, d, r)
	})
}
