// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/memdriver"
)

// A case that must renew in time begins anew, in another store and with more time, where a request took
// a good part of the TTL; but a store that is quick is judged at once, and the third one in any case.
func TestTimelyCasesBeginAnew(t *testing.T) {
	const ttl = time.Second
	for name, c := range map[string]struct {
		slow, broken int // so many of the stores
		stores       int
		fails        bool
	}{
		"slow twice":         {slow: 2, broken: 2, stores: 3},
		"slow once":          {slow: 1, broken: 1, stores: 2},
		"quick, and wrong":   {broken: 1, stores: 1, fails: true},
		"slow, always wrong": {slow: 9, broken: 9, stores: 3, fails: true},
	} {
		for _, rule := range []string{"RenewKeepsThePlace", "LockOutlivesManyTTLs"} {
			t.Run(name+"/"+rule, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					stores := 0
					h := drivertest.Harness{TTL: ttl, New: func(testing.TB) drivertest.Store {
						n := stores
						stores++
						s := memdriver.New()
						return drivertest.Store{Open: func() driver.Driver {
							p := patch(s)
							p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
								if n < c.slow {
									time.Sleep(6 * ttl << n / 3) // a third of the TTL that the case has there
								}
								if n < c.broken {
									return driver.Renewal{Err: driver.ErrNotHeld}
								}
								return renewOne(ctx, s, r)
							}
							return p
						}}
					}}
					r := run(t, caseOf(t, rule), h)
					if r.failed != c.fails || stores != c.stores {
						t.Errorf("failed: %v, want %v; %d stores, want %d: %s", r.failed, c.fails, stores, c.stores, r.log.String())
					}
				})
			})
		}
	}
}

// A case begins anew where the store was silent for longer than a Release takes; but a failure that came at once is one.
func TestSilentStoresAreAskedAnew(t *testing.T) {
	for name, c := range map[string]struct {
		silent, failing int // so many of the stores
		stores          int
		fails           bool
	}{
		"silent once":   {silent: 1, stores: 2},
		"silent always": {silent: 9, stores: 6, fails: true},
		"failing":       {failing: 9, stores: 1, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stores := 0
				h := drivertest.Harness{New: func(testing.TB) drivertest.Store {
					n := stores
					stores++
					s := memdriver.New()
					return drivertest.Store{Open: func() driver.Driver {
						p := patch(s)
						p.release = func(ctx context.Context, r voting.WithdrawRequest) error {
							if n < c.silent {
								<-ctx.Done()
							}
							if n < c.failing || n < c.silent {
								return context.DeadlineExceeded
							}
							return s.Withdraw(ctx, r)
						}
						return p
					}}
				}}
				r := run(t, caseOf(t, "LostReplyOfADowngrade"), h)
				if r.failed != c.fails || stores != c.stores {
					t.Errorf("failed: %v, want %v; %d stores, want %d: %s", r.failed, c.fails, stores, c.stores, r.log.String())
				}
			})
		})
	}
}

func caseOf(t *testing.T, name string) drivertest.Case {
	for _, c := range drivertest.Cases() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no case %s", name)
	return drivertest.Case{}
}

// plain is an engine that promises as little as possible: no queue, no hints, no fences,
// no sharing, no marks; nor does it know how long a lease lasts.
func plain(s *memdriver.Store) driver.Driver {
	const poll = 20 * time.Millisecond
	p := patch(s)
	p.traits = func(t driver.Traits) driver.Traits { return driver.Traits{Engine: "plain", MinTTL: t.MinTTL} }
	p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
		if r.Mode != driver.Exclusive {
			return driver.Result{}, driver.ErrUnsupported
		}
		r.Queue = false
		res, err := s.Vote(ctx, r)
		res.Fence, res.Abandoned = 0, false
		if !res.Granted {
			res.RetryIn = min(poll, max(res.Left, 1))
		}
		res.Left = 0
		return res, err
	}
	p.watch = func(ctx context.Context, _ driver.Claim) (<-chan driver.Hint, error) { return nil, ctx.Err() }
	p.looks(func(info driver.Info) driver.Info { return vaguely(unfenced(info)) })
	return struct{ driver.Driver }{p}
}

// looks replaces what Inspect and List show of a key.
func (p *patched) looks(view func(driver.Info) driver.Info) {
	p.inspect = func(ctx context.Context, key string) (driver.Info, error) {
		info, err := p.Store.Inspect(ctx, key)
		return view(info), err
	}
	p.list = func(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
		return func(yield func(driver.Info, error) bool) {
			for info, err := range p.Store.List(ctx, prefix) {
				if !yield(view(info), err) {
					return
				}
			}
		}
	}
}

// vaguely is what an engine knows that does not know how long leases last.
func vaguely(info driver.Info) driver.Info {
	info.Left = 0
	for i := range info.Holders {
		info.Holders[i].Left = 0
	}
	return info
}

// An engine passes the cases for what it promises, and the others are skipped with the
// name of the missing trait.
func TestPlainEngine(t *testing.T) {
	h := drivertest.Harness{New: func(testing.TB) drivertest.Store {
		s := memdriver.New()
		return drivertest.Store{Open: func() driver.Driver { return plain(s) }}
	}}
	skipped := 0
	for _, c := range drivertest.Cases() {
		r := record(t, c, h)
		if r.failed {
			t.Errorf("%s: %s", c.Name, r.log.String())
		}
		met := true
		for _, n := range c.Needs {
			if !n.Met(plain(memdriver.New())) {
				met = false
				if !strings.Contains(r.log.String(), n.Trait) {
					t.Errorf("%s was skipped without the trait %s: %s", c.Name, n.Trait, r.log.String())
				}
				break
			}
		}
		if r.skipped {
			skipped++
		}
		if !met && !r.skipped {
			t.Errorf("%s ran, but its needs are not met", c.Name)
		}
	}
	if ran := len(drivertest.Cases()) - skipped; skipped < 20 || ran < 50 {
		t.Errorf("%d of %d cases were skipped", skipped, len(drivertest.Cases()))
	}
}

// An engine need not know how long a lease lasts.
func TestVagueEngine(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Fake: true, New: func(testing.TB) drivertest.Store {
		return drivertest.Store{Open: one(func(s *memdriver.Store, p *patched) {
			p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
				res, err := s.Vote(ctx, r)
				res.Left = 0
				return res, err
			}
			p.looks(vaguely)
		})(memdriver.New())}
	}})
}

// Every case has a name of its own and a rule that is a sentence.
func TestTable(t *testing.T) {
	names := make(map[string]bool)
	for _, c := range drivertest.Cases() {
		if names[c.Name] || c.Name == "" {
			t.Errorf("the name %q is used twice", c.Name)
		}
		names[c.Name] = true
		if !strings.HasSuffix(c.Rule, ".") || len(c.Rule) < 30 {
			t.Errorf("the rule of %s is not a sentence: %q", c.Name, c.Rule)
		}
	}
}

// recorder stands in for a test that is expected to fail.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	skipped  bool
	log      strings.Builder
	cleanups []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Log(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.WriteString(fmt.Sprintln(args...))
}

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) SkipNow() {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) FailNow()                       { r.Fail(); runtime.Goexit() }
func (r *recorder) Logf(format string, a ...any)   { r.Log(fmt.Sprintf(format, a...)) }
func (r *recorder) Error(a ...any)                 { r.Log(a...); r.Fail() }
func (r *recorder) Errorf(format string, a ...any) { r.Logf(format, a...); r.Fail() }
func (r *recorder) Fatal(a ...any)                 { r.Log(a...); r.FailNow() }
func (r *recorder) Fatalf(format string, a ...any) { r.Logf(format, a...); r.FailNow() }
func (r *recorder) Skip(a ...any)                  { r.Log(a...); r.SkipNow() }
func (r *recorder) Skipf(format string, a ...any)  { r.Logf(format, a...); r.SkipNow() }

// record runs one case under a fake clock.
func record(t *testing.T, c drivertest.Case, h drivertest.Harness) *recorder {
	h.Fake = true
	var r *recorder
	synctest.Test(t, func(t *testing.T) { r = run(t, c, h) })
	return r
}

// run runs one case in a bubble.
func run(t *testing.T, c drivertest.Case, h drivertest.Harness) *recorder {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.cleanUp()
		c.Run(r, h)
	}()
	<-done
	time.Sleep(2 * time.Hour) // whatever a broken engine left has ended, and so have requests that were slow
	return r
}

func (r *recorder) cleanUp() {
	for f := r.latest(); f != nil; f = r.latest() {
		f()
	}
}

// latest takes out the Cleanup that was added last; nil: there are no more.
func (r *recorder) latest() func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := len(r.cleanups) - 1
	if last < 0 {
		return nil
	}
	f := r.cleanups[last]
	r.cleanups = r.cleanups[:last]
	return f
}
