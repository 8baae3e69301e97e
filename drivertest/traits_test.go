// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/memdriver"
)

// plain is an engine that promises as little as possible: no queue, no hints, no fences,
// no sharing, no marks; nor does it know how long a lease lasts.
func plain(s *memdriver.Store) driver.Driver {
	const poll = 20 * time.Millisecond
	return struct{ driver.Driver }{&patched{Store: s,
		traits: func(t driver.Traits) driver.Traits {
			return driver.Traits{Engine: "plain", MinTTL: t.MinTTL}
		},
		try: func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
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
		},
		watch: func(ctx context.Context, _ driver.Claim) (<-chan struct{}, error) {
			return nil, ctx.Err()
		},
		inspect: func(ctx context.Context, key string) (driver.Info, error) {
			info, err := s.Inspect(ctx, key)
			return plainly(info), err
		},
		list: vagueList(s, plainly),
	}}
}

// plainly is what a plain engine knows of a key.
func plainly(info driver.Info) driver.Info {
	noFences(&info)
	return vaguely(info)
}

func vagueList(s *memdriver.Store, view func(driver.Info) driver.Info) func(context.Context, string) iter.Seq2[driver.Info, error] {
	return func(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
		return func(yield func(driver.Info, error) bool) {
			for info, err := range s.List(ctx, prefix) {
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
		s := memdriver.New()
		p := &patched{Store: s,
			try: func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
				res, err := s.Vote(ctx, r)
				res.Left = 0
				return res, err
			},
			inspect: func(ctx context.Context, key string) (driver.Info, error) {
				info, err := s.Inspect(ctx, key)
				return vaguely(info), err
			},
			list: vagueList(s, vaguely),
		}
		return drivertest.Store{Open: func() driver.Driver { return p }}
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
