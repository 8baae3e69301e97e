// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

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
		c, err := hasp.New(slow, &hasp.Options{Observe: hasp.LogTo(slog.New(h))})
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
		!strings.Contains(got[0], `err="hasp: `) || !strings.HasPrefix(got[1], `level=WARN msg="lock released" event=released `) {
		t.Errorf("a loss is logged as %q", got)
	}
}

// What a terminal might act on is in no line, whatever the handler does, and
// lines cannot be forged.
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
	hasp.LogTo(slog.New(slog.NewJSONHandler(&out, nil)))(hasp.Event{Kind: hasp.EventLost, Key: key, Err: errors.New(key)})
	var line struct{ Key, Msg string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Key != `a\x1b[2J\nlevel=ERROR msg=forged \u202e\xff` || line.Msg != "lock lost" {
		t.Errorf("the JSON handler writes %s: %v", out.String(), err)
	}
}

// A call that ended without a lease is normal use when somebody else has the key, or the client
// was closed.
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
		hasp.LogTo(slog.New(h))(hasp.Event{Kind: hasp.EventFailed, Err: c.err})
		if len(h.levels) != 1 || h.levels[0] != c.want {
			t.Errorf("%v is logged as %v, want %v", c.err, h.levels, c.want)
		}
	}
}

// The handler is given the event's context, and one without values where there is none.
func TestLogToGivesTheContext(t *testing.T) {
	h := &keepingHandler{Handler: slog.DiscardHandler}
	observe := hasp.LogTo(slog.New(h))
	ctx := context.WithValue(t.Context(), ctxKey{}, "caller")
	observe(hasp.Event{Kind: hasp.EventAcquired, Context: ctx})
	observe(hasp.Event{Kind: hasp.EventAcquired})
	if len(h.contexts) != 2 || h.contexts[0] != ctx || h.contexts[1] == nil || h.contexts[1].Value(ctxKey{}) != nil {
		t.Errorf("the handler was given %v", h.contexts)
	}
}

// keepingHandler keeps what it is given.
type keepingHandler struct {
	slog.Handler
	contexts []context.Context
	levels   []slog.Level
}

func (h *keepingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *keepingHandler) Handle(ctx context.Context, r slog.Record) error {
	h.contexts, h.levels = append(h.contexts, ctx), append(h.levels, r.Level)
	return nil
}

// countingHandler is not enabled, and counts the calls of Enabled.
type countingHandler struct {
	slog.Handler
	asked int
}

func (h *countingHandler) Enabled(context.Context, slog.Level) bool { h.asked++; return false }

// An event that is not logged costs no memory, so that a debug line for each
// renewal of many leases is free.
func TestLogToCostsNothingWhenDisabled(t *testing.T) {
	h := &countingHandler{Handler: slog.DiscardHandler}
	observe := hasp.LogTo(slog.New(h))
	e := hasp.Event{Kind: hasp.EventRenewed, Key: "k", Owner: "o", Fence: 7}
	if n := testing.AllocsPerRun(100, func() { observe(e) }); n != 0 || h.asked == 0 {
		t.Errorf("%v allocations, the handler was asked %d times", n, h.asked)
	}
}

// Every kind has its own text and level, and no field of Event is left out, but what no
// reader of a log asks for.
func TestLogToIsWhole(t *testing.T) {
	var out bytes.Buffer
	observe := hasp.LogTo(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for k := hasp.EventWaiting; k.String() != "unknown"; k++ {
		out.Reset()
		observe(hasp.Event{Kind: k, Key: "k"})
		if strings.Contains(out.String(), "lock event") || out.Len() == 0 {
			t.Errorf("%v is logged as %s", k, out.String())
		}
	}
	e := hasp.Event{Kind: hasp.EventLost, Engine: "x", Key: "k", Owner: "o", Fence: 1, Mode: hasp.Shared, Slot: 1, Holder: hasp.Holder{Owner: "p"},
		Ahead: 1, Left: 1, Waited: 1, Held: 1, Age: 1, Handoff: 1, Taken: "f", Err: errors.New("e")}
	out.Reset()
	observe(e)
	v := reflect.ValueOf(e)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if slices.Contains([]string{"Kind", "Context", "TTL", "Sent", "Leases", "Waiters"}, name) {
			continue
		}
		failIf(t, v.Field(i).IsZero(), "this test does not set Event.%s", name)
		if attr := strings.ToLower(name); !strings.Contains(out.String(), " "+attr+"=") {
			t.Errorf("Event.%s is not logged: %s", name, out.String())
		}
	}
}
