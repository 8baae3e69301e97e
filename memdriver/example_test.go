// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

// charge stands for code that must stop when it loses its lock.
func charge(ctx context.Context, locks *hasp.Client, step func()) error {
	lease, err := locks.Mutex("orders/42", &hasp.LockOptions{TTL: 300 * time.Millisecond}).TryLock(ctx)
	if err != nil {
		return err
	}
	defer lease.Release()
	ctx = lease.Context(ctx)
	step()
	<-ctx.Done() // the work, which continues for as long as it may
	return context.Cause(ctx)
}

// Code that uses hasp is tested on a Store: what is rare with a real one
// happens on demand. In a test of yours, testing/synctest makes the time that
// passes here free.
func Example() {
	store := memdriver.New()
	locks, err := hasp.New(store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	ctx := context.Background()

	// Contention: somebody else holds the key.
	release := store.Hold("orders/42", time.Minute, driver.Label{Host: "web-3", PID: 4121})
	var held *hasp.HeldError
	if err := charge(ctx, locks, nil); errors.As(err, &held) {
		fmt.Println("held by", held.Holder)
	}
	release()

	// Loss: the store says that another owner, or none, holds the key.
	err = charge(ctx, locks, func() { store.Lose("orders/42") })
	fmt.Println("lost:", errors.Is(err, hasp.ErrLost))

	// An outage: the store cannot be reached.
	store.SetUnreachable(true)
	var failed *hasp.Error
	if err := charge(ctx, locks, nil); errors.As(err, &failed) {
		fmt.Println("unreachable:", failed.Class == driver.ClassUnreachable)
	}
	store.SetUnreachable(false)

	// Output:
	// held by web-3 (pid 4121)
	// lost: true
	// unreachable: true
}
