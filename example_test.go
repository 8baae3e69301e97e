// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/memdriver"
)

func Example() {
	// Put redisdriver.New(rdb, nil) in place of memdriver.New() for Redis.
	locks, err := hasp.New(memdriver.New(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	err = locks.Mutex("orders/42", nil).Do(context.Background(), func(ctx context.Context, lease *hasp.Lease) error {
		// ctx ends before the lease can be lost; the fence lets storage refuse a late write.
		fmt.Println("holding:", lease.Key(), "fenced:", lease.Fence() > 0)
		return ctx.Err()
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: holding: orders/42 fenced: true
}

func ExampleMutex_TryLock() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close()
	orders := locks.Mutex("orders/42", &hasp.LockOptions{Reason: "nightly report"})

	lease, err := orders.TryLock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release()

	_, err = orders.TryLock(context.Background())
	var held *hasp.HeldError
	if errors.As(err, &held) {
		fmt.Println("busy:", held.Holder.Describe().Reason)
	}
	// Output: busy: nightly report
}

func ExampleMutex_Do() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close()
	err := locks.Mutex("orders/42", nil).Do(context.Background(), func(ctx context.Context, lease *hasp.Lease) error {
		fmt.Println("held until this function returns, unless", "ctx ends:", ctx.Err())
		return nil
	})
	fmt.Println(err)
	// Output:
	// held until this function returns, unless ctx ends: <nil>
	// <nil>
}

func ExampleLease_Context() {
	store := memdriver.New()
	locks, _ := hasp.New(store, nil)
	defer locks.Close()
	lease, _ := locks.Mutex("k", nil).Lock(context.Background())
	defer lease.Release()

	ctx := lease.Context(context.Background())
	store.Lose("k")                                        // in a test: another owner's lease from here on
	_ = lease.Extend(context.Background(), 30*time.Second) // says so, or the next renewal does
	<-ctx.Done()
	fmt.Println(errors.Is(context.Cause(ctx), hasp.ErrLost))
	// Output: true
}

func ExampleLease_Err() {
	store := memdriver.New()
	locks, _ := hasp.New(store, nil)
	defer locks.Close()
	save := func(ctx context.Context, fence uint64) error {
		store.Lose("orders/42") // in a test: another owner's lease from here on
		<-ctx.Done()
		return ctx.Err()
	}
	err := func(ctx context.Context) error {
		lease, err := locks.Mutex("orders/42", &hasp.LockOptions{TTL: 100 * time.Millisecond}).Lock(ctx)
		if err != nil {
			return err
		}
		defer lease.Release()
		err = save(lease.Context(ctx), lease.Fence())
		return errors.Join(err, lease.Err()) // ErrLost, if it was lost
	}(context.Background())
	fmt.Println(errors.Is(err, context.Canceled), errors.Is(err, hasp.ErrLost))
	// Output: true true
}

func ExampleOperator_Break() {
	store := memdriver.New()
	locks, _ := hasp.New(store, nil)
	defer locks.Close()
	ctx := context.Background()
	lease, _ := locks.Mutex("stuck", nil).Lock(ctx)

	info, _ := locks.Operator().Inspect(ctx, "stuck")
	fmt.Println("held:", info.Held, "by", info.Holder.Owner == lease.Owner())
	fmt.Println("broken:", locks.Operator().Break(ctx, "stuck", info.Holder.Owner))
	fmt.Println("late release:", errors.Is(lease.Release(), hasp.ErrLost))
	// Output:
	// held: true by true
	// broken: <nil>
	// late release: true
}

func ExampleOptions() {
	locks, _ := hasp.New(memdriver.New(), &hasp.Options{
		Observe: func(_ context.Context, e *event.Event) { fmt.Println(e.Kind, e.Key) },
	})
	defer locks.Close()
	lease, _ := locks.Mutex("k", nil).Lock(context.Background())
	_ = lease.Release()
	// Output:
	// acquired k
	// released k
}

func ExampleHeldError() {
	ctx := context.Background()
	wait, giveUp := context.WithCancel(ctx)
	locks, _ := hasp.New(memdriver.New(), &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
		if e.Kind == event.Waiting {
			giveUp()
		}
	}})
	defer locks.Close()
	lease, _ := locks.Mutex("k", nil).Lock(ctx)
	defer lease.Release()

	_, err := locks.Mutex("k", nil).Lock(wait)
	fmt.Println(errors.Is(err, context.Canceled), errors.Is(err, hasp.ErrHeld))
	// Output: true true
}

func ExampleClient() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close() // ends waits and renewal, and releases what is held
	ctx := context.Background()
	for _, key := range []string{"orders/1", "orders/2", "users/1"} {
		lease, _ := locks.Mutex(key, nil).Lock(ctx)
		defer lease.Release()
	}
	n := 0
	for info, err := range locks.Operator().List(ctx, "orders/") {
		if err == nil && info.Held {
			n++
		}
	}
	fmt.Println("held below orders/:", n)
	// Output: held below orders/: 2
}

func ExampleMutex() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close()
	wait, cancel := context.WithTimeout(context.Background(), time.Minute) // bounds the wait, not the hold
	lease, err := locks.Mutex("orders/42", nil).Lock(wait)
	cancel()
	fmt.Println(err, lease.Err()) // still held
	fmt.Println(lease.Release(), errors.Is(lease.Err(), hasp.ErrNotHeld))
	// Output:
	// <nil> <nil>
	// <nil> true
}

func ExampleLease() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close()
	ctx := context.Background()
	first, _ := locks.Mutex("orders/42", nil).Lock(ctx)
	_ = first.Release()
	second, _ := locks.Mutex("orders/42", &hasp.LockOptions{TTL: time.Hour}).Lock(ctx)
	defer second.Release()
	fmt.Println("a later holder has a larger fence:", second.Fence() > first.Fence())
	fmt.Println("good for a while:", time.Until(second.Deadline()) > 30*time.Minute)
	// Output:
	// a later holder has a larger fence: true
	// good for a while: true
}

func ExampleLockOptions() {
	locks, _ := hasp.New(memdriver.New(), nil)
	defer locks.Close()
	nightly := locks.Mutex("nightly", &hasp.LockOptions{
		TTL:     time.Minute,      // others wait so long when this process dies
		MaxHold: time.Hour,        // a job that hangs loses the key then
		Lead:    10 * time.Second, // its context ends so long before the lease does
		Reason:  "nightly report", // shown to those who wait
	})
	lease, err := nightly.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release()
	fmt.Println(lease.Key())
	// Output: nightly
}

func ExampleError() {
	store := memdriver.New()
	locks, _ := hasp.New(store, nil)
	defer locks.Close()
	store.SetUnreachable(true)
	_, err := locks.Mutex("orders/42", nil).TryLock(context.Background())
	store.SetUnreachable(false) // or Close spends its 5 seconds on cleaning up
	var trouble *hasp.Error
	if errors.As(err, &trouble) {
		fmt.Println(trouble.Op, trouble.Key, trouble.Engine, trouble.Class == driver.ClassUnreachable)
	}
	// Output: try lock orders/42 memory true
}

func ExampleEvent() {
	waiting := make(chan event.Event, 1)
	locks, _ := hasp.New(memdriver.New(), &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
		if e.Kind == event.Waiting {
			waiting <- *e
		}
	}})
	defer locks.Close()
	ctx := context.Background()
	held, _ := locks.Mutex("k", &hasp.LockOptions{Reason: "nightly report"}).Lock(ctx)
	go func() {
		e := <-waiting // who is in the way
		fmt.Println("waiting for:", e.Holder.Describe().Reason)
		_ = held.Release()
	}()
	lease, _ := locks.Mutex("k", nil).Lock(ctx)
	_ = lease.Release()
	// Output: waiting for: nightly report
}

func ExampleLogTo() {
	// A program would pass slog.Default(). This one leaves out what differs from run to run.
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case "level", "msg", "event", "engine", "key":
			return a
		}
		return slog.Attr{}
	}}))
	store := memdriver.New()
	locks, _ := hasp.New(store, &hasp.Options{Observe: event.LogTo(logger)})
	defer locks.Close()
	lease, _ := locks.Mutex("orders/42", nil).Lock(context.Background())
	store.Lose("orders/42")                                // in a test: another owner's lease from here on
	_ = lease.Extend(context.Background(), 30*time.Second) // says so, or the next renewal does
	<-lease.Done()
	// Output: level=ERROR msg="lock lost" event=lost engine=memory key=orders/42
}
