// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// Nodes that missed a Convert are told with the renewals, and wake those who wait.
func TestMissedConvertIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		w, waits := asks("k"), reads("k")
		fence := granted(t, d, w).Fence
		synctest.Wait()
		waits.Queue = true
		refused(t, d, waits)
		hints, err := contend.Watch(t.Context(), d, waits)
		if err != nil {
			t.Fatal(err)
		}
		nodes[0].on(func(r driver.VoteRequest) error { // the queue node, which is well otherwise
			if r.Convert {
				return driver.ErrUnsupported
			}
			return nil
		})
		convert, reader := converting(w, fence)
		granted(t, d, convert)
		synctest.Wait()
		select {
		case <-hints:
			t.Error("the queue node did not hear of it, and woke a reader")
		default:
		}
		if got := renewed(t, d, reader); got.Err != nil || !got.Wanted {
			t.Errorf("%+v", got)
		}
		if got := modes(t, nodes, w); got[0] != 0 {
			t.Fatalf("the modes on the nodes: %v", got)
		}
		nodes[0].on(nil)
		if got := renewed(t, d, reader); got.Err != nil {
			t.Error(got.Err)
		}
		<-hints
		granted(t, d, waits)
		if got := modes(t, nodes, w); got[0]+got[1]+got[2] != 3 {
			t.Errorf("the modes on the nodes: %v", got)
		}
		told := len(nodes[0].asked("k"))
		if got := renewed(t, d, reader); got.Err != nil {
			t.Error(got.Err)
		}
		if more := len(nodes[0].asked("k")) - told; more != 0 {
			t.Errorf("the node knows, and is told %d times more", more)
		}
		nodes[1].SetUnreachable(true) // what it has afterwards is not known
		_ = renewed(t, d, reader)
		nodes[1].SetUnreachable(false)
		time.Sleep(time.Second)
		told = len(nodes[1].asked("k"))
		_ = renewed(t, d, reader)
		if more := len(nodes[1].asked("k")) - told; more != 1 {
			t.Errorf("a node that was away is told %d times, want once", more)
		}
	})
}

// A lease of another process, whose Convert may have been missed anywhere, is told
// to the nodes, and converted, by the process that took it over.
func TestAdoptedLeaseConverts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, nodes := spies(t, 3)
		d := another(t, nodes)
		w := asks("k")
		convert, reader := converting(w, granted(t, first, w).Fence)
		synctest.Wait()
		nodes[0].on(func(driver.VoteRequest) error { return errOnTheWay })
		granted(t, first, convert)
		synctest.Wait()
		nodes[0].on(nil)
		info, err := d.Inspect(t.Context(), "k")
		if err != nil || info.Holder.Mode != driver.Shared {
			t.Errorf("%+v, %v", info, err)
		}
		if got := renewed(t, d, reader); got.Err != nil {
			t.Error(got.Err)
		}
		if got := modes(t, nodes, w); got[0]+got[1]+got[2] != 3 {
			t.Errorf("the modes on the nodes: %v", got)
		}
		for _, fence := range []uint64{reader.Fence, 0} {
			d := another(t, nodes)
			nodes[1].Lose("k") // and has it as it was before
			old := withFence(w, reader.Fence)
			old.Restore = true
			granted(t, nodes[1], old)
			nodes[1].on(func(driver.VoteRequest) error { return errOnTheWay })
			if res := granted(t, d, withFence(convert, fence)); res.Fence != reader.Fence {
				t.Errorf("%+v, want the fence %d", res, reader.Fence)
			}
			synctest.Wait()
			nodes[1].on(nil)
			refused(t, d, w)
			granted(t, d, withFence(reader, 0))
			synctest.Wait()
			if got := modes(t, nodes, w); got[0]+got[1]+got[2] != 3 {
				t.Errorf("the modes after the fence %d: %v", fence, got)
			}
			if got := renewed(t, d, reader); got.Err != nil {
				t.Error(got.Err)
			}
		}
	})
}

// A node that lost a converted lease gives its vote back as Shared, also when the
// renewal that found it gone was sent before; whoever reads beside it, or read since
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
				if got := renewed(t, d, r); got.Err != nil {
					t.Fatal(got.Err)
				}
			}
			if got := modes(t, nodes, w); got[i] != 1 {
				t.Errorf("the modes after node %d lost it: %v", i, got)
			}
			release(t, n, beside)
		}
		for i, n := range nodes { // and nobody is beside it
			n.Lose("k")
			if got := renewed(t, d, withFence(w, fence)); got.Err != nil {
				t.Fatal(got.Err)
			}
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
		other := another(t, nodes)
		r := reads("k")
		r.Fence = granted(t, d, r).Fence
		synctest.Wait()
		for i, n := range nodes {
			n.Restart(nil)
			for !d.nodes[i].serving() || d.nodes[i].latest().Node != *d.nodes[i].life.Load() || n.lease(t, r) == nil {
				for range 3 {
					time.Sleep(time.Second)
					beside := reads("k")
					granted(t, other, beside)
					release(t, other, beside)
				}
				if got := renewed(t, d, r); got.Err != nil {
					t.Fatalf("while node %d restarts: %v", i, got.Err)
				}
			}
			refused(t, other, asks("k"))
		}
		release(t, d, r)
	})
}
