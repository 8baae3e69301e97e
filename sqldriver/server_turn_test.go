// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/stall"
)

// Rule: while another server takes over behind the address no wait ends and no lease is lost, and what was released
// while none took writes is granted before its lease could end by itself.
func TestFailover(t *testing.T) {
	t.Parallel()
	for name, start := range pairs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			failover(t, p)
		})
	}
}

// handedOver is how long the last waiter may wait after the switch. What the machine did not run the test is allowed for.
const handedOver = 18 * time.Second

func failover(t *testing.T, p pair) {
	const many = 20
	lost := stall.Watch(t)
	ctx, opts := context.Background(), &hasp.LockOptions{TTL: 5 * time.Minute}
	client := func() *hasp.Client {
		c, err := hasp.New(p.open(t), nil)
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	holder, waiter := client(), client()
	var held, wanted []*hasp.Lease
	take := func(c *hasp.Client, key string) *hasp.Lease {
		lease, err := c.Mutex(key, opts).Lock(ctx)
		must(t, err)
		return lease
	}
	for i := range many {
		held = append(held, take(holder, fmt.Sprint("held ", i)))
		wanted = append(wanted, take(holder, fmt.Sprint("wanted ", i)))
	}
	leader, err := holder.Election("leader", opts).Lock(ctx)
	must(t, err)
	held = append(held, leader)

	var stood atomic.Int64
	// ran says whether the machine ran this process since the switch, but for a moment: a Release has no more than 5 s.
	ran := func() bool { return lost()-time.Duration(stood.Load()) < time.Second }
	var waits, all sync.WaitGroup
	granted := make(chan time.Time, many+1)
	waits.Add(many + 1)
	wait := func(lock func(ctx context.Context) (*hasp.Lease, error)) {
		all.Go(func() {
			waits.Done()
			lease, err := lock(ctx)
			if err != nil {
				t.Errorf("a wait ended: %v", err)
				return
			}
			granted <- time.Now()
			if lease.Abandoned() && ran() {
				t.Errorf("%s: the lease before ended by itself", lease.Key())
			}
			if err := lease.Release(); err != nil && ran() {
				t.Error(err)
			}
		})
	}
	for i := range many {
		wait(waiter.Mutex(fmt.Sprint("wanted ", i), opts).Lock)
	}
	wait(waiter.Election("leader", opts).Lock)
	waits.Wait()
	for i := range many {
		waitFor(t, "they wait", func() bool {
			info, err := holder.Operator().Inspect(ctx, fmt.Sprint("wanted ", i))
			return err == nil && info.Waiters == 1
		})
	}

	p.turn()
	switched := time.Now()
	stood.Store(int64(lost()))
	var released sync.WaitGroup
	for _, l := range wanted {
		released.Go(func() { // refused, and asked again; it fails where the lease ended by itself
			err := l.Release()
			if err != nil && ran() {
				t.Errorf("%s was not released: %v", l.Key(), err)
			} else if took := time.Since(switched); err != nil || took > handedOver/2 {
				t.Logf("%s was released after %v: %v", l.Key(), took, err)
			}
		})
	}
	p.address.Retarget(p.next)
	worst := time.Duration(0)
	for range many {
		worst = max(worst, (<-granted).Sub(switched))
	}
	if worst > handedOver+lost()-time.Duration(stood.Load()) {
		t.Errorf("the last of %d was granted %v after the switch", many, worst)
	}
	released.Wait()
	for _, l := range held {
		if err := l.Extend(ctx, opts.TTL); err != nil || l.Err() != nil {
			t.Errorf("%s: %v, %v", l.Key(), err, l.Err())
		}
		must(t, l.Release())
	}
	<-granted // the other elector
	all.Wait()
	t.Logf("%d held, %d granted; the last %v after the switch", len(held), many+1, worst.Round(time.Millisecond))
}
