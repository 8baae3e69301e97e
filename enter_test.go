// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/fault"
	"github.com/hasplock/hasp/memdriver"
)

// claimTime is how long a store in memory waits for a claim.
const claimTime = 500 * time.Millisecond

// hander is a hooked store that says what it handed over, or what say makes of that.
type hander struct {
	*hooked
	store *memdriver.Store
	say   func(to driver.Handover) driver.Handover

	mu     sync.Mutex
	sent   []driver.TryRequest
	claims []driver.RenewRequest
	ends   []driver.ReleaseRequest
}

func newHander(store *memdriver.Store) *hander {
	d := &hander{hooked: &hooked{Driver: store, enters: true}, store: store}
	d.watch = func(ctx context.Context, c driver.Claim, next watchFunc) (<-chan driver.Hint, error) {
		hints, err := next(ctx, c)
		return fault.Relay(ctx, hints, func(h driver.Hint) (driver.Hint, bool) {
			if d.say != nil && h.Handover.Fence != 0 {
				h.Handover = d.say(h.Handover)
			}
			return h, true
		}), err
	}
	d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
		d.mu.Lock()
		d.sent = append(d.sent, r)
		d.mu.Unlock()
		return next(ctx, r)
	}
	d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
		d.mu.Lock()
		for _, r := range rs {
			if r.Entered {
				d.claims = append(d.claims, r)
			}
		}
		d.mu.Unlock()
		next(ctx, rs, done)
	}
	d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
		d.mu.Lock()
		d.ends = append(d.ends, r)
		d.mu.Unlock()
		return next(ctx, r)
	}
	return d
}

// counts returns how many requests of each kind were sent: Tries of the line, claims, releases.
func (d *hander) counts() [3]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	lined := 0
	for _, r := range d.sent {
		if r.Queue {
			lined++
		}
	}
	return [3]int{lined, len(d.claims), len(d.ends)}
}

// waits has a client of d wait for the key, which another holds; begin tells of its lease.
func (d *hander) waits(t *testing.T, lock func(c *hasp.Client) hasp.Locker) (held, lease *hasp.Lease, c *hasp.Client, since time.Duration) {
	t.Helper()
	held = lockOf(t, newClient(t, d.store, nil))
	c = newClient(t, d, nil)
	got := make(chan *hasp.Lease, 1)
	go func() {
		l, err := lock(c).Lock(t.Context())
		check(t, err)
		got <- l
	}()
	synctest.Wait()
	time.Sleep(time.Second) // so that the deadline would show what it counts from
	synctest.Wait()
	began := time.Now()
	need(t, held.Release())
	lease = <-got
	if lease == nil {
		t.FailNow()
	}
	return held, lease, c, time.Since(began)
}

func lockOf(t *testing.T, c *hasp.Client) *hasp.Lease { return lock(t, c, "k", nil) }

func mutex(o *hasp.LockOptions) func(c *hasp.Client) hasp.Locker {
	return func(c *hasp.Client) hasp.Locker { return c.Mutex("k", o) }
}

// A waiter that is handed the key has it with the message, and claims it ten milliseconds later; then its lease is like any other.
func TestEnters(t *testing.T) {
	for _, o := range []*hasp.LockOptions{nil, {Lead: 100 * time.Millisecond}} { // the largest
		synctest.Test(t, func(t *testing.T) {
			d := newHander(newStore())
			held, lease, _, took := d.waits(t, mutex(o))
			if got := d.counts(); took != 0 || got != [3]int{1, 0, 0} {
				t.Errorf("after the message: %v later, %v requests, want one Try of the line", took, got)
			}
			failIf(t, lease.Fence() <= held.Fence(), "fence %d after %d", lease.Fence(), held.Fence())
			// A second passed since the refusal, of which a hundredth is given up, with twice 2 ms and a hundredth of the claim time.
			if want := claimTime - 10*time.Millisecond - 2*2*time.Millisecond - 5*time.Millisecond; time.Until(lease.Deadline()) != want {
				t.Errorf("it lasts %v before the claim, want %v", time.Until(lease.Deadline()), want)
			}
			time.Sleep(10*time.Millisecond - 1)
			failIf(t, d.counts()[1] != 0, "claimed before it was time")
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			failIf(t, d.counts() != [3]int{1, 1, 0}, "%v requests, want one claim", d.counts())
			left := time.Until(lease.Deadline())
			failIf(t, left < ttl*9/10, "%v are left of a lease that was claimed", left)
			time.Sleep(ttl)
			synctest.Wait()
			failIf(t, d.counts()[1] != 1, "%d renewals claim, want one", d.counts()[1])
			release(t, lease)
			mustBeFree(t, d.store, "k")
		})
	}
}

// Its event answers no request, and says how long ago it was handed the key at most.
func TestEventOfWhoEnters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHander(newStore())
		held := lockOf(t, newClient(t, d.store, nil))
		var got []event.Event
		c := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Acquired {
				got = append(got, *e)
			}
		}})
		waits := begin(t.Context(), c.Mutex("k", nil).Lock)
		time.Sleep(time.Second)
		release(t, held)
		synctest.Wait()
		lease := granted(t, "the waiter", waits)
		if len(got) != 1 || !got[0].Sent.IsZero() || got[0].Handoff != 1 || got[0].Waited != time.Second || got[0].Fence != lease.Fence() {
			t.Errorf("%+v", got)
		}
		release(t, lease)
	})
}

// The message also says that the one before did not finish, or a grant that came too late did; the mark stays with the lease.
func TestEntersAnAbandonedKey(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := newHander(newStore())
			d.say = func(to driver.Handover) driver.Handover { to.Abandoned = !late; return to }
			next := d.try
			d.try = func(ctx context.Context, r driver.TryRequest, to tryFunc) (driver.Result, error) {
				if late && d.tries.Load() == 1 {
					return driver.Result{Granted: true, Abandoned: true, TTL: time.Nanosecond}, nil
				}
				return next(ctx, r, to)
			}
			if _, lease, _, _ := d.waits(t, mutex(nil)); !lease.Abandoned() || d.counts()[0] != 1 {
				t.Errorf("Abandoned: %v, %v requests", lease.Abandoned(), d.counts())
			}
		})
	}
}

// Work that is over by the time of the claim sends none, and its Release is all that the store hears.
func TestEntersForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHander(newStore())
		_, lease, c, _ := d.waits(t, mutex(nil))
		time.Sleep(9 * time.Millisecond)
		release(t, lease)
		time.Sleep(time.Second)
		if got := d.counts(); got != [3]int{1, 0, 1} || !d.ends[0].Settled {
			t.Errorf("%v requests, the last settled: %v; want a Try and a Release that is", got, d.ends[0].Settled)
		}
		failIf(t, lockOf(t, c).Abandoned(), "the next is told of a lease that was released")
	})
}

// A store that stalls while the Release of a short lease is under way ends the lease: the work was over before that, so it was not
// lost. An answer before the deadline proves a loss.
func TestReleaseUnderWayAtTheDeadline(t *testing.T) {
	for name, opts := range map[string]*hasp.LockOptions{"handed over": nil, "short": {TTL: claimTime, NoRenew: true}} {
		for early, want := range []error{nil, hasp.ErrLost} {
			bubbled(t, fmt.Sprintf("%s, %d ns early", name, early), func(t *testing.T) {
				d := newHander(newStore())
				_, lease, c, _ := d.waits(t, mutex(opts))
				d.onRelease(func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
					time.Sleep(time.Until(lease.Deadline()) - time.Duration(early))
					_ = next(ctx, r)
					return driver.ErrNotHeld
				})
				if err := lease.Release(); !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
				d.onRelease(nil)
				release(t, lockOf(t, c))
			})
		}
	}
}

// Where it isn't certain for how long, it asks first, with the place that it has.
func TestClaimsFirst(t *testing.T) {
	for name, c := range map[string]struct {
		say      func(to driver.Handover) driver.Handover
		same     bool // its fence is the refusal's
		timeless bool
		opts     *hasp.LockOptions
		lock     func(c *hasp.Client) hasp.Locker
	}{
		"the message is late":            {say: func(to driver.Handover) driver.Handover { to.At -= 180 * time.Millisecond; return to }},
		"it is of before the refusal":    {say: func(to driver.Handover) driver.Handover { to.At -= time.Second + time.Millisecond; return to }},
		"it is of the future":            {say: func(to driver.Handover) driver.Handover { to.At += time.Nanosecond; return to }},
		"an older fence":                 {say: func(to driver.Handover) driver.Handover { to.Fence /= 2; return to }},
		"the fence of the refusal":       {say: func(to driver.Handover) driver.Handover { to.Fence = 0; return to }, same: true},
		"a refusal without its time":     {say: func(to driver.Handover) driver.Handover { to.At = 900 * time.Millisecond; return to }, timeless: true},
		"the lead is too large":          {opts: &hasp.LockOptions{Lead: claimTime}},
		"without renewal":                {opts: &hasp.LockOptions{NoRenew: true}},
		"turns":                          {opts: &hasp.LockOptions{Cohort: time.Second}},
		"kept":                           {opts: &hasp.LockOptions{Keep: time.Second}},
		"a reader":                       {lock: func(c *hasp.Client) hasp.Locker { return c.RWMutex("k", nil).RLocker() }},
		"a slot":                         {lock: func(c *hasp.Client) hasp.Locker { return c.Semaphore("k", 2, nil) }},
		"a claim time that is too short": {say: func(to driver.Handover) driver.Handover { to.TTL = 10 * time.Millisecond; return to }},
	} {
		bubbled(t, name, func(t *testing.T) {
			d := newHander(newStore())
			var refused uint64 // the fence of the latest
			next := d.try
			d.try = func(ctx context.Context, r driver.TryRequest, to tryFunc) (driver.Result, error) {
				res, err := next(ctx, r, to)
				if refused = res.Fence; c.timeless {
					res.At = 0
				}
				return res, err
			}
			d.say = c.say
			if c.same {
				d.say = func(to driver.Handover) driver.Handover { to.Fence = refused; return to }
			}
			if c.lock == nil {
				c.lock = mutex(c.opts)
			}
			_, lease, _, took := d.waits(t, c.lock)
			if got := d.counts(); took != 0 || got != [3]int{2, 0, 0} {
				t.Errorf("%v later, %v requests, want two Tries of the line", took, got)
			}
			asks := d.sent[len(d.sent)-1].Enters
			failIf(t, asks != (c.say != nil), "it asks to enter: %v", asks)
			release(t, lease)
			if name != "kept" {
				mustBeFree(t, d.store, "k")
			}
		})
	}
}

// Who has a Try under way that was not answered asks first: the store may hear of that later, and takes it for a word that its
// owner did not enter.
func TestClaimsFirstWhenUnsure(t *testing.T) {
	for name, lost := range map[string]int64{"before the key is handed over": 1, "as it is": 2} { // Tries of the line
		bubbled(t, name, func(t *testing.T) {
			d := newHander(newStore())
			held := lockOf(t, newClient(t, d.store, nil))
			next := d.try
			var lined atomic.Int64
			d.try = func(ctx context.Context, r driver.TryRequest, to tryFunc) (driver.Result, error) {
				if r.Queue && lined.Add(1) == lost {
					if lost == 2 {
						release(t, held)
					}
					return driver.Result{}, errDown
				}
				res, err := next(ctx, r, to)
				if !res.Granted && lost == 2 {
					res.RetryIn = 100 * time.Millisecond
				}
				return res, err
			}
			waits := begin(t.Context(), newClient(t, d, nil).Mutex("k", nil).Lock)
			time.Sleep(time.Second)
			synctest.Wait()
			if lost == 1 {
				release(t, held)
			}
			synctest.Wait()
			lease := granted(t, "the waiter", waits)
			failIf(t, d.counts()[0] != 2, "the store heard of %d Tries of the line, want one that was refused, and one more", d.counts()[0])
			release(t, lease)
		})
	}
}

// A wait so long that the refusal is an old one: as much as the clocks may differ is given up of the claim time, and then it asks first.
func TestEntersAfterALongWait(t *testing.T) {
	for waited, enters := range map[time.Duration]bool{14 * time.Second: true, 18 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			d := newHander(newStore())
			held := lockOf(t, newClient(t, d.store, nil))
			waits := begin(t.Context(), newClient(t, d, nil).Mutex("k", nil).Lock)
			time.Sleep(waited)
			synctest.Wait()
			before := d.counts()[0]
			release(t, held)
			synctest.Wait()
			lease := granted(t, "the waiter", waits)
			asked := d.counts()[0] > before
			failIf(t, asked == enters, "after %v it asked first: %v", waited, asked)
			release(t, lease)
		})
	}
}

// A claim without an answer is sent again; without any the lease ends before the store gives the key to another.
func TestClaimIsNotAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		lost int // claims that are
		ends bool
	}{"once": {1, false}, "twice": {2, false}, "never": {1 << 20, true}} {
		bubbled(t, name, func(t *testing.T) {
			d := newHander(newStore())
			_, lease, _, _ := d.waits(t, mutex(nil))
			next := d.renew
			var lost atomic.Int64
			d.onRenew(func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), driver renewFunc) {
				if rs[0].Entered && lost.Add(1) <= int64(c.lost) {
					hangRenew(ctx, rs, done, driver)
					return
				}
				next(ctx, rs, done, driver)
			})
			began := time.Now()
			if !c.ends {
				time.Sleep(ttl / 2)
				need(t, lease.Err())
				return
			}
			waits := begin(t.Context(), newClient(t, d.store, nil).Mutex("k", nil).Lock)
			<-lease.Done()
			if took := time.Since(began); took >= claimTime || !errors.Is(lease.Err(), hasp.ErrLost) {
				t.Errorf("it ends after %v with %v", took, lease.Err())
			}
			select {
			case g := <-waits:
				t.Errorf("granted to another first: %+v", g)
			default:
			}
			time.Sleep(claimTime)
			synctest.Wait()
			if next := granted(t, "the next", waits); !next.Abandoned() {
				t.Error("the next isn't told that one before may have begun to work")
			}
		})
	}
}

// A renewal that only prolonged, as while a slot moves, is no claim: the next one claims.
func TestProlongedIsNotClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHander(newStore())
		_, lease, _, _ := d.waits(t, mutex(nil))
		next := d.renew
		var n atomic.Int64
		d.onRenew(func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), to renewFunc) {
			next(ctx, rs, func(i int, r driver.Renewal) {
				r.Unclaimed = n.Add(1) == 1
				done(i, r)
			}, to)
		})
		time.Sleep(2 * ttl)
		failIf(t, d.counts()[1] != 2, "%d renewals claim, want two", d.counts()[1])
		release(t, lease)
	})
}

// A store that says that the lease is over ends it.
func TestClaimIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHander(newStore())
		_, lease, _, _ := d.waits(t, mutex(nil))
		d.store.Lose("k")
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		wantIs(t, lease.Err(), hasp.ErrLost)
	})
}

// Who gave up while the message came did not enter: the next has the key at once, and is told of nothing.
func TestGivesUpWhenHanded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHander(newStore())
		held := lockOf(t, newClient(t, d.store, nil))
		ctx, cancel := context.WithCancel(t.Context())
		waits := begin(ctx, newClient(t, d, nil).Mutex("k", nil).Lock)
		synctest.Wait()
		next := begin(t.Context(), newClient(t, d.store, nil).Mutex("k", nil).Lock)
		synctest.Wait()
		cancel()
		began := time.Now()
		release(t, held)
		synctest.Wait()
		if g := <-waits; g.err == nil {
			_ = g.v.Release() // the message was faster
		}
		if lease := granted(t, "the next", next); lease.Abandoned() || !time.Now().Equal(began) {
			t.Errorf("Abandoned: %v, after %v", lease.Abandoned(), time.Since(began))
		}
	})
}

// What a lease that entered can do before its claim: all that others can.
func TestEnteredLease(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, d *hander, c *hasp.Client, l *hasp.Lease){
		"Extend": func(t *testing.T, _ *hander, _ *hasp.Client, l *hasp.Lease) {
			if err := l.Extend(t.Context(), time.Hour); err != nil || time.Until(l.Deadline()) < 59*time.Minute {
				t.Errorf("%v, %v left", err, time.Until(l.Deadline()))
			}
		},
		"Downgrade": func(t *testing.T, _ *hander, c *hasp.Client, l *hasp.Lease) {
			need(t, l.Downgrade(t.Context()))
			other, err := c.RWMutex("k", nil).TryRLock(t.Context())
			need(t, err)
			release(t, other)
		},
		"Wanted": func(t *testing.T, _ *hander, c *hasp.Client, l *hasp.Lease) {
			wanted := l.Wanted()
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			waits := begin(ctx, c.Mutex("k", nil).Lock)
			isWanted(t, "a waiter came", wanted, true)
			cancel()
			<-waits
		},
		"Break": func(t *testing.T, _ *hander, c *hasp.Client, l *hasp.Lease) {
			need(t, c.Operator().Break(t.Context(), "k", l.Owner()))
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			wantIs(t, l.Err(), hasp.ErrLost)
		},
		"Adopt": func(t *testing.T, d *hander, c *hasp.Client, l *hasp.Lease) {
			adopted, err := c.Operator().Adopt(t.Context(), "k", l.Owner(), nil)
			need(t, err)
			failIf(t, adopted.Fence() != l.Fence(), "fence %d, want %d", adopted.Fence(), l.Fence())
			failIf(t, d.counts()[1] != 1, "Adopt did not claim it")
		},
	} {
		bubbled(t, name, func(t *testing.T) {
			d := newHander(newStore())
			_, lease, c, _ := d.waits(t, mutex(nil))
			use(t, d, c, lease)
			if lease.Err() == nil {
				time.Sleep(2 * ttl)
				release(t, lease)
			}
		})
	}
}

// Suspended after the refusal for longer than the store knows: the time counts, by whichever clock.
func TestSuspendedBeforeItEnters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHander(newStore())
		held := lockOf(t, newClient(t, d.store, nil))
		c := newClient(t, d, nil)
		var mu sync.Mutex
		var slept time.Duration
		hasp.SetClock(c, func() clock.Instant {
			mu.Lock()
			defer mu.Unlock()
			now := bubble()
			now.Wall += slept
			return now
		})
		waits := begin(t.Context(), c.Mutex("k", nil).Lock)
		synctest.Wait()
		mu.Lock()
		slept = 300 * time.Millisecond
		mu.Unlock()
		release(t, held)
		synctest.Wait()
		granted(t, "the waiter", waits)
		failIf(t, d.counts()[0] != 2, "%v requests, want two Tries of the line", d.counts())
	})
}
