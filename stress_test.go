// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/fence"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/fault"
	"github.com/hasplock/hasp/internal/history"
)

var (
	stressSeeds = flag.Int("stress.seeds", 40, "how many random histories TestStress runs")
	stressFirst = flag.Uint64("stress.first", 1, "the first of them")
)

// forever is no deadline: a worker ends its hold when its context ends.
var forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

var errCut = errors.New("connection reset")

// weather is a driver on a bad network: requests are delayed, lost or doubled, or arrive after the caller gave them up; replies are lost;
// calls hang until their context ends, or everything does for some seconds. calm ends it.
type weather struct {
	driver.Driver
	calm *atomic.Bool
	dark atomic.Bool
	late sync.WaitGroup // requests that come late

	mu  sync.Mutex
	rnd *rand.Rand
}

func (w *weather) n(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n)
}

// through sends one request. One that is late comes at most 3 s later: within the time for which a store remembers who was released. It has
// no answer: a Try that was answered does not come again (driver.ReleaseRequest.Settled).
func (w *weather) through(ctx context.Context, send func(context.Context) error) error {
	if w.calm.Load() {
		return send(ctx)
	}
	nap := time.Duration(w.n(20)) * time.Millisecond
	if w.n(10) == 0 {
		nap *= 50
	}
	fate := w.n(20)
	if fate == 0 {
		w.late.Go(func() {
			time.Sleep(nap + time.Duration(w.n(2000))*time.Millisecond)
			_ = send(context.WithoutCancel(ctx))
		})
		return errCut
	}
	if sleep(ctx, nap) != nil {
		return ctx.Err()
	}
	if w.dark.Load() && !w.calm.Load() {
		fate = 2
	}
	switch fate {
	case 1: // the request is lost
		return errCut
	case 2: // no answer at all
		<-ctx.Done()
		return ctx.Err()
	case 3: // done, but the reply is lost
		_ = send(ctx)
		return errCut
	case 4: // done, but the reply never comes
		_ = send(ctx)
		<-ctx.Done()
		return ctx.Err()
	}
	if fate == 5 {
		_ = send(ctx) // twice
	}
	err := send(ctx)
	_ = sleep(ctx, time.Duration(w.n(2))*nap)
	return err
}

// blackouts makes it dark now and then.
func (w *weather) blackouts() {
	for !w.calm.Load() {
		time.Sleep(time.Duration(w.n(60000)) * time.Millisecond)
		w.dark.Store(true)
		time.Sleep(time.Duration(w.n(20000)) * time.Millisecond)
		w.dark.Store(false)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err() // a timer that is over at once may crash Go 1.26 here, with -race
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *weather) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	var mu sync.Mutex // a copy answers, too
	var res driver.Result
	err := w.through(ctx, func(ctx context.Context) error {
		got, err := w.Driver.Try(ctx, r)
		mu.Lock()
		defer mu.Unlock()
		res = got
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	return res, err
}

func (w *weather) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	var wg sync.WaitGroup // each request by its own link
	for i := range rs {
		wg.Go(func() {
			var mu sync.Mutex
			var ans driver.Renewal
			err := w.through(ctx, func(ctx context.Context) error {
				w.Driver.Renew(ctx, rs[i:i+1], func(_ int, r driver.Renewal) {
					mu.Lock()
					defer mu.Unlock()
					ans = r
				})
				return nil
			})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				done(i, ans)
			case w.n(2) == 0:
				done(i, driver.Renewal{Err: err})
			} // else: never reported
		})
	}
	wg.Wait()
}

func (w *weather) Release(ctx context.Context, r driver.ReleaseRequest) error {
	return w.through(ctx, func(ctx context.Context) error { return w.Driver.Release(ctx, r) })
}

// Watch loses every fifth hint.
func (w *weather) Watch(ctx context.Context, r driver.Claim) (<-chan driver.Hint, error) {
	var in <-chan driver.Hint
	err := w.through(ctx, func(c context.Context) (err error) {
		if c.Done() != nil { // a copy has no use
			in, err = w.Driver.Watch(ctx, r)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return fault.Relay(ctx, in, func(h driver.Hint) (driver.Hint, bool) { return driver.Hint{}, w.calm.Load() || w.n(5) > 0 }), nil
}

// stressed is one worker: it locks, works and releases in random ways.
type stressed struct {
	c    *hasp.Client
	rnd  *rand.Rand
	hist *history.Log
}

func (s *stressed) ms(n int) time.Duration { return time.Duration(1+s.rnd.IntN(n)) * time.Millisecond }

// face returns a lock of a key, of any kind, and its limit.
func (s *stressed) face(key string, o *hasp.LockOptions) (hasp.Locker, int) {
	if o.Cohort > 0 || o.Keep > 0 {
		return s.c.Mutex(key, o), 0
	}
	switch s.rnd.IntN(8) {
	case 0:
		return s.c.Mutex(key, o), 0
	case 1, 2:
		return s.c.RWMutex(key, o), 0
	case 3:
		return s.c.Election(key, o), 0
	case 4:
		limit := 2 + s.rnd.IntN(2)
		return s.c.Semaphore(key, limit, o), limit
	default:
		return s.c.RWMutex(key, o).RLocker(), 0
	}
}

func (s *stressed) once(key string) {
	o := &hasp.LockOptions{TTL: 5*time.Second + s.ms(15000), NoRenew: s.rnd.IntN(4) == 0, Reentrant: s.rnd.IntN(2) == 0}
	if s.rnd.IntN(4) == 0 {
		o.Lead = o.TTL / 3
	}
	if s.rnd.IntN(4) == 0 {
		o.MaxHold = o.Lead + s.ms(25000)
	}
	if s.rnd.IntN(3) == 0 { // equal options, or they would not be one cohort
		o = &hasp.LockOptions{TTL: 10 * time.Second, Reentrant: true, Cohort: 40 * time.Second}
	}
	if s.rnd.IntN(3) == 0 {
		o = &hasp.LockOptions{TTL: 10 * time.Second, Reentrant: true, Keep: 20 * time.Second}
		if s.rnd.IntN(3) == 0 {
			o.Cohort = 40 * time.Second
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.ms(60000))
	defer cancel()
	lock, limit := s.face(key, o)
	if s.rnd.IntN(6) == 0 {
		s.both(ctx, key, o, lock, limit)
		return
	}
	ask := lock.Lock
	if s.rnd.IntN(4) == 0 {
		ask = lock.TryLock
	}
	lease, err := ask(ctx)
	if err != nil {
		time.Sleep(s.ms(100))
		return
	}
	s.hold(lease, o, limit)
}

// both holds both keys.
func (s *stressed) both(ctx context.Context, key string, o *hasp.LockOptions, lock hasp.Locker, limit int) {
	other, otherLimit := s.face(string('a'+'b'-rune(key[0])), o)
	ask := hasp.Locks.Lock
	if s.rnd.IntN(4) == 0 {
		ask = hasp.Locks.TryLock
	}
	all, err := ask(hasp.Locks{lock, other}, ctx)
	if err != nil {
		time.Sleep(s.ms(100))
		return
	}
	var held []*history.Hold
	for i, l := range all.All() {
		held = append(held, s.believes(l, []int{limit, otherLimit}[i]))
	}
	_ = sleep(all.Context(context.Background()), s.ms(10000))
	for _, h := range held {
		s.hist.Released(h)
	}
	_ = all.Release()
}

func (s *stressed) believes(l *hasp.Lease, limit int) *history.Hold {
	return s.hist.Acquired(history.Hold{Key: l.Key(), Owner: l.Owner(), Fence: l.Fence(),
		Shared: l.Mode() == hasp.Shared, Limit: limit, Slot: l.Slot()}, forever)
}

// hold believes in a lease until its context ends or it is released.
func (s *stressed) hold(lease *hasp.Lease, o *hasp.LockOptions, limit int) {
	mine := lease.Context(context.Background())
	held := s.believes(lease, limit)
	nested, _ := s.face(lease.Key(), o)
	inner, err := nested.Lock(mine)
	if s.rnd.IntN(3) == 0 {
		_ = lease.Extend(mine, o.TTL+s.ms(9000))
	}
	_ = sleep(mine, s.ms(15000))
	if lease.Mode() == hasp.Exclusive && (err != nil || inner.Mode() == hasp.Shared) && s.rnd.IntN(2) == 0 {
		s.hist.Downgraded(held)
		down, cancel := context.WithTimeout(mine, s.ms(10000))
		_ = lease.Downgrade(down)
		cancel()
	}
	_ = sleep(mine, s.ms(15000))
	if lease.Err() == nil && err == nil {
		_ = inner.Release() // the outer one holds on
	}
	_ = sleep(mine, s.ms(100))
	s.hist.Released(held)
	for range 1 + s.rnd.IntN(3) { // at once, by several
		go func() { _ = lease.Release() }()
	}
	_ = lease.Release()
	if err == nil {
		_ = inner.Release()
	}
}

// Random mixes of clients, modes, options, cancelled waits, lost, late and doubled messages, hung calls and clock jumps: nobody believes to
// hold a key beside a holder that excludes it, fences rise, all continues once the network is healthy again, and nothing is left behind.
func TestStress(t *testing.T) {
	for seed := range uint64(*stressSeeds) {
		t.Run(fmt.Sprint(*stressFirst+seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stress(t, *stressFirst+seed) })
		})
	}
}

func stress(t *testing.T, seed uint64) {
	store := newStore()
	hist := &history.Log{}
	var calm atomic.Bool
	var all []*weather
	var clients []*hasp.Client
	var wg sync.WaitGroup
	for n := range uint64(3) {
		w := &weather{Driver: store, calm: &calm, rnd: rand.New(rand.NewPCG(seed, n))}
		go w.blackouts()
		c, err := hasp.New(w, nil)
		need(t, err)
		var ahead atomic.Int64 // of the clock that counts suspended time
		hasp.SetClock(c, func() clock.Instant {
			now := bubble()
			now.Wall += time.Duration(ahead.Load())
			return now
		})
		all, clients = append(all, w), append(clients, c)
		for i := range uint64(4) {
			s := &stressed{c, rand.New(rand.NewPCG(seed, 100*n+i)), hist}
			wg.Go(func() {
				for range 12 {
					s.once(string('a' + rune(s.rnd.IntN(2))))
					if s.rnd.IntN(20) == 0 {
						ahead.Add(int64(s.ms(12000)) - int64(3*time.Second))
					}
				}
			})
		}
	}
	wg.Wait()
	calm.Store(true)
	start := time.Now()
	for _, c := range clients {
		for _, key := range []string{"a", "b"} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				lease, err := c.Mutex(key, nil).Lock(ctx)
				if err != nil {
					t.Errorf("%q: no progress in good weather: %v", key, err)
					return
				}
				held := hist.Acquired(history.Hold{Key: key, Owner: lease.Owner(), Fence: lease.Fence()}, forever)
				time.Sleep(10 * time.Millisecond)
				hist.Released(held)
				release(t, lease)
			})
		}
	}
	wg.Wait()
	// Calls that hang may take their 5 s; no key waits for the end of a TTL.
	took := time.Since(start)
	failIf(t, took > 8*time.Second, "it took %v of good weather until all had their turn", took)
	for _, c := range clients {
		check(t, c.Close())
	}
	for _, w := range all {
		w.late.Wait()
	}
	time.Sleep(2 * time.Minute) // the weather's own; a goroutine of hasp's that stayed fails the bubble
	mustBeFree(t, store, "a", "b")
	check(t, history.Check(hist.Holds()))
}

// A client that is closed at any moment ends soon, and leaves nothing: at once in good weather.
func TestCloseAtAnyMoment(t *testing.T) {
	for seed := range uint64(*stressSeeds) {
		for _, calm := range []bool{true, false} {
			t.Run(fmt.Sprint(*stressFirst+seed, calm), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { closed(t, *stressFirst+seed, calm) })
			})
		}
	}
}

func closed(t *testing.T, seed uint64, good bool) {
	store, hist, most := newStore(), &history.Log{}, 7*time.Second
	var calm atomic.Bool
	if calm.Store(good); good {
		most = 0
	}
	var all []*weather
	var wg sync.WaitGroup
	for n := range uint64(3) {
		w := &weather{Driver: store, calm: &calm, rnd: rand.New(rand.NewPCG(seed, n))}
		go w.blackouts()
		all = append(all, w)
		var leases atomic.Int64
		c, err := hasp.New(w, &hasp.Options{Observe: func(_ context.Context, e *event.Event) { leases.Add(int64(e.LeaseDelta)) }})
		need(t, err)
		for i := range uint64(6) {
			s := &stressed{c, rand.New(rand.NewPCG(seed, 100*n+i)), hist}
			wg.Go(func() {
				for range 6 {
					s.once(string('a' + rune(s.rnd.IntN(2))))
				}
			})
		}
		wg.Go(func() {
			time.Sleep(time.Duration(w.n(60000)) * time.Millisecond)
			start := time.Now()
			err := c.Close()
			took := time.Since(start)
			failIf(t, took > most || good && err != nil, "Close took %v: %v", took, err)
			time.Sleep(time.Second) // calls of its workers end
			failIf(t, leases.Load() != 0, "after Close its events count %d leases", leases.Load())
		})
	}
	wg.Wait()
	if good {
		mustBeFree(t, store, "a", "b")
	}
	calm.Store(true)
	for _, w := range all {
		w.late.Wait()
	}
	time.Sleep(2 * time.Minute)
	mustBeFree(t, store, "a", "b")
	check(t, history.Check(hist.Holds()))
}

// Turns with reserved fences (Cohort, Keep) rise above all earlier grants while the store keeps its leases, whatever the network does.
// Where it loses one, and grants the key again before that lease was over, exclusion is broken, and the turns that still go on have smaller
// fences: of a lease that the store confirmed before the other's grant, and no other. A guard refuses each of these.
func TestReservedFencesFallWithExclusionOnly(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for _, loses := range []bool{false, true} {
		falls := 0
		for seed := range seeds {
			synctest.Test(t, func(t *testing.T) { falls += reservedTurns(t, seed, loses) })
		}
		t.Logf("the store loses leases: %v; %d fences fell", loses, falls)
		failIf(t, loses != (falls > 0), "the store loses leases: %v, and %d fences fell", loses, falls)
	}
}

// reservedTurns has two clients of several workers use a key on a bad network, and returns how many fences fell.
func reservedTurns(t *testing.T, seed uint64, loses bool) (falls int) {
	store := newStore()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	type grant struct {
		fence uint64
		at    time.Time
	}
	var mu sync.Mutex
	var largest grant // of all until now
	var guard fence.Memory
	granted := func(l *hasp.Lease) {
		mu.Lock()
		defer mu.Unlock()
		now, confirmed := time.Now(), l.Deadline().Add(-usable)
		err := guard.Write("k", l.Fence(), func() error { return nil })
		if l.Fence() > largest.fence {
			largest = grant{l.Fence(), now}
			failIf(t, err != nil, "the guard refuses the largest fence: %v", err)
			return
		}
		falls++
		if stale := new(fence.StaleError); confirmed.After(largest.at) || !errors.As(err, &stale) {
			t.Errorf("seed %d: fence %d, of a lease confirmed at %v, after %d, granted at %v; the guard: %v",
				seed, l.Fence(), confirmed, largest.fence, largest.at, err)
		}
	}
	var all sync.WaitGroup
	for client := range uint64(2) {
		c := newClient(t, &hooked{Driver: store}, nil)
		o := &hasp.LockOptions{Cohort: 5 * time.Second}
		if rand.New(rand.NewPCG(seed, client)).IntN(4) > 0 {
			o.Keep = 20 * time.Second
		}
		for worker := range uint64(3) {
			rnd := rand.New(rand.NewPCG(seed, 10*client+worker+100))
			pause := func(most time.Duration) { time.Sleep(time.Duration(rnd.Int64N(int64(most)))) }
			all.Go(func() {
				for ctx.Err() == nil {
					limited, cancel := context.WithTimeout(ctx, 20*time.Second)
					if lease, err := c.Mutex("k", o).Lock(limited); err == nil {
						granted(lease)
						pause(200 * time.Millisecond)
						_ = lease.Release()
					}
					cancel()
					pause(2 * time.Second)
				}
			})
		}
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Second))))
		store.SetUnreachable(rnd.IntN(3) == 0)
		if rnd.IntN(3) == 0 {
			time.Sleep(time.Duration(rnd.Int64N(int64(2 * ttl))))
		}
		store.SetUnreachable(false)
		if loses && rnd.IntN(2) == 0 {
			store.Lose("k")
		}
	}
	all.Wait()
	return falls
}
