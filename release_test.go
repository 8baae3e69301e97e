// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
)

// A lease that was lost since the store's client was closed under it is no lease of a closed client: Release is sent to the store.
func TestReleaseOfALeaseLostToAClosedPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var end driver.End
		d := &hooked{Driver: newStore()}
		d.renew = failRenew(fmt.Errorf("the pool: %w", driver.ErrClosed))
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			end = r.End
			return next(ctx, r)
		}
		lease := lock(t, newClient(t, d, nil), "k", nil)
		time.Sleep(hasp.DefaultTTL)
		wantIs(t, lease.Release(), hasp.ErrLost)
		if d.releases.Load() != 1 || end != driver.EndUnfinished {
			t.Errorf("the store was told %d times, of the end %d", d.releases.Load(), end)
		}
	})
}

// Promise 5, failure case 12: Release needs no live context.
func TestReleaseAfterCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		ctx, cancel := context.WithCancel(t.Context())
		lease, err := newClient(t, store, nil).Mutex("k", nil).Lock(ctx)
		need(t, err)
		cancel()
		need(t, lease.Release())
		mustBeFree(t, store, "k")
	})
}

// Promise 5: Release has its own time limit. It says what the store did last, if that was not silence, and for how long the key stays.
func TestReleaseInAnOutage(t *testing.T) {
	for want, c := range map[string]struct{ ttl, refused time.Duration }{
		"and keeps the key until its TTL of 30s is over: the store did not answer within 5s": {30 * time.Second, 0},
		"and keeps the key until its TTL of 30s is over: connection refused":                 {30 * time.Second, 2 * time.Second},
		"but the lease's TTL of 2s is over: connection refused":                              {2 * time.Second, 2 * time.Second},
	} {
		bubbled(t, want, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			lease := lock(t, newClient(t, d, nil), "k", &hasp.LockOptions{TTL: c.ttl})
			start := time.Now()
			d.release = func(ctx context.Context, _ driver.ReleaseRequest, _ releaseFunc) error {
				if time.Since(start) < c.refused {
					return errDown
				}
				<-ctx.Done()
				return ctx.Err()
			}
			err := lease.Release()
			stopIf(t, err == nil || time.Since(start) > 6*time.Second, "%v after %v", err, time.Since(start))
			failIf(t, !strings.HasSuffix(err.Error(), want), "%v", err)
		})
	}
}

// In an outage a Do whose lease is lost returns at once, and Close waits for that lease no longer than for an answer. A store that is back
// is told all the same: in the background, or by Close.
func TestOutageDelaysNoExit(t *testing.T) {
	for name, c := range map[string]struct{ back, pause, closes time.Duration }{
		"Close after the loss":              {time.Hour, 0, hasp.Moment},
		"Close when it was tried for 5 s":   {time.Hour, 5 * time.Second, hasp.Moment},
		"the store is back before Close":    {3 * time.Second, 7 * time.Second, 0},
		"the store is back with Close only": {6*time.Second - 1, 6 * time.Second, hasp.Moment},
	} {
		bubbled(t, name, func(t *testing.T) {
			var back atomic.Bool
			var told atomic.Int64
			d := &hooked{Driver: newStore(), renew: hangRenew}
			d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
				if !back.Load() { // a request of the outage is never answered
					<-ctx.Done()
					return ctx.Err()
				}
				told.Add(1)
				return next(ctx, r)
			}
			client := newClient(t, d, nil)
			var lost time.Time
			wantIs(t, client.Mutex("k", &hasp.LockOptions{TTL: 3 * time.Second}).Do(t.Context(), func(ctx context.Context, _ *hasp.Lease) error {
				<-ctx.Done()
				lost = time.Now()
				return nil
			}), hasp.ErrLost)
			failIf(t, time.Since(lost) > hasp.Moment, "Do returned %v after the loss", time.Since(lost))
			time.AfterFunc(c.back, func() { back.Store(true) })
			time.Sleep(c.pause)
			start := time.Now()
			check(t, client.Close())
			failIf(t, time.Since(start) > c.closes, "Close took %v", time.Since(start))
			failIf(t, (told.Load() == 1) != back.Load(), "the store was told %d times", told.Load())
		})
	}
}

// A lost Release request is not sent again.
func TestLostReleaseRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := hookedMem()
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			if d.releases.Load() == 1 { // the packet is lost
				<-ctx.Done()
				return ctx.Err()
			}
			return next(ctx, r)
		}
		l := lock(t, newClient(t, d, nil), "k", nil)
		release(t, l)
		mustBeFree(t, store, "k")
	})
}

// With ReleaseBehind Release waits for no answer; the observer is told of it. The client's next acquisition of the key, and Close, wait.
func TestReleaseBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := hookedMem()
		answer, told := make(chan error), make(chan error, 2)
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			if r.Key == "k" {
				if err := <-answer; err != nil {
					return err
				}
			}
			return next(ctx, r)
		}
		c := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Released {
				told <- e.Err
			}
		}})
		m := c.Mutex("k", &hasp.LockOptions{ReleaseBehind: true})
		lease, err := m.Lock(t.Context())
		need(t, err)
		need(t, lease.Release())
		need(t, lease.Release())
		tries, second := d.tries.Load(), make(chan *hasp.Lease, 1)
		go func() {
			l, err := m.TryLock(t.Context())
			check(t, err)
			second <- l
		}()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = m.Lock(short)
		wantIs(t, err, context.DeadlineExceeded)
		lock(t, c, "other", nil)
		stopIf(t, d.tries.Load() != tries+1, "%d Tries, beside that of another key", d.tries.Load()-tries-1)
		answer <- nil
		lease = <-second
		check(t, <-told)
		need(t, lease.Release())
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		stopIf(t, len(closed) > 0, "Close did not wait")
		answer <- errDown
		answer <- nil // to the second request
		check(t, <-told)
		check(t, <-closed)
		mustBeFree(t, store, "k")
	})
}

// A release behind its caller is over before the observer is told of it, which may take the key again; the next turn of a cohort begins
// after it. Of a function of Do that panics the key is released before the panic goes on.
func TestReleaseBehindIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := hookedMem()
		var c *hasp.Client
		again := make(chan error, 1)
		c = newClient(t, d, &hasp.Options{Observe: func(ctx context.Context, e *event.Event) {
			if e.Kind == event.Released && e.Key == "k" && len(again) == 0 {
				l, err := c.Mutex("k", nil).TryLock(t.Context())
				if again <- err; err == nil {
					_ = l.Release()
				}
			}
		}})
		need(t, lock(t, c, "k", &hasp.LockOptions{ReleaseBehind: true}).Release())
		need(t, <-again)

		m, second := c.Mutex("turns", &hasp.LockOptions{ReleaseBehind: true, Cohort: time.Second}), make(chan *hasp.Lease, 1)
		lease, err := m.Lock(t.Context())
		need(t, err)
		go func() {
			l, err := m.Lock(t.Context())
			check(t, err)
			second <- l
		}()
		synctest.Wait()
		tries, answer := d.tries.Load(), make(chan struct{})
		d.onRelease(func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			<-answer
			return next(ctx, r)
		})
		need(t, lease.Release())
		synctest.Wait()
		stopIf(t, d.tries.Load() != tries, "%d Tries beside the release", d.tries.Load()-tries)
		close(answer)
		need(t, (<-second).Release())
		synctest.Wait()

		before := d.releases.Load()
		defer func() {
			stopIf(t, recover() == nil || d.releases.Load() == before, "the panic came before the release")
		}()
		_ = c.Mutex("job", &hasp.LockOptions{ReleaseBehind: true}).Do(t.Context(), func(context.Context, *hasp.Lease) error { panic("x") })
	})
}

// What Close could not release is in its error, also where no caller waited for that.
func TestCloseSaysWhatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := hookedMem()
		c := newClient(t, d, nil)
		lease := lock(t, c, "k", &hasp.LockOptions{ReleaseBehind: true})
		d.onRelease(func(ctx context.Context, _ driver.ReleaseRequest, _ releaseFunc) error {
			<-ctx.Done()
			return ctx.Err()
		})
		need(t, lease.Release())
		if err := c.Close(); err == nil || !strings.Contains(err.Error(), `"k"`) {
			t.Errorf("Close says %v", err)
		}
	})
}

// Events after event.Released.
func TestEventAfterReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
			next(ctx, rs, func(i int, r driver.Renewal) {
				time.Sleep(2 * time.Second)
				done(i, r)
			})
		}
		var mu sync.Mutex
		var kinds []string
		c := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			mu.Lock()
			defer mu.Unlock()
			kinds = append(kinds, e.Kind.String())
		}})
		l := lock(t, c, "k", nil)
		time.Sleep(11 * time.Second)
		_ = l.Release()
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(kinds, " "); !strings.HasSuffix(got, "released") {
			t.Error(got)
		}
	})
}

// Close does not wait for a Release under way, and aborts it.
func TestCloseAbortsReleaseUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		var closedDuring atomic.Bool
		var inRelease atomic.Int64
		d := &closing{hooked: &hooked{Driver: store}}
		d.onClose = func() {
			if inRelease.Load() > 0 {
				closedDuring.Store(true)
			}
		}
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			inRelease.Add(1)
			defer inRelease.Add(-1)
			select { // a round trip of 100 ms
			case <-time.After(100 * time.Millisecond):
				return next(ctx, r)
			case <-ctx.Done():
				time.Sleep(time.Millisecond)
				return ctx.Err()
			}
		}
		c, _ := hasp.New(d, nil)
		l := lock(t, c, "k", nil)
		got := make(chan error, 1)
		go func() { got <- l.Release() }()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-got; err != nil {
			t.Errorf("Release: %v", err)
		}
		failIf(t, closedDuring.Load(), "driver.Close was called while a Release was under way")
		mustBeFree(t, store, "k")
	})
}

type closing struct {
	*hooked
	onClose func()
}

func (d *closing) Close() error { d.onClose(); return nil }

// Release during Close: spurious ErrLost from Close.
func TestReleaseDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			time.Sleep(100 * time.Millisecond)
			return next(ctx, r)
		}
		c, _ := hasp.New(d, nil)
		var ls []*hasp.Lease
		for i := range 64 {
			ls = append(ls, lock(t, c, fmt.Sprint(i), nil))
		}
		got := make(chan error, 1)
		go func() { got <- c.Close() }()
		synctest.Wait()
		for _, l := range ls {
			go func() { _ = l.Release() }()
		}
		if err := <-got; err != nil {
			t.Errorf("Close: %.200v", err)
		}
		synctest.Wait()
	})
}

// settledness is a driver that notes what the latest Release said, and loses the answers to Try while the test wants it.
func settledness(t *testing.T) (c *hasp.Client, loses *atomic.Bool, said func() bool) {
	t.Helper()
	loses = new(atomic.Bool)
	releases := make(chan bool, 16)
	d := &hooked{Driver: newStore()}
	d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
		res, err := next(ctx, r)
		if loses.Load() {
			return driver.Result{}, errDown
		}
		return res, err
	}
	d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
		err := next(ctx, r)
		releases <- r.Settled
		return err
	}
	return newClient(t, d, nil), loses, func() bool { return <-releases }
}

// A Release is settled when every Try of its owner was answered, and only then: without a tombstone a Try that is still under way would
// have the key for nobody.
func TestReleaseIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, loses, said := settledness(t)
		release(t, lock(t, c, "answered", nil))
		failIf(t, !said(), "each Try was answered, but the Release is not settled")

		loses.Store(true)
		time.AfterFunc(time.Second, func() { loses.Store(false) })
		release(t, lock(t, c, "one answer was lost", nil))
		failIf(t, said(), "a Try had no answer, but the Release is settled")

		loses.Store(true)
		_, err := c.Mutex("no answer", nil).TryLock(t.Context())
		failIf(t, err == nil, "TryLock succeeded without an answer")
		failIf(t, said(), "the Try had no answer, but what cleans up is settled")
	})
}

// Nor is it where the engine sent a Try twice, whatever came of that: the first may come late. Nor does such a waiter enter, or
// say again that it does.
func TestReleaseAfterATryThatWasSentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHander(newStore())
		try := d.try
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := try(ctx, r, next)
			res.Unsettled = true
			return res, err
		}
		held, lease, c, _ := d.waits(t, mutex(nil))
		failIf(t, lease.Fence() <= held.Fence(), "fence %d after %d", lease.Fence(), held.Fence())
		if got := d.counts(); got != [3]int{2, 0, 0} || d.sent[len(d.sent)-1].Enters {
			t.Errorf("it entered, or said that it does: %v requests, %+v", got, d.sent)
		}
		_, err := c.Mutex("k", nil).TryLock(t.Context())
		wantIs(t, err, hasp.ErrHeld)
		release(t, lease)
		synctest.Wait()
		failIf(t, len(d.ends) != 2, "%d releases, want one behind the TryLock, and the lease's", len(d.ends))
		for _, r := range d.ends {
			failIf(t, r.Settled, "a Try was sent twice, but this is settled: %+v", r)
		}
	})
}

// A Try that comes late, after the lease and before its Release, may take over the
// mark of somebody else. The Release does not clear it, whoever had its turns.
func TestReleaseClearsNoMarkOfALateTry(t *testing.T) {
	for name, use := range map[string]func(*testing.T, *hasp.Client){
		"a lease": func(t *testing.T, c *hasp.Client) { release(t, lock(t, c, "k", nil)) },
		"turns": func(t *testing.T, c *hasp.Client) {
			m := c.Mutex("k", &hasp.LockOptions{Keep: time.Second})
			release(t, must(m.Lock(t.Context())))
			release(t, must(m.Lock(t.Context())))
			time.Sleep(3 * hasp.DefaultTTL) // it is given back, and that takes as long as below
		},
		"a slot": func(t *testing.T, c *hasp.Client) {
			release(t, must(c.Semaphore("k", 1, nil).Lock(t.Context())))
		},
	} {
		bubbled(t, name, func(t *testing.T) {
			store, d := hookedMem()
			var late func() driver.Result
			d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
				if late == nil {
					late = func() driver.Result { return must(next(t.Context(), r)) }
					return driver.Result{}, errDown
				}
				return next(ctx, r)
			}
			d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
				time.Sleep(2 * hasp.DefaultTTL)
				abandon(t, newClient(t, store, nil), nil)
				res := late()
				failIf(t, !res.Granted || !res.Abandoned, "the late Try: %+v", res)
				return next(context.WithoutCancel(ctx), r)
			}
			use(t, newClient(t, d, nil))
			failIf(t, !lock(t, newClient(t, store, nil), "k", nil).Abandoned(), "the mark is lost")
		})
	}
}

// One that was told of the mark clears it, also when a Try had no answer.
func TestReleaseClearsTheMarkThatItsHolderSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, lost := newStore(), false
		abandon(t, newClient(t, store, nil), nil)
		c := newClient(t, &hooked{Driver: store, try: func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			if !lost {
				lost = true
				return driver.Result{}, errDown
			}
			return next(ctx, r)
		}}, nil)
		m := c.Mutex("k", &hasp.LockOptions{Keep: time.Second})
		for _, want := range []bool{true, false} {
			l := must(m.Lock(t.Context()))
			failIf(t, l.Abandoned() != want, "abandoned: %v", l.Abandoned())
			release(t, l)
		}
		time.Sleep(2 * time.Second) // it is given back
		failIf(t, lock(t, c, "k", nil).Abandoned(), "the mark is still there")
	})
}

// The same of waits that end without the key.
func TestGivingUpIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, loses, said := settledness(t)
		holder := lock(t, c, "k", nil)
		wait := func(during func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				_, err := c.Mutex("k", nil).Lock(ctx)
				done <- err
			}()
			synctest.Wait()
			during()
			cancel()
			wantIs(t, <-done, context.Canceled, hasp.ErrHeld)
		}
		wait(func() {})
		failIf(t, !said(), "each Try was answered, but giving up is not settled")
		loses.Store(true)
		wait(func() {
			loses.Store(false)
			time.Sleep(time.Second) // it is refused, and that is answered
		})
		failIf(t, said(), "a Try had no answer, but giving up is settled")
		release(t, holder)
	})
}
