// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/ballot"
	"github.com/hasplock/hasp/internal/contend"
)

// After the process stood still a Try and its timer both look for silent nodes, one right
// after the other: no answer could be read in between.
func TestTwoLooksAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := spies(t, 3)
		f := d.fanout(d.life, ballot.All(3), ruleTTL, 0, nil)
		defer f.cancel()
		time.Sleep(f.limit - 1)
		f.mu.Lock()
		f.timer.Stop()
		f.mu.Unlock()
		time.Sleep(time.Minute)
		f.look()
		f.look()
		for _, n := range d.nodes {
			if !n.serving() {
				t.Error(n.name, "is out of service for what the process slept")
			}
		}
	})
}

// A process that adopted a lease, and has not heard its nodes before, converts it: the
// queue node is asked no more than the others.
func TestConvertByAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		w := asks("k")
		fence := granted(t, d, w).Fence
		synctest.Wait()
		queue := nodes[d.queue.Load().index]
		gone := w
		gone.Settled = true
		if err := contend.Release(t.Context(), queue.Store, gone); err != nil {
			t.Fatal(err)
		}
		queue.Hold("k", ruleTTL, driver.Label{})
		convert, _ := converting(w, fence)
		granted(t, another(t, nodes), convert) // two of three nodes converted it
	})
}

// describer is a node that takes its time to describe a key.
type describer struct{ *spy }

func (d *describer) Inspect(ctx context.Context, key string) (driver.Info, error) {
	select {
	case <-time.After(lookLimit - time.Millisecond):
	case <-ctx.Done():
		return driver.Info{}, ctx.Err()
	}
	return d.spy.Inspect(ctx, key)
}

// A node may take longer to describe a key than to vote, and stays in service.
func TestSlowInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes := spies(t, 3)
		d := New([]driver.Node{&describer{nodes[0]}, &describer{nodes[1]}, &describer{nodes[2]}}, nil)
		defer d.Close()
		granted(t, d, asks("k"))
		synctest.Wait()
		if info, err := d.Inspect(t.Context(), "k"); err != nil || !info.Held {
			t.Errorf("%+v, %v, want the holder", info, err)
		}
		for _, n := range d.nodes {
			if !n.serving() {
				t.Error(n.name, "is out of service")
			}
		}
	})
}

// A refusal does not wait for the place to go that the owner had on another queue node.
func TestRefusalDoesNotWaitForTheOldPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		granted(t, d, asks("k"))
		synctest.Wait() // or the waiter may have the third vote
		w := asks("k")
		w.Queue = true
		refused(t, d, w)
		synctest.Wait()
		old := d.queue.Load()
		nodes[old.index].onRelease(func(driver.WithdrawRequest) error { time.Sleep(time.Second); return nil })
		old.readOnly.Store(true)
		d.route()
		begun := time.Now()
		refused(t, d, w)
		if took := time.Since(begun); took > 0 {
			t.Errorf("the refusal came after %v", took)
		}
		time.Sleep(time.Minute)
	})
}
