// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/memdriver"
)

// plain is an engine that promises as little as possible: no queue, no hints, no fences,
// no sharing.
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
			res.Fence = 0
			if !res.Granted {
				res.RetryIn = min(poll, max(res.Left, 1))
			}
			return res, err
		},
		watch: func(ctx context.Context, _ driver.Claim) (<-chan struct{}, error) {
			return nil, ctx.Err()
		},
		inspect: func(ctx context.Context, key string) (driver.Info, error) {
			info, err := s.Inspect(ctx, key)
			noFences(&info)
			return info, err
		},
	}}
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
