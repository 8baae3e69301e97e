// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A request ends with its caller, at its deadline, with the client and with done, whether
// somebody waited for that or not.
func TestRequestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		callers, limit time.Duration
		end            func(r *request, caller, open context.CancelFunc)
		want           error
	}{
		"its caller leaves":       {0, time.Minute, func(_ *request, caller, _ context.CancelFunc) { caller() }, context.Canceled},
		"its caller's time":       {time.Second, time.Minute, func(*request, context.CancelFunc, context.CancelFunc) { time.Sleep(time.Second) }, context.DeadlineExceeded},
		"at its caller's time":    {time.Second, time.Second, func(*request, context.CancelFunc, context.CancelFunc) { time.Sleep(time.Second) }, context.DeadlineExceeded},
		"its own time":            {time.Minute, time.Second, func(*request, context.CancelFunc, context.CancelFunc) { time.Sleep(time.Second) }, context.DeadlineExceeded},
		"the client closes":       {0, time.Minute, func(_ *request, _, open context.CancelFunc) { open() }, context.Canceled},
		"nobody needs its answer": {0, time.Minute, func(r *request, _, _ context.CancelFunc) { r.done() }, context.Canceled},
	} {
		for _, waits := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					caller, leave := context.WithCancel(t.Context())
					defer leave()
					if c.callers != 0 {
						var stop context.CancelFunc
						caller, stop = context.WithTimeout(caller, c.callers)
						defer stop()
					}
					open, shut := context.WithCancel(context.Background())
					defer shut()
					r := newRequest(caller, open, c.limit)
					want := c.limit
					if c.callers != 0 {
						want = min(want, c.callers)
					}
					if by, ok := r.Deadline(); !ok || time.Until(by) != want {
						t.Errorf("its deadline is in %v, want %v", time.Until(by), want)
					}
					var child context.Context
					if waits {
						select {
						case <-r.Done():
							t.Fatal("it has ended")
						default:
						}
						var stop context.CancelFunc
						child, stop = context.WithCancel(r)
						defer stop()
					}
					if err := r.Err(); err != nil {
						t.Fatal(err)
					}
					c.end(r, leave, shut)
					synctest.Wait()
					if err := r.Err(); !errors.Is(err, c.want) {
						t.Errorf("it ended with %v, want %v", err, c.want)
					}
					<-r.Done()
					if waits {
						<-child.Done()
					}
					if err := r.Err(); !errors.Is(err, c.want) {
						t.Errorf("later it ended with %v, want %v", err, c.want)
					}
					r.done()
				})
			})
		}
	}
}

// What nobody waits for leaves no timer and no goroutine, and its values are its caller's.
func TestRequestHasItsCallersValues(t *testing.T) {
	type key struct{}
	r := newRequest(context.WithValue(t.Context(), key{}, "v"), nil, time.Hour)
	defer r.done()
	for range 2 {
		if r.Value(key{}) != "v" {
			t.Error("it has not its caller's values")
		}
		_ = r.Done()
	}
}
