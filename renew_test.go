// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/telemetry"
)

const usable = ttl - ttl/100 - 2*time.Millisecond // of a lease, from before the request

// Promise 1: validity is counted from before the request.
func TestDeadlineCountsFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			time.Sleep(2 * time.Second) // the reply is slow
			return res, err
		}
		start := time.Now()
		lease := lock(t, newClient(t, d, nil), "k", nil)
		got, want := lease.Deadline(), start.Add(usable)
		stopIf(t, !got.Equal(want), "the deadline is %v after the request began, want %v", got.Sub(start), usable)
	})
}

// Promise 1 holds for whatever prolongs a lease: its deadline counts from before the request, however slow the reply is.
func TestProlongedLeaseCountsFromBeforeTheRequest(t *testing.T) {
	const slow = 3 * time.Second
	for name, prolong := range map[string]func(t *testing.T, l *hasp.Lease) error{
		"renewal":   func(*testing.T, *hasp.Lease) error { time.Sleep(ttl / 2); return nil },
		"Extend":    func(t *testing.T, l *hasp.Lease) error { return l.Extend(t.Context(), ttl) },
		"Downgrade": func(t *testing.T, l *hasp.Lease) error { return l.Downgrade(t.Context()) },
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			lease := lock(t, newClient(t, d, nil), "k", nil)
			time.Sleep(time.Second)
			var began time.Time // of the request
			var calls int
			d.change(func() {
				d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
					began, calls = time.Now(), calls+1
					next(ctx, rs, func(i int, r driver.Renewal) { time.Sleep(slow); done(i, r) })
				}
				d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
					began, calls = time.Now(), calls+1
					res, err := next(ctx, r)
					time.Sleep(slow)
					return res, err
				}
			})
			if err := prolong(t, lease); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := lease.Deadline().Sub(began); calls != 1 || got != usable {
				t.Errorf("after %d slow replies to a %s the deadline is %v after the request began, want %v", calls, name, got, usable)
			}
		})
	}
}

// Promise 3: at TTL/3 the due leases go out together, and holding many costs no goroutine each.
func TestRenewalsGoOutTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newHooked(t)
		const n = 2000
		before := runtime.NumGoroutine()
		leases := make([]*hasp.Lease, n)
		for i := range leases {
			leases[i] = lock(t, c, "k"+strconv.Itoa(i), nil)
		}
		got := runtime.NumGoroutine() - before
		failIf(t, got > n/10, "%d leases cost %d goroutines", n, got)
		time.Sleep(3 * ttl)
		for _, l := range leases {
			need(t, l.Err())
		}
		if got := d.renews.Load(); got < 8 || got > 12 {
			t.Errorf("%d Renew calls for %d leases in 3 TTLs, want about 9", got, n)
		}
	})
}

// Failure case 23: one renewal that failed does not lose the lease, nor do two.
func TestFailedRenewalIsTriedAgain(t *testing.T) {
	for name, broken := range map[string]func(context.Context, []driver.RenewRequest, func(int, driver.Renewal), renewFunc){
		"error": func(_ context.Context, _ []driver.RenewRequest, done func(int, driver.Renewal), _ renewFunc) {
			done(0, driver.Renewal{Err: errDown})
		},
		"silence": hangRenew,
		"no report": func(context.Context, []driver.RenewRequest, func(int, driver.Renewal), renewFunc) {
		},
	} {
		bubbled(t, name, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
				if d.renews.Load() <= 2 {
					broken(ctx, rs, done, next)
					return
				}
				next(ctx, rs, done)
			}
			lease := lock(t, newClient(t, d, nil), "k", nil)
			time.Sleep(10 * ttl)
			need(t, lease.Err())
		})
	}
}

// A renewal that is refused with whatever class is asked for again until the deadline: a store that answers before it costs
// nothing, and one that does not costs the lease at the deadline, and not before.
func TestRefusedRenewalIsTriedAgain(t *testing.T) {
	const last = ttl / 8 // more than a pause between two renewals
	for _, c := range classes {
		for _, mended := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				d := newMoody(c.class)
				lease := lock(t, newClient(t, d, nil), "k", nil)
				deadline := lease.Deadline()
				d.refuses.Store(true)
				time.Sleep(time.Until(deadline) - last)
				if err := lease.Err(); err != nil {
					t.Fatalf("%s: lost %v before the deadline: %v", c.name, time.Until(deadline), err)
				}
				before := d.renews.Load()
				d.refuses.Store(!mended)
				time.Sleep(last - 1)
				if err := lease.Err(); err != nil || d.renews.Load() == before {
					t.Errorf("%s: %v, %d renewals in the last %v", c.name, err, d.renews.Load()-before, last)
				}
				if time.Sleep(10 * ttl); mended {
					failIf(t, lease.Err() != nil, "%s: mended before the deadline: %v", c.name, lease.Err())
					return
				}
				wantIs(t, lease.Err(), hasp.ErrLost, errDown)
			})
		}
	}
}

// Promise 3: each outcome counts by itself; a lease that is not reported does not decide about the others.
func TestRenewalsAreReportedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
			for i, r := range rs {
				if r.Key == "alive" {
					next(ctx, rs[i:i+1], func(_ int, a driver.Renewal) { done(i, a) })
				}
			}
			<-ctx.Done() // the rest hangs
		}
		c := newClient(t, d, nil)
		dead, alive := lock(t, c, "dead", nil), lock(t, c, "alive", nil)
		time.Sleep(5 * ttl)
		wantIs(t, dead.Err(), hasp.ErrLost)
		need(t, alive.Err())
	})
}

// A large Lead: lost before the first renewal.
func TestLargeLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		l := lock(t, c, "k", &hasp.LockOptions{Lead: 20 * time.Second})
		time.Sleep(5 * time.Minute)
		check(t, l.Err())
	})
}

// Engine's word is far below the TTL asked for, one failed renewal.
func TestEnginesWordIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		const word = 10 * time.Second
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			r.TTL = word
			return next(ctx, r)
		}
		var n atomic.Int64
		d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
			if n.Add(1) == 1 {
				done(0, driver.Renewal{Err: errDown})
				return
			}
			rs[0].TTL = word
			next(ctx, rs, done)
		}
		l := lock(t, newClient(t, d, nil), "k", &hasp.LockOptions{TTL: 10 * time.Minute})
		time.Sleep(time.Minute)
		failIf(t, l.Err() != nil, "after %d renewals: %v", n.Load(), l.Err())
	})
}

// Hung calls of long leases use up maxCalls.
func TestHungCallsStarveRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newHooked(t)
		for i := range 400 { // renewals spread over time
			lock(t, c, fmt.Sprint(i), &hasp.LockOptions{TTL: 10 * time.Minute})
			time.Sleep(250 * time.Millisecond)
		}
		time.Sleep(110 * time.Second)
		l := lock(t, c, "short", nil)
		d.onRenew(hangRenew)
		time.Sleep(20 * time.Second)
		d.onRenew(nil) // the store is well again; 9 s are left
		time.Sleep(time.Minute)
		check(t, l.Err())
	})
}

func TestExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		lease := lock(t, c, "k", &hasp.LockOptions{NoRenew: true})
		time.Sleep(20 * time.Second)
		need(t, lease.Extend(t.Context(), time.Hour))
		if left := time.Until(lease.Deadline()); left < 59*time.Minute || left > time.Hour-36*time.Second-2*time.Millisecond {
			t.Fatalf("%v left after an extension by an hour", left)
		}
		need(t, lease.Extend(t.Context(), time.Second))
		if left := time.Until(lease.Deadline()); left < 50*time.Minute {
			t.Fatalf("a short extension shortened the lease to %v", left)
		}
		for _, bad := range []time.Duration{0, -time.Second} {
			err := lease.Extend(t.Context(), bad)
			failIf(t, !isMistake(err), "extended by %v: %v", bad, err)
		}
		store.Lose("k")
		wantIs(t, lease.Extend(t.Context(), time.Minute), hasp.ErrNotHeld)
		wantIs(t, lease.Err(), hasp.ErrLost)
		wantIs(t, lease.Extend(t.Context(), time.Minute), hasp.ErrLost)
	})
}

// Extend reports success on a lost lease.
func TestExtendOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
			next(ctx, rs, func(i int, r driver.Renewal) {
				time.Sleep(2 * time.Second)
				done(i, r)
			})
		}
		l := lock(t, newClient(t, d, nil), "k", &hasp.LockOptions{NoRenew: true})
		time.Sleep(29 * time.Second)
		if err := l.Extend(t.Context(), time.Minute); err == nil && l.Err() != nil {
			t.Errorf("Extend: nil, but the lease is over: %v", l.Err())
		}
	})
}

// Failing Extends postpone the renewal for ever.
func TestFailingExtendPostponesRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		l := lock(t, c, "k", nil)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 60 {
			time.Sleep(time.Second)
			if err := l.Extend(gone, time.Minute); errors.Is(err, hasp.ErrLost) {
				t.Fatal(err)
			}
		}
	})
}

// A slow observer holds up the loss of other leases.
func TestSlowObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore(), renew: hangRenew}
		c := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Lost && e.Key == "a" {
				time.Sleep(time.Minute)
			}
		}})
		start := time.Now()
		lock(t, c, "a", nil)
		time.Sleep(time.Second)
		b := lock(t, c, "b", nil)
		<-b.Context(t.Context()).Done()
		got := time.Since(start)
		failIf(t, got > 31*time.Second, "the context of b ended %v late", got-time.Second-usable)
		time.Sleep(2 * time.Minute)
	})
}

// A TTL so large that the clean-up's limit overflows.
func TestHugeTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := hookedMem()
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			_, _ = next(ctx, r)
			return driver.Result{}, errDown
		}
		c := newClient(t, d, nil)
		_, err := c.Mutex("k", &hasp.LockOptions{TTL: math.MaxInt64}).TryLock(t.Context())
		failIf(t, err == nil, "an error was swallowed")
		synctest.Wait()
		mustBeFree(t, store, "k")
	})
}

// A short lease is renewed in time, also when the renewer was just woken for nothing.
func TestShortLeaseIsRenewedAfterASpuriousWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		wakeForNothing(t, c)
		lease := lock(t, c, "k", &hasp.LockOptions{TTL: 200 * time.Millisecond})
		time.Sleep(time.Second)
		check(t, lease.Err())
	})
}

// A renewal that failed is told as every other error is: with what it was about and the
// class of the trouble, once. So are the loss and the Extend that come of it.
func TestErrorOfARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore(), classify: func(err error) driver.Class {
			if errors.Is(err, errDown) {
				return driver.ClassUnreachable
			}
			return driver.ClassUnknown
		}}
		var mu sync.Mutex
		got := map[event.Kind]error{}
		c := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			mu.Lock()
			defer mu.Unlock()
			if _, told := got[e.Kind]; !told {
				got[e.Kind] = e.Err
			}
		}})
		lease := lock(t, c, "k", nil)
		time.Sleep(ttl/3 + time.Second)
		d.onRenew(failRenew(errDown))
		extend := lease.Extend(t.Context(), ttl)
		<-lease.Done()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if err, told := got[event.Renewed]; !told || err != nil {
			t.Errorf("a renewal that succeeded: told %v, %v", told, err)
		}
		for op, err := range map[string]error{"renew": got[event.RenewFailed], "extend": extend, "hold": got[event.Lost]} {
			e, ok := err.(*hasp.Error) //nolint:errorlint // the outermost
			if !ok || e.Op != op || e.Key != "k" || e.Engine != "memory" || e.Class != driver.ClassUnreachable || !errors.Is(err, errDown) {
				t.Errorf("%s: %#v", op, err)
				continue
			}
			if text := err.Error(); strings.Count(text, `hasp: `) != 1 || strings.Count(text, `"k"`) != 1 {
				t.Errorf("%s: it says so twice: %s", op, text)
			}
			want := map[bool]string{true: "lost", false: "unreachable"}[op == "hold"]
			failIf(t, telemetry.Reason(err) != want, "%s: the reason is %s", op, telemetry.Reason(err))
		}
	})
}

// Each renewal without a good answer is told to the observer, and the last of them to a caller that asks why the lease was lost.
func TestFailedRenewalIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed atomic.Int64
		d := &hooked{Driver: newStore()}
		d.renew = func(_ context.Context, _ []driver.RenewRequest, done func(int, driver.Renewal), _ renewFunc) {
			done(0, driver.Renewal{Err: errDown})
		}
		lease := lock(t, newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind != event.RenewFailed {
				return
			}
			failed.Add(1)
			if !errors.Is(e.Err, errDown) || e.Left <= 0 || e.Left > ttl || e.Age <= 0 || e.Sent.IsZero() {
				t.Errorf("told of %+v", e)
			}
		}}), "k", nil)
		<-lease.Done()
		synctest.Wait()
		if n := failed.Load(); n == 0 || n != d.renews.Load() {
			t.Errorf("%d renewals failed, the observer was told of %d", d.renews.Load(), n)
		}
		wantIs(t, lease.Err(), hasp.ErrLost, errDown)
	})
}

// The error of a renewal is old when a call that began later has succeeded; a good answer is one that late, too.
func TestOldAnswerOfARenewal(t *testing.T) {
	for _, c := range []struct {
		answer          driver.Renewal
		failed, renewed int64
	}{{driver.Renewal{Err: errDown}, 0, 1}, {driver.Renewal{TTL: ttl}, 0, 2}} {
		synctest.Test(t, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			var failed, renewed atomic.Int64
			client := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
				switch e.Kind {
				case event.RenewFailed:
					failed.Add(1)
				case event.Renewed:
					renewed.Add(1)
				}
			}})
			lease := lock(t, client, "k", nil)
			answer := make(chan struct{})
			d.onRenew(func(_ context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), _ renewFunc) {
				<-answer
				for i := range rs {
					done(i, c.answer)
				}
			})
			time.Sleep(ttl/3 + time.Second)
			d.onRenew(nil)
			need(t, lease.Extend(t.Context(), ttl))
			close(answer)
			synctest.Wait()
			if failed.Load() != c.failed || renewed.Load() != c.renewed {
				t.Errorf("%+v after an Extend that began later: %d failed and %d renewed, say events, want %d and %d",
					c.answer, failed.Load(), renewed.Load(), c.failed, c.renewed)
			}
			release(t, lease)
		})
	}
}

// No lease is lost where large requests vanish and small ones pass, as behind a link with a smaller MTU than it says.
func TestLargeRenewalsVanish(t *testing.T) {
	for _, most := range []int{1, 3, 8} {
		synctest.Test(t, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			var vanished, small int
			d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
				d.mu.Lock()
				large := len(rs) > most
				if large {
					vanished++
				} else {
					small++
				}
				d.mu.Unlock()
				if large {
					<-ctx.Done()
					return
				}
				time.Sleep(20 * time.Millisecond) // there and back
				next(ctx, rs, done)
			}
			c := newClient(t, d, nil)
			leases := make([]*hasp.Lease, 200)
			for i := range leases {
				leases[i] = lock(t, c, fmt.Sprint("k", i), nil)
				if i%20 == 0 {
					time.Sleep(time.Second) // not all are due at once
				}
			}
			time.Sleep(10 * ttl)
			for i, l := range leases {
				stopIf(t, l.Err() != nil, "up to %d pass: lease %d: %v", most, i, l.Err())
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			if vanished == 0 || small == 0 {
				t.Errorf("up to %d pass: %d requests vanished, %d passed", most, vanished, small)
			}
		})
	}
}

// An outage of the whole store that leaves time to ask once more loses no lease, however many there are; one that does not end loses them
// all, and the store is not asked about them any more.
func TestManyLeasesAndSilence(t *testing.T) {
	const keys, ttl, forever = 2000, 10 * time.Second, 20 * time.Minute
	for _, c := range []struct{ after, outage time.Duration }{
		{5 * time.Second, 6 * time.Second}, {5 * time.Second, forever},
		{5 * time.Second, 5 * time.Second}, {6 * time.Second, 5 * time.Second}, {7 * time.Second, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			began := time.Now().Add(c.after)
			var last time.Time // of the calls
			d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
				now := time.Now()
				d.mu.Lock()
				last = now
				d.mu.Unlock()
				if since := now.Sub(began); since >= 0 && since < c.outage {
					<-ctx.Done()
					return
				}
				time.Sleep(20 * time.Millisecond) // there and back
				next(ctx, rs, done)
			}
			client := newClient(t, d, nil)
			leases := make([]*hasp.Lease, keys)
			for i := range leases {
				leases[i] = lock(t, client, fmt.Sprint("k", i), &hasp.LockOptions{TTL: ttl})
			}
			time.Sleep(c.after + c.outage + ttl)
			lost := 0
			for _, l := range leases {
				if l.Err() != nil {
					lost++
				}
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			switch {
			case c.outage < forever && lost > 0:
				t.Errorf("%d leases are lost in %v without answers", lost, c.outage)
			case c.outage == forever && (lost < keys || last.Sub(began) > ttl):
				t.Errorf("%d leases are lost in silence, and the store was asked for %v", lost, last.Sub(began))
			}
		})
	}
}
