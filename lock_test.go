// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/memdriver"
)

// Failure case 4 and 29: bad input never reaches the store.
func TestBadInput(t *testing.T) {
	d, c := newHooked(t)
	for name, m := range map[string]*hasp.Mutex{
		"empty key":         c.Mutex("", nil),
		"513 bytes":         c.Mutex(strings.Repeat("k", 513), nil),
		"negative TTL":      c.Mutex("k", &hasp.LockOptions{TTL: -1}),
		"TTL too small":     c.Mutex("k", &hasp.LockOptions{TTL: d.Traits().MinTTL - 1}),
		"negative lead":     c.Mutex("k", &hasp.LockOptions{Lead: -1}),
		"lead over the TTL": c.Mutex("k", &hasp.LockOptions{Lead: ttl}),
		"negative MaxHold":  c.Mutex("k", &hasp.LockOptions{MaxHold: -1}),
	} {
		if _, err := m.Lock(t.Context()); !isMistake(err) || !strings.HasPrefix(err.Error(), "hasp: lock ") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := m.TryLock(t.Context()); !isMistake(err) {
			t.Errorf("%s: TryLock: %v", name, err)
		}
	}
	_, err := c.Operator().Inspect(t.Context(), "")
	failIf(t, !isMistake(err), "Inspect: %v", err)
	err = c.Operator().Break(t.Context(), "", "O")
	failIf(t, !isMistake(err), "Break: %v", err)
	failIf(t, d.tries.Load() != 0, "%d requests reached the store", d.tries.Load())
	for _, key := range []string{"a\x00b", "a\nb", "{", "}", "{}", "a{b}c", "\xff\xfe", strings.Repeat("k", 512)} {
		lease := lock(t, c, key, nil)
		if err := lease.Release(); err != nil {
			t.Errorf("%q: %v", key, err)
		}
		mustBeFree(t, d, key)
	}
}

// Failure case 25: one options value serves any number of locks.
func TestOptionsAreShared(t *testing.T) {
	c := newClient(t, newStore(), nil)
	o := &hasp.LockOptions{Reason: "shared"}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			lease, err := c.Mutex("k", o).Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			release(t, lease)
		})
	}
	wg.Wait()
	failIf(t, *o != (hasp.LockOptions{Reason: "shared"}), "the options were changed: %+v", *o)
}

// A handle can be overwritten: the leases that it gave, and its read side, stay as they were.
func TestHandleIsOverwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		m, rw := *c.Mutex("k", nil), *c.RWMutex("rw", nil)
		lease, reader := must(m.Lock(t.Context())), rw.RLocker()
		m, rw = *c.Mutex("other", &hasp.LockOptions{MaxHold: time.Second}), *c.RWMutex("another", nil)
		time.Sleep(time.Minute)
		failIf(t, lease.Err() != nil, "the lease has no MaxHold: %v", lease.Err())
		read := must(reader.Lock(t.Context()))
		failIf(t, read.Key() != "rw", "the read side has the key %q", read.Key())
		release(t, must(m.TryLock(t.Context())))
		release(t, must(rw.TryLock(t.Context())))
	})
}

// A Lock that waits goes on as it began when its handle becomes that of another client and other options.
func TestHandleIsOverwrittenWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting := make(chan struct{}, 1)
		c := newClient(t, newStore(), &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Waiting {
				waiting <- struct{}{}
			}
		}})
		first, m := lock(t, c, "k", nil), *c.Mutex("k", nil)
		got := make(chan *hasp.Lease)
		go func() { got <- must(m.Lock(t.Context())) }()
		<-waiting
		m = *newClient(t, newStore(), nil).Mutex("other", &hasp.LockOptions{MaxHold: time.Second})
		release(t, first)
		lease := <-got
		time.Sleep(time.Minute)
		failIf(t, lease.Key() != "k" || lease.Err() != nil, "of %q after a minute: %v", lease.Key(), lease.Err())
		release(t, lease)
	})
}

// What is wrong with a lock, or unsupported by the engine, is reported before the store is asked.
func TestFacesRefuseBeforeTheyAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newHooked(t)
		exclusive := newClient(t, &without{Driver: d}, nil)
		tr := d.Traits()
		tr.Slots, tr.Engine = false, "quorum"
		quorum := newClient(t, &without{d, tr}, nil)
		cohort := &hasp.LockOptions{Cohort: time.Second}
		for _, refused := range []struct {
			l           hasp.Locker
			want        string
			unsupported bool
		}{
			{c.RWMutex("k", cohort), "Cohort", false},
			{c.RWMutex("k", cohort).RLocker(), "Cohort", false},
			{c.Semaphore("k", 3, cohort), "Cohort", false},
			{c.Election("k", cohort), "Cohort", false},
			{c.Election("k", &hasp.LockOptions{Keep: time.Second}), "Keep", false},
			{c.Election("", cohort), "empty", false},
			{c.Semaphore("k", 0, nil), "0 slots", false},
			{c.Semaphore("k", -1, nil), "-1 slots", false},
			{c.RWMutex("", nil).RLocker(), "empty", false},
			{c.RWMutex("k", &hasp.LockOptions{TTL: -1}).RLocker(), "TTL", false},
			{exclusive.RWMutex("k", nil).RLocker(), "one holder at a time", true},
			{exclusive.Semaphore("k", 3, nil), "one holder at a time", true},
			{quorum.Semaphore("k", 3, nil), "counting votes would admit more than 3", true},
		} {
			for _, call := range []func(context.Context) (*hasp.Lease, error){refused.l.Lock, refused.l.TryLock} {
				_, err := call(t.Context())
				if !isMistake(err) || !strings.Contains(err.Error(), refused.want) || errors.Is(err, hasp.ErrUnsupported) != refused.unsupported {
					t.Errorf("the error is %v, want %q", err, refused.want)
				}
			}
		}
		failIf(t, d.tries.Load() != 0, "the store was asked %d times", d.tries.Load())
		release(t, must(exclusive.RWMutex("k", nil).Lock(t.Context()))) // to write needs nothing
		release(t, must(quorum.RWMutex("k", nil).RLock(t.Context())))
	})
}

// Failure case 9: Do releases after the function returned, and joins its error.
func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		ctx, cancel := context.WithCancel(t.Context())
		mine := errors.New("mine")
		err := c.Mutex("k", nil).Do(ctx, func(ctx context.Context, lease *hasp.Lease) error {
			cancel()
			<-ctx.Done()
			info, _ := store.Inspect(context.Background(), "k")
			failIf(t, !info.Held || info.Fence != lease.Fence(), "released while the function runs")
			return mine
		})
		if wantIs(t, err, mine); errors.Is(err, hasp.ErrLost) {
			t.Error(err)
		}
		mustBeFree(t, store, "k")

		err = c.Mutex("k", nil).Do(t.Context(), func(ctx context.Context, _ *hasp.Lease) error {
			store.Lose("k")
			<-ctx.Done()
			return nil
		})
		wantIs(t, err, hasp.ErrLost)

		stop := func(ctx context.Context) error {
			store.Lose("k")
			<-ctx.Done()
			return fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
		for _, err := range []error{
			c.Mutex("k", nil).Do(t.Context(), func(ctx context.Context, _ *hasp.Lease) error { return stop(ctx) }),
			mutexes(c, "k", "l").Do(t.Context(), func(ctx context.Context, _ *hasp.Leases) error { return stop(ctx) }),
		} {
			failIf(t, err == nil || strings.Count(err.Error(), hasp.ErrLost.Error()) != 1, "the loss is not said once: %v", err)
		}
	})
}

// TryLock does not wait for a turn in a cohort either.
func TestTryLockWithACohort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		lease := lock(t, c, "k", inCohort)
		start := time.Now()
		_, err := c.Mutex("k", inCohort).TryLock(t.Context())
		if wantIs(t, err, hasp.ErrHeld); time.Since(start) > 0 {
			t.Errorf("it waited for %v", time.Since(start))
		}
		release(t, lease)
		release(t, must(c.Mutex("k", inCohort).TryLock(t.Context())))
	})
}

// Do of a lease that was lost before its function began says so once.
func TestDoSaysOnceThatTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Acquired {
				time.Sleep(time.Minute) // as if the process stood still
			}
		}})
		err := c.Mutex("k", &hasp.LockOptions{TTL: time.Second, NoRenew: true}).Do(t.Context(), func(context.Context, *hasp.Lease) error {
			t.Error("the function ran")
			return nil
		})
		wantIs(t, err, hasp.ErrLost)
		if strings.Count(err.Error(), "lost") != 1 {
			t.Error(err)
		}
	})
}

// recorded is a store with a node record, which counts the clients that admit it.
type recorded struct {
	*memdriver.Store
	err    error // of Record
	admits int
}

func (d *recorded) Record(ctx context.Context) (voting.Record, error) {
	if d.err != nil {
		return voting.Record{Voting: true}, d.err
	}
	return d.Store.Record(ctx)
}

func (d *recorded) Admit(ctx context.Context, r voting.Record, maxTTL time.Duration) error {
	d.admits++
	return d.Store.Admit(ctx, r, maxTTL)
}

// Admit ends the wait of a store that is held back, and asks nothing of another.
func TestAdmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &recorded{Store: memdriver.NewNode(memdriver.NodeOptions{MaxTTL: time.Hour})}
		c := newClient(t, d, nil)
		m := c.Mutex("k", nil)
		_, err := m.TryLock(t.Context())
		wantIs(t, err, voting.ErrNotVoting)
		for range 2 {
			if err := c.Operator().Admit(t.Context()); err != nil || d.admits != 1 {
				t.Fatalf("%v, admitted %d times", err, d.admits)
			}
		}
		release(t, must(m.TryLock(t.Context())))

		d.Flush()
		d.err = errDown
		if wantIs(t, c.Operator().Admit(t.Context()), errDown); d.admits != 1 {
			t.Error("admitted without a record")
		}
		wantIs(t, newClient(t, newStore(), nil).Operator().Admit(t.Context()), hasp.ErrUnsupported)
		need(t, c.Close())
		wantIs(t, c.Operator().Admit(t.Context()), hasp.ErrClosed)
	})
}

// What a store that is held back refuses, and a TTL that is too long for it, is not asked twice at once.
func TestRefusedByTheStore(t *testing.T) {
	for _, c := range []struct {
		res   driver.Result
		class driver.Class
		is    error
	}{
		{driver.Result{Why: voting.NotVoting, Left: time.Minute}, driver.ClassUnreachable, voting.ErrNotVoting},
		{driver.Result{Why: voting.TTLTooLong, TTL: time.Second}, driver.ClassImpossible, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			d.try = func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) { return c.res, nil }
			_, err := newClient(t, d, nil).Mutex("k", nil).TryLock(t.Context())
			var e *hasp.Error
			if !errors.As(err, &e) || e.Class != c.class || d.tries.Load() != 1 {
				t.Fatalf("%v, asked %d times", err, d.tries.Load())
			}
			if c.is != nil {
				wantIs(t, err, c.is)
			}
		})
	}
}

// sentTwice is a store that has each Try which it refuses before it votes twice.
type sentTwice struct {
	recorded
	settled bool // the latest Release
}

func (d *sentTwice) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	res, err := d.Store.Try(ctx, r)
	res.Unsettled = res.Why == voting.NotVoting
	return res, err
}

func (d *sentTwice) Release(ctx context.Context, r driver.ReleaseRequest) error {
	d.settled = r.Settled
	return d.Store.Release(ctx, r)
}

// After the wait of a store that was held back, the first to ask is granted the key. A Try from before may come late.
func TestTheWaitIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &sentTwice{recorded: recorded{Store: memdriver.NewNode(memdriver.NodeOptions{MaxTTL: time.Minute})}}
		m := newClient(t, d, nil).Mutex("k", nil)
		_, err := m.TryLock(t.Context())
		wantIs(t, err, voting.ErrNotVoting)
		time.Sleep(2 * time.Minute)
		lease := must(m.TryLock(t.Context()))
		d.settled = true
		if release(t, lease); d.settled {
			t.Error("the Try before its admission was sent twice, but the Release is settled")
		}
	})
}
