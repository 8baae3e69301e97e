// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp"
)

// Rule: while another server takes over behind the address no wait ends and no lease is lost, and what was released
// while none took writes is released by the new one. How soon depends on the machine, and is logged.
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

func failover(t *testing.T, p pair) {
	const many = 20
	ctx, opts := context.Background(), &hasp.LockOptions{TTL: 30 * time.Second}
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
	leader, err := holder.Election("leader", opts).Campaign(ctx)
	must(t, err)
	held = append(held, leader)

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
			if err := lease.Release(); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range many {
		wait(waiter.Mutex(fmt.Sprint("wanted ", i), opts).Lock)
	}
	wait(waiter.Election("leader", opts).Campaign)
	waits.Wait()
	for i := range many {
		waitFor(t, "they wait", func() bool {
			info, err := holder.Inspect(ctx, fmt.Sprint("wanted ", i))
			return err == nil && info.Waiters == 1
		})
	}

	p.turn()
	var released sync.WaitGroup
	for _, l := range wanted {
		released.Go(func() { // refused, and asked again; it fails where the lease ended by itself
			if err := l.Release(); err != nil {
				t.Errorf("%s was not released: %v", l.Key(), err)
			}
		})
	}
	switched := time.Now()
	p.address.Retarget(p.next)
	worst := time.Duration(0)
	for range many {
		worst = max(worst, (<-granted).Sub(switched))
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
