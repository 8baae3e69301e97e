// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/fault"
	"github.com/hasplock/hasp/memdriver"
)

// An Observe that panics, above which somebody recovers, takes that call alone:
// nothing of it stays in the store, and those behind it have the key next.
func TestObserverPanics(t *testing.T) {
	for _, f := range []struct {
		name  string
		kinds []event.Kind
		use   func(ctx context.Context, c *hasp.Client) error
	}{
		{"Lock", []event.Kind{event.Waiting, event.Acquired, event.Released}, use(nil)},
		{"cohort", []event.Kind{event.Waiting, event.Acquired, event.Released}, use(inCohort)},
		{"cohort without turns", []event.Kind{event.Released}, use(&hasp.LockOptions{Cohort: time.Nanosecond})},
		{"Locks", []event.Kind{event.Waiting, event.Acquired}, func(ctx context.Context, c *hasp.Client) error {
			all, err := mutexes(c, "a", "k").Lock(ctx)
			if err == nil {
				err = all.Release()
			}
			return err
		}},
	} {
		for _, kind := range f.kinds {
			for victim := range 3 {
				bubbled(t, fmt.Sprint(f.name, kind, victim), func(t *testing.T) {
					store := newStore()
					var armed atomic.Bool
					c := newClient(t, store, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
						if e.Kind == kind && armed.CompareAndSwap(true, false) {
							panic("the observer's")
						}
					}})
					holder := lock(t, newClient(t, store, nil), "k", nil)
					var panicked, locked atomic.Int32
					for i := range 3 {
						if i == victim {
							armed.Store(true)
						}
						go func() {
							defer func() {
								if recover() != nil {
									panicked.Add(1)
								}
							}()
							check(t, f.use(t.Context(), c))
							locked.Add(1)
						}()
						synctest.Wait()
					}
					release(t, holder)
					time.Sleep(time.Second)
					if panicked.Load() != 1 || locked.Load() != 2 {
						t.Errorf("%d calls of 3 panicked, %d had the key and released it", panicked.Load(), locked.Load())
					}
					mustBeFree(t, store, "a", "k")
				})
			}
		}
	}
}

// use returns what locks a key for a while.
func use(o *hasp.LockOptions) func(context.Context, *hasp.Client) error {
	return func(ctx context.Context, c *hasp.Client) error {
		lease, err := c.Mutex("k", o).Lock(ctx)
		if err == nil {
			time.Sleep(time.Millisecond)
			err = lease.Release()
		}
		return err
	}
}

// key of a context's value.
type ctxKey struct{}

// Each event of a call and of its lease has the caller's context, the TTL, and when the request was sent that it answers; a handoff, how
// long it took, and a renewal, how old the lease had become.
func TestEventsSayWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lag = 3 * time.Millisecond
		store := newStore()
		holder := lock(t, newClient(t, store, nil), "k", nil)
		var mu sync.Mutex
		var events []event.Event
		slow := fault.New(store, func(fault.Call) fault.Fault { return fault.Fault{Delay: lag} })
		c := newClient(t, slow, &hasp.Options{Observe: func(ctx context.Context, e *event.Event) {
			mu.Lock()
			defer mu.Unlock()
			failIf(t, ctx.Value(ctxKey{}) != "caller", "%v: of %v", e.Kind, ctx)
			events = append(events, *e)
		}})
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), ctxKey{}, "caller"))
		start := time.Now()
		got := make(chan *hasp.Lease)
		go func() {
			lease, err := c.Mutex("k", &hasp.LockOptions{TTL: 30 * time.Second, Lead: time.Second}).Lock(ctx) // which asks, and does not enter
			check(t, err)
			cancel() // its values stay
			got <- lease
		}()
		time.Sleep(time.Second)
		release(t, holder)
		freed := time.Now()
		lease := <-got
		time.Sleep(15 * time.Second)
		renewed := time.Now()
		release(t, lease)
		mu.Lock()
		defer mu.Unlock()
		want := map[event.Kind]time.Time{event.Waiting: start.Add(lag), event.Acquired: freed, event.Renewed: {}, event.Released: renewed}
		for _, e := range events {
			failIf(t, e.TTL != 30*time.Second, "%v: TTL %v", e.Kind, e.TTL)
			if at, ok := want[e.Kind]; ok && !at.IsZero() && (e.Sent.Before(at) || e.Sent.Sub(at) > 50*lag) {
				t.Errorf("%v: sent at %v, want %v", e.Kind, e.Sent.Sub(start), at.Sub(start))
			}
			failIf(t, e.Kind == event.Acquired && e.Handoff != lag, "a handoff took %v, want %v", e.Handoff, lag)
			if e.Kind == event.Renewed && (e.Age < 9*time.Second || e.Age-e.Sent.Sub(freed) > lag) {
				t.Errorf("renewed at the age of %v by what was sent %v after the grant was asked for", e.Age, e.Sent.Sub(freed))
			}
			delete(want, e.Kind)
		}
		failIf(t, len(want) > 0, "no event of %v", want)
	})
}

// Observers calls all of them in order, and costs nothing where there are none.
func TestObservers(t *testing.T) {
	failIf(t, event.Observers(nil, nil) != nil, "two that are nil make one that is not")
	var got []int
	note := func(n int) func(context.Context, *event.Event) {
		return func(context.Context, *event.Event) { got = append(got, n) }
	}
	event.Observers(note(1), nil, note(2))(t.Context(), &event.Event{})
	event.Observers(nil, note(3))(t.Context(), &event.Event{})
	failIf(t, !slices.Equal(got, []int{1, 2, 3}), "called %v", got)
}

// The memory of an event is used again, so that an observer costs none for a lock and its release.
func TestObserverCostsNoMemory(t *testing.T) {
	pair := func(o *hasp.Options) float64 {
		m := newClient(t, memdriver.New(), o).Mutex("k", nil)
		return testing.AllocsPerRun(200, func() { release(t, must(m.Lock(t.Context()))) })
	}
	without := pair(nil)
	with := pair(&hasp.Options{Observe: func(context.Context, *event.Event) {}})
	failIf(t, with > without, "%v allocations with an observer, %v without", with, without)
}

// counts sums up what the events say of how many leases are held, and how many calls wait.
type counts struct {
	mu              sync.Mutex
	leases, waiters int
}

func (n *counts) observe(_ context.Context, e *event.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leases += e.LeaseDelta
	n.waiters += e.WaiterDelta
}

// want waits until nothing moves any more, and compares.
func (n *counts) want(t *testing.T, when string, leases, waiters int) {
	t.Helper()
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.leases != leases || n.waiters != waiters {
		t.Errorf("%s: %d leases are held and %d calls wait, by the events; want %d and %d", when, n.leases, n.waiters, leases, waiters)
	}
}

// The sums of Event.LeaseDelta and Event.WaiterDelta are exact, whatever is locked and however it ends.
func TestEventsCount(t *testing.T) {
	each := func(name string, test func(t *testing.T, n *counts, d *hooked, c *hasp.Client)) {
		bubbled(t, name, func(t *testing.T) {
			n, d := &counts{}, &hooked{Driver: newStore()}
			c := newClient(t, d, &hasp.Options{Observe: n.observe})
			test(t, n, d, c)
			check(t, c.Close())
			n.want(t, "after Close", 0, 0)
		})
	}
	// begin calls Lock, and returns what ends the wait, and where the lease comes.
	begin := func(t *testing.T, l hasp.Locker) (cancel context.CancelFunc, got chan *hasp.Lease) {
		ctx, cancel := context.WithCancel(t.Context())
		got = make(chan *hasp.Lease, 1)
		go func() {
			lease, err := l.Lock(ctx)
			if err != nil && ctx.Err() == nil && !errors.Is(err, hasp.ErrClosed) {
				t.Error(err)
			}
			got <- lease
		}()
		synctest.Wait()
		return cancel, got
	}
	for name, o := range map[string]*hasp.LockOptions{"Mutex": nil, "cohort": inCohort} {
		each(name, func(t *testing.T, n *counts, d *hooked, c *hasp.Client) {
			m := c.Mutex("k", o)
			other := lock(t, newClient(t, d.Driver, nil), "k", nil)
			if _, err := m.TryLock(t.Context()); !errors.Is(err, hasp.ErrHeld) {
				t.Error(err)
			}
			n.want(t, "after a TryLock", 0, 0)
			stopFirst, _ := begin(t, m)
			_, second := begin(t, m)
			stopThird, _ := begin(t, m)
			_, fourth := begin(t, m)
			n.want(t, "behind another", 0, 4)
			time.Sleep(time.Minute) // they ask again, and are refused
			n.want(t, "a minute later", 0, 4)
			stopFirst()
			n.want(t, "the first one gave up", 0, 3)
			release(t, other)
			time.Sleep(time.Second)
			n.want(t, "it is free", 1, 2)
			stopThird()
			lease := <-second
			n.want(t, "the third one gave up", 1, 1)
			release(t, lease)
			lease = <-fourth
			n.want(t, "the last one has it", 1, 0)
			inner, err := c.Mutex("k", &hasp.LockOptions{Reentrant: true}).Lock(lease.Context(t.Context()))
			need(t, err)
			n.want(t, "twice", 1, 0)
			release(t, lease)
			n.want(t, "once", 1, 0)
			release(t, inner)
			release(t, inner)
			n.want(t, "released", 0, 0)
		})
	}
	each("Locks", func(t *testing.T, n *counts, d *hooked, c *hasp.Client) {
		other := lock(t, newClient(t, d.Driver, nil), "b", nil)
		if _, err := mutexes(c, "a", "b", "c").TryLock(t.Context()); !errors.Is(err, hasp.ErrHeld) {
			t.Error(err)
		}
		n.want(t, "not all", 0, 0)
		got := make(chan *hasp.Leases)
		go func() {
			all, err := mutexes(c, "a", "b", "c", "c").Lock(t.Context())
			check(t, err)
			got <- all
		}()
		n.want(t, "one of three", 1, 1)
		release(t, other)
		all := <-got
		n.want(t, "all", 3, 0)
		check(t, all.Release())
		n.want(t, "none", 0, 0)
	})
	each("Semaphore", func(t *testing.T, n *counts, _ *hooked, c *hasp.Client) {
		s := c.Semaphore("k", 2, nil)
		_, first := begin(t, s)
		begin(t, s)
		begin(t, s)
		n.want(t, "two slots", 2, 1)
		release(t, <-first)
		n.want(t, "handed on", 2, 0)
	})
	each("lost", func(t *testing.T, n *counts, d *hooked, c *hasp.Client) {
		found := lock(t, c, "found by its release", &hasp.LockOptions{NoRenew: true})
		check(t, c.Operator().Break(t.Context(), found.Key(), found.Owner()))
		n.want(t, "broken, which nobody told", 1, 0)
		wantIs(t, found.Release(), hasp.ErrLost)
		n.want(t, "broken and released", 0, 0)
		lease := lock(t, c, "k", &hasp.LockOptions{NoRenew: true})
		lock(t, c, "dropped", &hasp.LockOptions{NoRenew: true})
		n.want(t, "held", 2, 0)
		time.Sleep(hasp.DefaultTTL)
		n.want(t, "lost", 0, 0)
		wantIs(t, lease.Release(), hasp.ErrLost)
		n.want(t, "lost and released", 0, 0)
	})
	each("cohort that loses the key", func(t *testing.T, n *counts, d *hooked, c *hasp.Client) {
		m := c.Mutex("k", &hasp.LockOptions{Cohort: time.Hour, TTL: time.Second})
		d.renew = failRenew(errors.New("no"))
		_, first := begin(t, m)
		_, second := begin(t, m)
		n.want(t, "two", 1, 1)
		time.Sleep(1500 * time.Millisecond)
		n.want(t, "lost, and the next one has it", 1, 0)
		wantIs(t, (<-first).Release(), hasp.ErrLost)
		time.Sleep(2 * time.Second)
		n.want(t, "both are lost", 0, 0)
		wantIs(t, (<-second).Release(), hasp.ErrLost)
	})
	each("trouble", func(t *testing.T, n *counts, d *hooked, c *hasp.Client) {
		d.try = func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) {
			return driver.Result{}, voting.ErrNotVoting
		}
		stop, _ := begin(t, c.Mutex("k", nil))
		time.Sleep(time.Minute)
		n.want(t, "the store is held back", 0, 1)
		stop()
		n.want(t, "it waits no longer", 0, 0)
	})
	each("Close", func(t *testing.T, n *counts, _ *hooked, c *hasp.Client) {
		for range 3 {
			begin(t, c.Mutex("k", nil))
			begin(t, c.Mutex("k", inCohort))
			begin(t, c.Election("k", nil))
		}
		n.want(t, "open", 1, 8)
	})
}

// logged returns the lines that f's locks log, without their times.
func logged(t *testing.T, level slog.Level, f func(t *testing.T, c *hasp.Client, store *memdriver.Store)) []string {
	t.Helper()
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		h := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "owner", "fence":
				return slog.Attr{}
			case "waited", "held": // partly of the machine's own clock
				return slog.String(a.Key, "some")
			}
			return a
		}})
		store := memdriver.New()
		slow := &hooked{Driver: store, try: func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			time.Sleep(time.Millisecond) // of the fake clock
			return next(ctx, r)
		}}
		c, err := hasp.New(slow, &hasp.Options{Observe: event.LogTo(slog.New(h))})
		need(t, err)
		f(t, c, store)
		check(t, c.Close())
	})
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func TestLogTo(t *testing.T) {
	ordinary := func(t *testing.T, c *hasp.Client, _ *memdriver.Store) {
		lease, err := c.Mutex("orders/42", nil).Lock(t.Context())
		need(t, err)
		time.Sleep(time.Second) // of the fake clock
		release(t, lease)
	}
	if got := logged(t, slog.LevelInfo, ordinary); len(got) != 1 || got[0] != "" {
		t.Errorf("normal use is logged above debug: %q", got)
	}
	want := []string{
		`level=DEBUG msg="lock acquired" event=acquired engine=memory key=orders/42 waited=some`,
		`level=DEBUG msg="lock released" event=released engine=memory key=orders/42 held=some`,
	}
	if got := logged(t, slog.LevelDebug, ordinary); !reflect.DeepEqual(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}

	got := logged(t, slog.LevelInfo, func(t *testing.T, c *hasp.Client, store *memdriver.Store) {
		lease, err := c.RWMutex("orders/42", nil).RLock(t.Context())
		need(t, err)
		store.Lose("orders/42")
		<-lease.Done()
		synctest.Wait() // observers are called after the callers
		_ = lease.Release()
	})
	if len(got) != 2 || !strings.HasPrefix(got[0], `level=ERROR msg="lock lost" event=lost engine=memory key=orders/42 mode=shared slot=0 held=`) ||
		!strings.Contains(got[0], `err="hasp: `) || !strings.HasPrefix(got[1], `level=WARN msg="lock was lost before its release" event=released `) {
		t.Errorf("a loss is logged as %q", got)
	}
}

// What a terminal might act on is in no line, whatever the handler does, and lines cannot be forged.
func TestLogToHostileKey(t *testing.T) {
	key := "a\x1b[2J\nlevel=ERROR msg=forged \u202e\xff"
	take := func(t *testing.T, c *hasp.Client, _ *memdriver.Store) {
		if _, err := c.Mutex(key, nil).Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got := logged(t, slog.LevelDebug, take)
	if len(got) != 2 || !strings.Contains(got[0], `key="a\\x1b[2J\\nlevel=ERROR msg=forged \\u202e\\xff"`) {
		t.Errorf("the text handler writes %q", got)
	}
	var out bytes.Buffer
	event.LogTo(slog.New(slog.NewJSONHandler(&out, nil)))(t.Context(), &event.Event{Kind: event.Lost, Key: key, Err: errors.New(key)})
	var line struct{ Key, Msg string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Key != `a\x1b[2J\nlevel=ERROR msg=forged \u202e\xff` || line.Msg != "lock lost" {
		t.Errorf("the JSON handler writes %s: %v", out.String(), err)
	}
}

// A call that ended without a lease is normal use when another owner has the key, or the client was closed.
func TestLogToLevelOfAFailure(t *testing.T) {
	held := &hasp.HeldError{}
	for _, c := range []struct {
		err  error
		want slog.Level
	}{
		{held, slog.LevelDebug},
		{&hasp.Error{Err: &hasp.WaitError{End: context.Canceled, Why: held}}, slog.LevelDebug},
		{&hasp.Error{Err: hasp.ErrClosed}, slog.LevelDebug},
		{&hasp.Error{Err: &hasp.WaitError{End: context.Canceled, Why: errDown}}, slog.LevelWarn},
		{errDown, slog.LevelWarn},
		{context.Canceled, slog.LevelWarn},
	} {
		h := &keepingHandler{Handler: slog.DiscardHandler}
		event.LogTo(slog.New(h))(t.Context(), &event.Event{Kind: event.Failed, Err: c.err})
		failIf(t, len(h.levels) != 1 || h.levels[0] != c.want, "%v is logged as %v, want %v", c.err, h.levels, c.want)
	}
}

// The handler is given the caller's context, and one without values where there is none.
func TestLogToGivesTheContext(t *testing.T) {
	h := &keepingHandler{Handler: slog.DiscardHandler}
	observe := event.LogTo(slog.New(h))
	var none context.Context
	ctx := context.WithValue(t.Context(), ctxKey{}, "caller")
	observe(ctx, &event.Event{Kind: event.Acquired})
	observe(none, &event.Event{Kind: event.Acquired})
	if len(h.contexts) != 2 || h.contexts[0] != ctx || h.contexts[1] == nil || h.contexts[1].Value(ctxKey{}) != nil {
		t.Errorf("the handler was given %v", h.contexts)
	}
}

// keepingHandler keeps what it is given; disabled, it counts how often it was asked.
type keepingHandler struct {
	slog.Handler
	disabled bool
	asked    int
	contexts []context.Context
	levels   []slog.Level
}

func (h *keepingHandler) Enabled(context.Context, slog.Level) bool { h.asked++; return !h.disabled }

func (h *keepingHandler) Handle(ctx context.Context, r slog.Record) error {
	h.contexts, h.levels = append(h.contexts, ctx), append(h.levels, r.Level)
	return nil
}

// An event that is not logged costs no memory, so that a debug line for each renewal of many leases is free.
func TestLogToCostsNothingWhenDisabled(t *testing.T) {
	h := &keepingHandler{Handler: slog.DiscardHandler, disabled: true}
	observe := event.LogTo(slog.New(h))
	e := event.Event{Kind: event.Renewed, Key: "k", Owner: "o", Fence: 7}
	n := testing.AllocsPerRun(100, func() { observe(t.Context(), &e) })
	failIf(t, n != 0 || h.asked == 0, "%v allocations, the handler was asked %d times", n, h.asked)
}

// Of waiters that all ask a store in vain a log has a warning in ten seconds, which says how many it stands for.
func TestLogToInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		observe := event.LogTo(slog.New(slog.NewTextHandler(&out, nil)))
		for i := range 50 { // for 25 s
			for range 4 {
				observe(t.Context(), &event.Event{Kind: event.Trouble, Engine: "redis", Err: io.EOF})
			}
			if i == 20 { // another engine, and all else, is no less told
				observe(t.Context(), &event.Event{Kind: event.HeldBack, Engine: "sqlite", Err: io.EOF})
				observe(t.Context(), &event.Event{Kind: event.Lost, Engine: "redis", Err: io.EOF})
			}
			time.Sleep(500 * time.Millisecond)
		}
		if n := strings.Count(out.String(), "\n"); n != 5 || strings.Count(out.String(), "similar=79") != 2 {
			t.Errorf("%d lines:\n%s", n, out.String())
		}
	})
}

// Every kind has its own text and level, and no field of Event is left out, but what no reader of a log asks for.
func TestLogToIsWhole(t *testing.T) {
	var out bytes.Buffer
	observe := event.LogTo(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for k := event.Waiting; k.String() != "unknown"; k++ {
		out.Reset()
		observe(t.Context(), &event.Event{Kind: k, Key: "k"})
		failIf(t, strings.Contains(out.String(), "lock event") || out.Len() == 0, "%v is logged as %s", k, out.String())
	}
	e := event.Event{Kind: event.Lost, Engine: "x", Key: "k", Owner: "o", Fence: 1, Mode: hasp.Shared, Slot: 1, Holder: hasp.Holder{Owner: "p"},
		Ahead: 1, Left: 1, Waited: 1, Held: 1, Age: 1, Handoff: 1, Callers: "f", Err: errors.New("e")}
	out.Reset()
	observe(t.Context(), &e)
	v := reflect.ValueOf(e)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if slices.Contains([]string{"_", "Kind", "TTL", "Sent", "LeaseDelta", "WaiterDelta"}, name) {
			continue
		}
		failIf(t, v.Field(i).IsZero(), "this test does not set Event.%s", name)
		attr := strings.ToLower(name)
		failIf(t, !strings.Contains(out.String(), " "+attr+"="), "Event.%s is not logged: %s", name, out.String())
	}
}
