// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package haspprom_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/memdriver"
	haspprom "github.com/hasplock/hasp/telemetry/prometheus"
)

// open returns a client of the store that tells all observers.
func open(t testing.TB, store *memdriver.Store, observers ...func(context.Context, *event.Event)) *hasp.Client {
	t.Helper()
	c, err := hasp.New(store, &hasp.Options{Observe: event.Observers(observers...)})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func wantGauges(t *testing.T, c *haspprom.Collector, class string, held, waiters float64) {
	t.Helper()
	all := gather(t, c)
	if h, w := all["held{memory,"+class+"}"], all["waiters{memory,"+class+"}"]; h != held || w != waiters {
		t.Errorf("%s: %v leases are held and %v calls wait, want %v and %v", class, h, w, held, waiters)
	}
}

// Clients of one store do everything at once that takes, waits for, passes on, loses and
// gives back keys. When they are done nothing is held and nobody waits, and every call and
// lease was counted once.
func TestGaugesAreExact(t *testing.T) {
	const clients, workers, rounds = 3, 6, 60
	store, metrics := memdriver.New(), haspprom.New(nil)
	var all sync.WaitGroup
	for range clients {
		locks := open(t, store, metrics.Observe)
		for range workers {
			all.Go(func() {
				for range rounds {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(5000))*time.Microsecond)
					if err := use(ctx, locks, rand.IntN(ways)); err != nil {
						t.Error(err)
					}
					cancel()
				}
				for way := range ways { // whatever the machine has time for, each of them once
					if err := use(t.Context(), locks, way); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	got := gather(t, metrics)
	for _, class := range []string{"job", "turn", "pair", "slot", "loss"} {
		wantGauges(t, metrics, class, 0, 0)
		id := "{memory," + class
		if acquired, ended := got["wait_seconds.count"+id+",acquired}"], got["held_seconds.count"+id+"}"]; acquired != ended || acquired == 0 {
			t.Errorf("%s: %v leases began and %v ended", class, acquired, ended)
		}
	}
	if broken, lost := got["wait_seconds.count{memory,loss,acquired}"], got["losses_total{memory,loss}"]; broken != lost {
		t.Errorf("%v leases were broken and %v lost", broken, lost)
	}
}

const ways = 5

// use takes a key in one of the ways that there are, and gives it back.
func use(ctx context.Context, locks *hasp.Client, way int) error {
	var err error
	switch way {
	case 0:
		err = take(ctx, locks.Mutex("job:1", nil))
	case 1:
		err = take(ctx, locks.Mutex("turn:1", &hasp.LockOptions{Cohort: time.Second}))
	case 2:
		err = take(ctx, locks.Semaphore("slot:1", 2, nil))
	case 3:
		all, failed := (hasp.Locks{locks.Mutex("pair:1", nil), locks.Mutex("pair:2", nil), locks.Mutex("pair:3", nil)}).Lock(ctx)
		if err = failed; err == nil {
			err = all.Release()
		}
	default:
		lease, failed := locks.Mutex("loss:1", nil).Lock(ctx)
		if err = failed; err == nil {
			err = errors.Join(locks.Operator().Break(context.Background(), lease.Key(), lease.Owner()), lease.Release())
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, hasp.ErrHeld) || errors.Is(err, hasp.ErrLost) {
		return nil
	}
	return err
}

func take(ctx context.Context, l hasp.Locker) error {
	lease, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	return lease.Release()
}

// While leases are held and calls wait, the gauges say how many; whatever Close ends, and
// leases that expire, they count no more.
func TestGaugesOfHoldersAndWaiters(t *testing.T) {
	store, metrics := memdriver.New(), haspprom.New(nil)
	waits, lost := make(chan string, 100), make(chan string, 100)
	locks := open(t, store, metrics.Observe, func(_ context.Context, e *event.Event) {
		switch {
		case e.WaiterDelta > 0:
			waits <- e.Key
		case e.Kind == event.Lost:
			lost <- e.Key
		}
	})
	lock := func(l hasp.Locker) *hasp.Lease {
		t.Helper()
		lease, err := l.Lock(t.Context())
		must(t, err)
		return lease
	}
	m, s := locks.Mutex("order:1", &hasp.LockOptions{Cohort: time.Minute}), locks.Semaphore("slot:1", 2, nil)
	first := lock(m)
	lock(s)
	lock(s)
	var calls sync.WaitGroup
	got := make(chan *hasp.Lease, 10)
	for range 3 {
		for _, l := range []hasp.Locker{m, s} {
			calls.Go(func() {
				lease, err := l.Lock(t.Context())
				if err != nil && !errors.Is(err, hasp.ErrClosed) {
					t.Error(err)
				}
				got <- lease
			})
			<-waits
		}
	}
	wantGauges(t, metrics, "order", 1, 3)
	wantGauges(t, metrics, "slot", 2, 3)
	if err := first.Release(); err != nil {
		t.Error(err)
	}
	if (<-got).Key() != "order:1" {
		t.Error("somebody else came")
	}
	wantGauges(t, metrics, "order", 1, 2)
	for i := range 3 { // their time is over before anybody releases them
		lock(locks.Mutex(fmt.Sprint("brief:", i), &hasp.LockOptions{MaxHold: 50 * time.Millisecond}))
	}
	for range 3 {
		<-lost
	}
	wantGauges(t, metrics, "brief", 0, 0)
	if err := locks.Close(); err != nil {
		t.Error(err)
	}
	calls.Wait()
	for _, class := range []string{"order", "slot"} {
		wantGauges(t, metrics, class, 0, 0)
	}
}
