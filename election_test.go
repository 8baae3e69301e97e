// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/history"
)

// A candidate waits for the leader to resign; Leader says who leads.
func TestElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		one, two := newClient(t, store, nil).Election("k", nil), newClient(t, store, nil).Election("k", nil)
		_, err := one.Leader(t.Context())
		wantIs(t, err, hasp.ErrNotHeld)
		lease := must(one.Lock(t.Context()))
		_, err = two.TryLock(t.Context())
		wantIs(t, err, hasp.ErrHeld)
		next := begin(t.Context(), two.Lock)
		synctest.Wait()
		if l := must(two.Leader(t.Context())); l.Key != "k" || l.Holder.Owner != lease.Owner() || l.Fence != lease.Fence() {
			t.Errorf("the leader is %+v", l)
		}
		release(t, lease)
		lease2 := (<-next).v
		if l := must(one.Leader(t.Context())); l.Holder.Owner != lease2.Owner() || l.Fence <= lease.Fence() {
			t.Errorf("the leader is %+v", l)
		}
		release(t, lease2)

		c := newClient(t, store, nil)
		reader := must(c.RWMutex("k", nil).RLock(t.Context()))
		slot := must(c.Semaphore("k", 2, nil).Lock(t.Context()))
		_, err = one.Leader(t.Context())
		wantIs(t, err, hasp.ErrNotHeld) // they do not lead
		release(t, reader)
		release(t, slot)
		_, err = c.Election("", nil).Leader(t.Context())
		failIf(t, err == nil, "an empty key has a leader")
	})
}

// Lead resigns once f returned, and returns f's error.
func TestLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		e := newClient(t, store, nil).Election("k", nil)
		mine := errors.New("mine")
		for _, want := range []error{nil, mine} {
			n := 0
			err := e.Lead(t.Context(), func(ctx context.Context, lease *hasp.Lease) error {
				if n++; ctx.Err() != nil || lease.Err() != nil {
					t.Error(ctx.Err(), lease.Err())
				}
				return want
			})
			failIf(t, !errors.Is(err, want) || n != 1, "%v after %d times", err, n)
			mustBeFree(t, store, "k")
		}
		// f resigns by itself.
		err := e.Lead(t.Context(), func(_ context.Context, lease *hasp.Lease) error {
			release(t, lease)
			return mine
		})
		wantIs(t, err, mine)

		in := must(e.Lock(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = e.Lead(ctx, func(context.Context, *hasp.Lease) error { t.Error("it leads"); return nil })
		wantIs(t, err, context.DeadlineExceeded, hasp.ErrHeld)
		release(t, in)
	})
}

// Lead campaigns again when the lease was lost while f ran, whatever f returned, until its context ends or the client is closed.
func TestLeadCampaignsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		var fence uint64
		err := c.Election("k", nil).Lead(ctx, func(ctx context.Context, lease *hasp.Lease) error {
			if n++; lease.Fence() <= fence {
				t.Errorf("fence %d after %d", lease.Fence(), fence)
			}
			fence = lease.Fence()
			if n == 5 {
				cancel()
				return nil
			}
			store.Lose("k")
			<-ctx.Done()
			wantIs(t, context.Cause(ctx), hasp.ErrLost)
			if n%2 == 0 {
				_ = lease.Release()
				return nil
			}
			return context.Cause(ctx)
		})
		failIf(t, err != nil || n != 5, "%v after %d times", err, n)
		err = c.Election("k", nil).Lead(t.Context(), func(ctx context.Context, _ *hasp.Lease) error {
			go c.Close()
			<-ctx.Done()
			return nil
		})
		wantIs(t, err, hasp.ErrClosed)
		failIf(t, must(store.Inspect(context.Background(), "k")).Held, "held after Close")
	})
}

// By the recorded history there is one leader at most, whatever the network and
// the clocks do: a leader's context ends before another leads.
func TestOneLeaderAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		hist := &history.Log{}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i := range uint64(5) {
			rnd := rand.New(rand.NewPCG(3, i))
			d := &mortal{Driver: store}
			c := newClient(t, d, nil)
			wg.Go(func() { // the network comes and goes
				for sleep(ctx, time.Duration(rnd.IntN(90))*time.Second) == nil {
					d.dead.Store(!d.dead.Load())
				}
				d.dead.Store(false)
			})
			o := &hasp.LockOptions{TTL: 10 * time.Second, Lead: time.Second}
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = c.Election("k", o).Lead(ctx, func(ctx context.Context, lease *hasp.Lease) error {
						held := hist.Acquired(history.Hold{Key: "k", Owner: lease.Owner(), Fence: lease.Fence()}, forever)
						<-ctx.Done()
						hist.Released(held)
						return nil
					})
					_ = sleep(ctx, time.Second) // the store was away for too long
				}
			})
		}
		wg.Wait()
		check(t, history.Check(hist.Holds()))
		failIf(t, len(hist.Holds()) < 10, "only %d leaders", len(hist.Holds()))
	})
}

// Leaders yields the leader at once, and each change; trouble that may pass by itself does not end it.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := hookedMem()
		c := newClient(t, d, nil)
		e := c.Election("k", nil)
		ctx, cancel := context.WithCancel(t.Context())
		seen := make(chan string, 100)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for l, err := range e.Leaders(ctx) {
				switch {
				case err != nil:
					seen <- "error"
				case l.Holder == (hasp.Holder{}):
					seen <- "nobody"
				default:
					seen <- fmt.Sprint(l.Holder.Owner, l.Fence)
				}
			}
		}()
		expect := func(want string) {
			t.Helper()
			start := time.Now()
			got := <-seen
			failIf(t, got != want, "observed %q, want %q", got, want)
			failIf(t, time.Since(start) > time.Second, "observed after %v", time.Since(start))
		}
		expect("nobody")
		for range 2 {
			l := must(e.Lock(t.Context()))
			expect(fmt.Sprint(l.Owner(), l.Fence()))
			time.Sleep(10 * time.Second) // no change
			release(t, l)
			expect("nobody")
		}
		reader := must(c.RWMutex("k", nil).RLock(t.Context()))
		time.Sleep(5 * time.Second) // does not lead
		release(t, reader)
		store.SetUnreachable(true)
		expect("error")
		expect("error")
		store.SetUnreachable(false)
		l := must(e.Lock(t.Context()))
		expect(fmt.Sprint(l.Owner(), l.Fence()))
		cancel()
		<-ended
		if len(seen) > 0 {
			t.Errorf("and %q", <-seen)
		}

		// It ends with the client, with a permanent error, and with its context.
		for _, err := range e.Leaders(t.Context()) {
			check(t, err)
			break
		}
		d.classify = func(error) driver.Class { return driver.ClassImpossible }
		store.SetUnreachable(true)
		n := 0
		for _, err := range e.Leaders(t.Context()) {
			if n++; err == nil {
				t.Error("no error")
			}
		}
		store.SetUnreachable(false)
		var last error
		for _, err := range e.Leaders(t.Context()) {
			if last = err; err == nil {
				go c.Close()
			}
		}
		if wantIs(t, last, hasp.ErrClosed); n != 1 {
			t.Errorf("%d errors where one is for good", n)
		}
		for _, err := range c.Election("", nil).Leaders(t.Context()) {
			last = err
		}
		failIf(t, last == nil, "an empty key can be observed")
	})
}

// inspecting is a driver whose Inspect returns what the test sets.
type inspecting struct {
	driver.Driver
	inspect func(ctx context.Context) (driver.Info, error)
}

func (d *inspecting) Inspect(ctx context.Context, _ string) (driver.Info, error) {
	return d.inspect(ctx)
}

// Nobody leads if the store's answer is not reliable.
func TestLeaderIsWhatTheStoreSays(t *testing.T) {
	leader := driver.Info{Held: true, Holder: driver.Holder{Owner: "O"}, Fence: 7}
	free, reader := leader, leader
	free.Held = false
	reader.Holder.Mode = driver.Shared
	for _, c := range []struct {
		name  string
		info  driver.Info
		err   error
		want  error
		fence uint64
	}{
		{"a leader", leader, nil, nil, 7},
		{"an error", leader, errDown, errDown, 0},
		{"a free key", free, nil, hasp.ErrNotHeld, 0},
		{"a reader", reader, nil, hasp.ErrNotHeld, 0},
	} {
		d := &inspecting{newStore(), func(context.Context) (driver.Info, error) { return c.info, c.err }}
		l, err := newClient(t, d, nil).Election("k", nil).Leader(t.Context())
		if !errors.Is(err, c.want) || c.want == errDown && errors.Is(err, hasp.ErrNotHeld) || l.Fence != c.fence || (l.Holder != hasp.Holder{}) != (c.fence > 0) {
			t.Errorf("%s: %+v, %v", c.name, l, err)
		}
	}
}

// Leaders yields whatever differs of a leader, and nothing twice.
func TestObserveChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		info := func(owner, label string, fence uint64) driver.Info {
			return driver.Info{Held: true, Holder: driver.Holder{Owner: owner, Label: label}, Fence: fence}
		}
		infos := []driver.Info{info("A", "a", 1), info("A", "a", 1), info("B", "a", 1), info("B", "b", 1), info("B", "b", 2), info("B", "b", 2)}
		n := 0
		d := &inspecting{Driver: newStore()}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		d.inspect = func(ctx context.Context) (driver.Info, error) {
			if n++; n > len(infos) {
				cancel()
				<-ctx.Done()
				return driver.Info{}, ctx.Err() // the end of the caller's context is no error of the store
			}
			return infos[n-1], nil
		}
		seen := ""
		for l, err := range newClient(t, d, nil).Election("k", nil).Leaders(ctx) {
			check(t, err)
			seen += fmt.Sprint(l.Holder.Owner, l.Holder.Label, l.Fence, " ")
		}
		want := "Aa1 Ba1 Bb1 Bb2 "
		failIf(t, strings.ReplaceAll(seen, "  ", " ") != want, "observed %q, want %q", seen, want)
	})
}

// Leaders ends with the first error of an invalid election and of a closed client, and with its reader.
func TestObserveEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := newClient(t, newStore(), nil)
		need(t, closed.Close())
		d := &inspecting{newStore(), func(context.Context) (driver.Info, error) { return driver.Info{}, errDown }}
		away := newClient(t, d, nil)
		for _, c := range []struct {
			name string
			e    *hasp.Election
			most int // what is read
		}{
			{"invalid", away.Election("", nil), 10},
			{"closed", closed.Election("k", nil), 10},
			{"the reader has enough", away.Election("k", nil), 1},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			n := 0
			for _, err := range c.e.Leaders(ctx) {
				if n++; err == nil {
					t.Errorf("%s: no error", c.name)
				}
				if n == c.most {
					break
				}
			}
			cancel()
			failIf(t, n != 1, "%s: %d errors", c.name, n)
		}
	})
}

// A leader that is to end, and loses its lease while it does, campaigns no more.
func TestLeadEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		ctx, cancel := context.WithCancel(t.Context())
		mine := errors.New("mine")
		err := newClient(t, store, nil).Election("k", nil).Lead(ctx, func(ctx context.Context, lease *hasp.Lease) error {
			store.Lose("k")
			<-lease.Done()
			cancel()
			return mine
		})
		wantIs(t, err, mine, hasp.ErrLost)
	})
}

// A term that is lost before its function begins is not the last one.
func TestLeadCampaignsAgainAfterALossBeforeItsFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stopped sync.Once
		c := newClient(t, newStore(), &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Acquired {
				stopped.Do(func() { time.Sleep(time.Minute) }) // as if the process stood still
			}
		}})
		terms := 0
		err := c.Election("k", &hasp.LockOptions{TTL: time.Second, NoRenew: true}).Lead(t.Context(), func(context.Context, *hasp.Lease) error {
			terms++
			return nil
		})
		failIf(t, err != nil || terms != 1, "%d terms, %v", terms, err)
	})
}

// An error of the campaign, or a client that is closed, ends Lead: only a lost lease has it campaign again.
func TestLeadEndsWithAnErrorOfTheCampaign(t *testing.T) {
	d := &hooked{Driver: newStore()}
	d.classify = func(error) driver.Class { return driver.ClassMisconfigured }
	d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
		if d.tries.Load() > 3 {
			return next(ctx, r)
		}
		return driver.Result{}, errDown
	}
	c := newClient(t, d, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lead := func() error {
		return c.Election("k", nil).Lead(ctx, func(context.Context, *hasp.Lease) error { return nil })
	}
	wantIs(t, lead(), errDown)
	failIf(t, d.tries.Load() != 1, "it asked %d times", d.tries.Load())
	need(t, c.Close())
	wantIs(t, lead(), hasp.ErrClosed)
	failIf(t, ctx.Err() != nil, "Lead of a closed client went on until its context ended")
}
