// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package fault_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/fault"
	"github.com/hasplock/hasp/memdriver"
)

var (
	a = contend.Owner{Key: "k", Owner: strings.Repeat("A", driver.OwnerLen), TTL: time.Minute, Patience: time.Minute}
	b = contend.Owner{Key: "k", Owner: strings.Repeat("B", driver.OwnerLen), TTL: time.Minute, Patience: time.Minute}
)

// always does the same to every call of one method.
func always(op fault.Op, f fault.Fault) fault.Script {
	return func(c fault.Call) fault.Fault {
		if c.Op == op {
			return f
		}
		return fault.Fault{}
	}
}

func held(t *testing.T, d driver.Driver) bool {
	t.Helper()
	info, err := d.Inspect(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return info.Held
}

func TestFaultsOfTry(t *testing.T) {
	for name, c := range map[string]struct {
		f       fault.Fault
		err     error
		carried bool // the store granted
		took    time.Duration
	}{
		"none":  {carried: true},
		"delay": {f: fault.Fault{Delay: time.Second}, carried: true, took: time.Second},
		"error": {f: fault.Fault{Err: fault.ErrLink}, err: fault.ErrLink},
		"hang":  {f: fault.Fault{Hang: true}, err: context.DeadlineExceeded, took: time.Hour},
		"long delay": {f: fault.Fault{Delay: 2 * time.Hour},
			err: context.DeadlineExceeded, took: time.Hour},
		"twice": {f: fault.Fault{Twice: true}, carried: true},
		"late":  {f: fault.Fault{Late: time.Second}, carried: true, took: time.Second},
		"lost":  {f: fault.Fault{Lost: fault.ErrLink}, err: fault.ErrLink, carried: true},
		"mute":  {f: fault.Fault{Mute: true}, err: context.DeadlineExceeded, carried: true, took: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := fault.New(memdriver.New(), always(fault.Try, c.f))
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				r, start := a, time.Now()
				r.TTL = 3 * time.Hour
				res, err := contend.Try(ctx, d, r)
				if !errors.Is(err, c.err) || res.Granted != (err == nil) || time.Since(start) != c.took {
					t.Errorf("%+v, %v after %v", res, err, time.Since(start))
				}
				if held(t, d) != c.carried {
					t.Errorf("carried out: %v, want %v", !c.carried, c.carried)
				}
			})
		})
	}
}

// A request that is sent twice is answered as if it was sent once: a Release
// does not say "not held".
func TestTwice(t *testing.T) {
	d := fault.New(memdriver.New(), func(fault.Call) fault.Fault { return fault.Fault{Twice: true} })
	if res, err := contend.Try(t.Context(), d, a); err != nil || !res.Granted {
		t.Fatal(res, err)
	}
	reports := 0
	contend.Renew(t.Context(), d, []contend.Owner{a, b}, func(i int, r driver.Renewal) {
		reports++
		if (i == 0) != (r.Err == nil) {
			t.Errorf("renewal %d: %v", i, r.Err)
		}
	})
	if reports != 2 {
		t.Errorf("%d reports", reports)
	}
	if err := contend.Release(t.Context(), d, a); err != nil {
		t.Error(err)
	}
	if held(t, d) {
		t.Error("still held")
	}
}

func TestOtherMethods(t *testing.T) {
	d := fault.New(memdriver.New(), nil)
	if _, err := contend.Try(t.Context(), d, a); err != nil {
		t.Fatal(err)
	}
	d.Set(func(fault.Call) fault.Fault { return fault.Fault{Err: fault.ErrLink} })
	contend.Renew(t.Context(), d, []contend.Owner{a}, func(int, driver.Renewal) { t.Error("a lost Renew reported") })
	if err := contend.Release(t.Context(), d, a); err != fault.ErrLink {
		t.Error(err)
	}
	if _, err := contend.Watch(t.Context(), d, a); err != fault.ErrLink {
		t.Error(err)
	}
	if _, err := d.Inspect(t.Context(), "k"); err != fault.ErrLink {
		t.Error(err)
	}
	for _, err := range d.List(t.Context(), "") {
		if err != fault.ErrLink {
			t.Error(err)
		}
	}
	if c := d.Classify(fault.ErrLink); c != driver.ClassUnreachable {
		t.Errorf("class %d", c)
	}
	if d.Set(nil); !held(t, d) {
		t.Error("a lost Release was carried out")
	}
	keys := 0
	for _, err := range d.List(t.Context(), "") {
		if keys++; err != nil {
			t.Error(err)
		}
	}
	if keys != 1 || d.Count(fault.List) != 2 || d.Count(fault.Release) != 1 {
		t.Errorf("%d keys, %d Lists, %d Releases", keys, d.Count(fault.List), d.Count(fault.Release))
	}
}

// A gate stops a call before the store sees it, or before its answer is seen,
// and says that it is there.
func TestGates(t *testing.T) {
	before, after := fault.NewGate(), fault.NewGate()
	d := fault.New(memdriver.New(), always(fault.Try, fault.Fault{Before: before, After: after}))
	done := make(chan error)
	go func() {
		_, err := contend.Try(t.Context(), d, a)
		done <- err
	}()
	<-before.Arrived()
	if held(t, d) {
		t.Error("the request passed a gate that is shut")
	}
	before.Open()
	<-after.Arrived()
	if !held(t, d) {
		t.Error("the request did not reach the store")
	}
	select {
	case err := <-done:
		t.Errorf("the answer passed a gate that is shut: %v", err)
	default:
	}
	after.Open()
	after.Open()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A channel of hints that an engine closes, against the contract, keeps no goroutine busy.
func TestRelayEndsWithItsHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hints := make(chan driver.Hint)
		close(hints)
		fault.Relay(context.Background(), hints, func(h driver.Hint) (driver.Hint, bool) {
			t.Error("it passed on a hint that was not sent")
			return h, true
		})
		synctest.Wait()
	})
}
