// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
)

// moody is a store that answers every request with errDown, of a class, while it refuses.
type moody struct {
	hooked
	refuses atomic.Bool
}

func newMoody(class driver.Class) *moody {
	d := &moody{hooked: hooked{Driver: newStore(), classify: func(err error) driver.Class {
		if errors.Is(err, errDown) {
			return class
		}
		return driver.ClassUnknown
	}}}
	d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
		if d.refuses.Load() {
			return driver.Result{}, errDown
		}
		return next(ctx, r)
	}
	d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
		if !d.refuses.Load() {
			next(ctx, rs, done)
			return
		}
		for i := range rs {
			done(i, driver.Renewal{Err: errDown})
		}
	}
	d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
		if d.refuses.Load() {
			return errDown
		}
		return next(ctx, r)
	}
	return d
}

func (d *moody) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if d.refuses.Load() {
		return driver.Info{}, errDown
	}
	return d.hooked.Inspect(ctx, key)
}

const (
	grace   = 30 * time.Second // Options.MaxFaulty by default
	endless = time.Hour        // the caller's own bound
)

// classes are the rule: how long a wait bears an error of a class, at first contact and after a good answer.
var classes = []struct {
	name        string
	class       driver.Class
	first, then time.Duration
}{
	{"unknown", driver.ClassUnknown, ttl, ttl},
	{"unreachable", driver.ClassUnreachable, endless, endless},
	{"read-only", driver.ClassReadOnly, grace, endless},
	{"full", driver.ClassFull, grace, endless},
	{"login", driver.ClassLogin, grace, grace},
	{"denied", driver.ClassDenied, 0, grace},
	{"misconfigured", driver.ClassMisconfigured, 0, grace},
	{"impossible", driver.ClassImpossible, 0, 0},
}

// waitings are all that waits for a key.
var waitings = map[string]func(context.Context, *hasp.Client) error{
	"Lock":  func(ctx context.Context, c *hasp.Client) error { _, err := c.Mutex("k", nil).Lock(ctx); return err },
	"Locks": func(ctx context.Context, c *hasp.Client) error { _, err := mutexes(c, "k", "l").Lock(ctx); return err },
	"RLock": func(ctx context.Context, c *hasp.Client) error { _, err := c.RWMutex("k", nil).RLock(ctx); return err },
	"Semaphore": func(ctx context.Context, c *hasp.Client) error {
		_, err := c.Semaphore("k", 3, nil).Lock(ctx)
		return err
	},
	"cohort": func(ctx context.Context, c *hasp.Client) error {
		_, err := c.Mutex("k", &hasp.LockOptions{Cohort: time.Second}).Lock(ctx)
		return err
	},
	"Lead": func(ctx context.Context, c *hasp.Client) error {
		return c.Election("k", nil).Lead(ctx, func(context.Context, *hasp.Lease) error { return nil })
	},
}

// Promise 7: at first contact what a person must mend ends a wait at once, and what passes by itself does not; a store
// that has answered before is in trouble, which is said, and borne for a bounded time.
func TestHowLongTroubleIsBorne(t *testing.T) {
	for _, c := range classes {
		for what, wait := range waitings {
			for phase, want := range map[string]time.Duration{"first contact": c.first, "after a good answer": c.then} {
				bubbled(t, c.name+"/"+what+"/"+phase, func(t *testing.T) {
					d := newMoody(c.class)
					told := 0
					locks := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
						if e.Kind != event.Trouble {
							return
						}
						if told++; errors.Is(e.Err, errDown) && (e.Left == 0) != (want == endless) || e.Left > want {
							t.Errorf("told of %v left", e.Left)
						}
					}})
					if phase != "first contact" {
						release(t, lock(t, locks, "other", nil))
					}
					d.refuses.Store(true)
					ctx, cancel := context.WithTimeout(t.Context(), endless)
					defer cancel()
					tries, start := d.tries.Load(), time.Now()
					err := wait(ctx, locks)
					wantIs(t, err, errDown)
					var e *hasp.Error
					if took := time.Since(start); !errors.As(err, &e) || e.Class != c.class || took > want || took < want-2*time.Second {
						t.Errorf("%v after %v, want %v", err, took, want)
					}
					if n := d.tries.Load() - tries; (n == 1) != (want == 0) || n == 1 && told > 0 || n > 1 && told < 2 {
						t.Errorf("asked %d times, told of %d troubles", n, told)
					}
					if tries = d.tries.Load(); true {
						_, err := locks.Mutex("k", nil).TryLock(t.Context())
						wantIs(t, err, errDown)
					}
					failIf(t, d.tries.Load()-tries != 1, "TryLock asked %d times", d.tries.Load()-tries)
				})
			}
		}
	}
}

// A store that refuses for a while, as in a failover, costs a waiter its time, a leader its term at most, and a release nothing.
func TestRefusalsPass(t *testing.T) {
	for _, c := range classes {
		if c.then == 0 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			const outage = 20 * time.Second
			d := newMoody(c.class)
			locks := newClient(t, d, nil)
			holder := lock(t, locks, "k", nil)
			long := lock(t, locks, "held", nil)
			waited := make(chan *hasp.Lease, 1)
			go func() { waited <- lock(t, locks, "k", nil) }()
			terms := make(chan int, 10)
			ctx, resign := context.WithCancel(t.Context())
			defer resign()
			ended := make(chan error, 1)
			go func() {
				n := 0
				ended <- locks.Election("e", &hasp.LockOptions{TTL: 15 * time.Second}).Lead(ctx, func(ctx context.Context, _ *hasp.Lease) error {
					n++
					terms <- n
					<-ctx.Done()
					return nil
				})
			}()
			if n := <-terms; n != 1 {
				t.Fatal(n)
			}
			d.refuses.Store(true)
			failIf(t, holder.Release() == nil, "a release that was refused is confirmed")
			time.Sleep(outage - 5*time.Second) // the release waited for 5 s
			select {
			case <-waited:
				t.Error("a lease of a store that refuses")
			default:
			}
			d.refuses.Store(false)
			mended := time.Now()
			release(t, <-waited)
			if n := <-terms; n != 2 || time.Since(mended) > 3*time.Second {
				t.Errorf("%s: term %d, %v after the store was mended", c.name, n, time.Since(mended))
			}
			failIf(t, long.Err() != nil, "%s: %v", c.name, long.Err())
			resign()
			check(t, <-ended)
		})
	}
}

// A refused release is asked again until the lease would have ended, and not for longer.
func TestRefusedReleaseIsAskedAgain(t *testing.T) {
	for _, c := range classes {
		synctest.Test(t, func(t *testing.T) {
			d := newMoody(c.class)
			l := lock(t, newClient(t, d, nil), "k", nil)
			d.refuses.Store(true)
			wantIs(t, l.Release(), errDown)
			time.Sleep(time.Second)
			before := d.releases.Load()
			time.Sleep(ttl - 10*time.Second)
			if during := d.releases.Load(); (during > before) != (c.class != driver.ClassImpossible) {
				t.Errorf("%s: %d releases in the first moment, %d later", c.name, before, during)
			}
			time.Sleep(time.Minute)
			before = d.releases.Load()
			if time.Sleep(time.Hour); d.releases.Load() != before {
				t.Errorf("%s: it is still released", c.name)
			}
		})
	}
}

// At first contact a refusal leaves nothing to clean up: a command that may not do anything ends at once.
func TestNothingToCleanUpAtFirstContact(t *testing.T) {
	for _, c := range classes {
		synctest.Test(t, func(t *testing.T) {
			d := newMoody(c.class)
			d.refuses.Store(true)
			locks, start := must(hasp.New(d, nil)), time.Now()
			_, err := locks.Mutex("k", nil).TryLock(t.Context())
			wantIs(t, err, errDown)
			_ = locks.Close()
			answers := c.class != driver.ClassUnknown && c.class != driver.ClassUnreachable
			failIf(t, answers && time.Since(start) > time.Second, "%s: it took %v", c.name, time.Since(start))
		})
	}
}

// A grant whose reply was lost at first contact is given back, also when the store refuses the release for a while.
func TestLostGrantAtFirstContact(t *testing.T) {
	for _, c := range classes {
		if c.then == 0 {
			continue
		}
		for _, wait := range []time.Duration{time.Second, 10 * time.Second} { // the second is refused, too
			synctest.Test(t, func(t *testing.T) {
				d := newMoody(c.class)
				d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
					if d.refuses.Load() {
						return driver.Result{}, errDown
					}
					_, _ = next(ctx, r)
					d.refuses.Store(true)
					return hangTry(ctx, r, next)
				}
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				defer cancel()
				_, err := newClient(t, d, nil).Mutex("k", &hasp.LockOptions{TTL: 10 * time.Minute}).Lock(ctx)
				want := context.DeadlineExceeded
				if wait > time.Second && c.first == 0 {
					want = errDown
				}
				wantIs(t, err, want)
				time.Sleep(grace)
				d.refuses.Store(false)
				time.Sleep(2 * time.Second)
				if info, err := d.Driver.Inspect(t.Context(), "k"); err != nil || info.Held {
					t.Errorf("%s: %v is left of the lease, %v", c.name, info.Left, err)
				}
			})
		}
	}
}

// Options.MaxFaulty is a bound of its own, without the time for which the store was away.
func TestMaxRefused(t *testing.T) {
	for _, c := range []struct {
		most, away, want time.Duration
	}{{time.Minute, 0, time.Minute}, {time.Second, 0, time.Second}, {time.Minute, time.Hour, time.Hour + time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			d := newMoody(driver.ClassLogin)
			class, start := d.classify, time.Now()
			d.classify = func(err error) driver.Class {
				if now := time.Since(start); now > 500*time.Millisecond && now < 500*time.Millisecond+c.away {
					return driver.ClassUnreachable
				}
				return class(err)
			}
			d.refuses.Store(true)
			_, err := newClient(t, d, &hasp.Options{MaxFaulty: c.most}).Mutex("k", nil).Lock(t.Context())
			wantIs(t, err, errDown)
			took := time.Since(start)
			failIf(t, took > c.want+time.Second || took < c.want-3*time.Second, "%+v: %v after %v", c, err, took)
		})
	}
	if _, err := hasp.New(newStore(), &hasp.Options{MaxFaulty: -1}); err == nil {
		t.Error("a negative MaxFaulty was taken")
	}
}

// Every class of the driver has its row in the rule.
func TestEveryClassIsInTheRule(t *testing.T) {
	if n := int(driver.ClassImpossible) + 1; len(classes) != n {
		t.Error(fmt.Sprint(len(classes), " classes of ", n))
	}
}

// Whoever looks at an election goes on as Lock does.
func TestObserveGoesOnAfterRefusals(t *testing.T) {
	for _, c := range classes {
		synctest.Test(t, func(t *testing.T) {
			d := newMoody(c.class)
			errs := 0
			for _, err := range newClient(t, d, nil).Election("k", nil).Leaders(t.Context()) {
				d.refuses.Store(true)
				if err != nil {
					errs++
				}
				if errs == 3 {
					break
				}
			}
			failIf(t, (errs == 3) != (c.then > 0), "%s: %d errors", c.name, errs)
		})
	}
}
