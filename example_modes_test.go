// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/memdriver"
)

func ExampleRWMutex() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close()
	ctx := context.Background()
	catalog := locks.RWMutex("catalog", nil)

	a, _ := catalog.RLock(ctx)
	b, _ := catalog.RLock(ctx) // any number of readers
	_, err := catalog.TryLock(ctx)
	fmt.Println("readers keep writers out:", errors.Is(err, hasp.ErrHeld))
	_ = a.Release()
	_ = b.Release()

	err = catalog.Do(ctx, func(ctx context.Context, lease *hasp.Lease) error {
		_, err := catalog.TryRLock(context.Background())
		fmt.Println("a writer keeps readers out:", errors.Is(err, hasp.ErrHeld))
		return nil
	})
	fmt.Println(err)
	// Output:
	// readers keep writers out: true
	// a writer keeps readers out: true
	// <nil>
}

func ExampleLease_Downgrade() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close()
	ctx := context.Background()
	catalog := locks.RWMutex("catalog", nil)

	lease, _ := catalog.Lock(ctx)
	defer lease.Release()
	// Write the new catalog; then let others read while this goes on reading,
	// with no moment in which another could write.
	fmt.Println(lease.Downgrade(ctx))
	other, err := catalog.TryRLock(ctx)
	if err == nil {
		_ = other.Release()
	}
	fmt.Println(err, lease.Mode() == hasp.Shared)
	// Output:
	// <nil>
	// <nil> true
}

func ExampleSemaphore() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close()
	ctx := context.Background()
	licences := locks.Semaphore("licences", 2, nil)

	a, _ := licences.Lock(ctx)
	b, _ := licences.Lock(ctx)
	_, err := licences.TryLock(ctx)
	fmt.Println(a.Slot(), b.Slot(), errors.Is(err, hasp.ErrHeld))
	_ = a.Release()
	c, _ := licences.Lock(ctx)
	fmt.Println("the slot that came free:", c.Slot())
	_, _ = b.Release(), c.Release()
	// Output:
	// 0 1 true
	// the slot that came free: 0
}

func ExampleLocks() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close()
	ctx := context.Background()

	// Another who names them the other way round waits, and never for ever.
	accounts, err := hasp.Locks{locks.Mutex("account/7", nil), locks.Mutex("account/3", nil)}.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer accounts.Release()
	work := accounts.Context(ctx) // ends when either key may be lost
	for _, lease := range accounts.All() {
		fmt.Println(lease.Key(), work.Err())
	}
	// Output:
	// account/7 <nil>
	// account/3 <nil>
}

func ExampleLocks_Lock() {
	near, _ := hasp.New(memdriver.New(), nil)
	defer near.Close()
	far, _ := hasp.New(memdriver.New(), nil) // another store
	defer far.Close()

	all, err := hasp.Locks{
		near.Mutex("orders/42", nil),
		far.RWMutex("catalog", nil).RLocker(),
	}.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(all.All()), all.Err(), all.Release())
	// Output: 2 <nil> <nil>
}

func ExampleElection_Lead() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close()
	ctx := context.Background()
	scheduler := locks.Election("scheduler", &hasp.LockOptions{Reason: "scheduler"})

	err := scheduler.Lead(ctx, func(ctx context.Context, lease *hasp.Lease) error {
		leader, err := scheduler.Leader(ctx) // as anybody may ask
		fmt.Println(leader.Holder.Describe().Reason, leader.Fence == lease.Fence(), err)
		return nil // resigns
	})
	_, none := scheduler.Leader(ctx)
	fmt.Println(err, errors.Is(none, hasp.ErrNotHeld))
	// Output:
	// scheduler true <nil>
	// <nil> true
}

func ExampleElection_Leaders() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close()
	ctx := context.Background()
	election := locks.Election("scheduler", nil)
	lease, _ := election.Lock(ctx)
	for leader, err := range election.Leaders(ctx) {
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println("led by us:", leader.Holder.Owner == lease.Owner())
		break
	}
	_ = lease.Release()
	// Output: led by us: true
}

func ExampleLease_Abandoned() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close()
	ctx := context.Background()
	lease, _ := locks.Mutex("index", nil).Lock(ctx)
	_ = locks.Operator().Break(ctx, "index", lease.Owner()) // or it dies, or loses the lease

	next, _ := locks.Mutex("index", nil).Lock(ctx)
	fmt.Println("to be repaired:", next.Abandoned())
	_ = next.Release()
	after, _ := locks.Mutex("index", nil).Lock(ctx)
	fmt.Println("to be repaired:", after.Abandoned())
	_ = after.Release()
	// Output:
	// to be repaired: true
	// to be repaired: false
}

func ExampleLease_Wanted() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close()
	ctx := context.Background()
	lease, _ := locks.Mutex("k", &hasp.LockOptions{TTL: 300 * time.Millisecond}).Lock(ctx)
	done := make(chan error)
	go func() {
		next, err := locks.Mutex("k", nil).Lock(ctx)
		if err == nil {
			err = next.Release()
		}
		done <- err
	}()
	for wanted := false; !wanted; { // work in pieces for as long as nobody waits
		select {
		case <-time.After(time.Millisecond):
		case <-lease.Wanted():
			wanted = true
		case <-lease.Done(): // lost
			wanted = true
		}
	}
	_ = lease.Release()
	fmt.Println(<-done)
	// Output: <nil>
}

func ExampleElection() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close()
	ctx := context.Background()
	scheduler := locks.Election("scheduler", nil)

	leader, _ := scheduler.Lock(ctx) // waits until it leads
	_, err := scheduler.TryLock(ctx)
	fmt.Println("one leads at a time:", errors.Is(err, hasp.ErrHeld))
	_ = leader.Release() // resigns
	next, _ := scheduler.TryLock(ctx)
	fmt.Println("a later leader has a larger fence:", next.Fence() > leader.Fence())
	_ = next.Release()
	// Output:
	// one leads at a time: true
	// a later leader has a larger fence: true
}

func ExampleLeases() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close()
	ctx := context.Background()
	held, _ := locks.Mutex("account/7", nil).Lock(ctx)
	both := hasp.Locks{locks.Mutex("account/3", nil), locks.Mutex("account/7", nil)}
	_, err := both.TryLock(ctx)
	fmt.Println("all or none:", errors.Is(err, hasp.ErrHeld))
	_ = held.Release()

	accounts, _ := both.TryLock(ctx)
	fmt.Println(len(accounts.All()), accounts.Err(), accounts.Release())
	// Output:
	// all or none: true
	// 2 <nil> <nil>
}
