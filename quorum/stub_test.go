// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/ballot"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/memdriver"
)

var need, check = expect.Need, expect.Check

// stub is a node in memory of which a test says what some of its methods do, and which
// counts its calls.
type stub struct {
	*memdriver.Store
	traits   func(driver.Traits) driver.Traits
	class    func(error) driver.Class
	vote     func(ctx context.Context, r voting.VoteRequest) (driver.Result, error)
	withdraw func(ctx context.Context, r voting.WithdrawRequest) error
	renew    func(ctx context.Context, r driver.RenewRequest) driver.Renewal
	record   func(ctx context.Context) (voting.Record, error)
	admit    func() error
	inspect  func(ctx context.Context, key string) (driver.Info, error)
	list     func(yield func(driver.Info, error) bool)
	watch    func(ctx context.Context) (<-chan driver.Hint, error)

	votes, withdraws, renews, records, inspects, watches atomic.Int64
}

func (s *stub) Traits() driver.Traits {
	if s.traits != nil {
		return s.traits(s.Store.Traits())
	}
	return s.Store.Traits()
}

func (s *stub) Classify(err error) driver.Class {
	switch {
	case s.class != nil:
		return s.class(err)
	case errors.Is(err, errGone):
		return driver.ClassUnreachable
	}
	return driver.ClassUnknown
}

func (s *stub) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	s.votes.Add(1)
	if s.vote != nil {
		return s.vote(ctx, r)
	}
	return s.Store.Vote(ctx, r)
}

func (s *stub) Withdraw(ctx context.Context, r voting.WithdrawRequest) error {
	s.withdraws.Add(1)
	if s.withdraw != nil {
		return s.withdraw(ctx, r)
	}
	return s.Store.Withdraw(ctx, r)
}

func (s *stub) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	s.renews.Add(1)
	if s.renew == nil {
		s.Store.Renew(ctx, rs, done)
		return
	}
	for i, r := range rs {
		done(i, s.renew(ctx, r))
	}
}

func (s *stub) Record(ctx context.Context) (voting.Record, error) {
	s.records.Add(1)
	if s.record != nil {
		return s.record(ctx)
	}
	return s.Store.Record(ctx)
}

func (s *stub) Admit(ctx context.Context, r voting.Record, maxTTL time.Duration) error {
	if s.admit != nil {
		return s.admit()
	}
	return s.Store.Admit(ctx, r, maxTTL)
}

func (s *stub) Inspect(ctx context.Context, key string) (driver.Info, error) {
	s.inspects.Add(1)
	if s.inspect != nil {
		return s.inspect(ctx, key)
	}
	return s.Store.Inspect(ctx, key)
}

func (s *stub) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	if s.list != nil {
		return s.list
	}
	return s.Store.List(ctx, prefix)
}

func (s *stub) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	s.watches.Add(1)
	if s.watch != nil {
		return s.watch(ctx)
	}
	return s.Store.Watch(ctx, c)
}

// stubs returns a driver that was asked for nothing yet, and its three nodes, which vote:
// the first by name, which will have the queue, comes first.
func stubs(t *testing.T) (*Driver, [3]*stub) {
	t.Helper()
	d, all := manyStubs(t, 3)
	return d, [3]*stub(all)
}

func manyStubs(t *testing.T, n int) (*Driver, []*stub) {
	t.Helper()
	all := make([]*stub, n)
	for i, s := range newStores(t, n) {
		all[i] = &stub{Store: s}
	}
	return over(t, all, nil), all
}

// admit lets a node vote, and returns its name.
func admit(t testing.TB, n voting.Recorded, ttl time.Duration) (name string) {
	t.Helper()
	rec, err := n.Record(t.Context())
	need(t, errors.Join(err, n.Admit(t.Context(), rec, ttl)))
	return rec.Run
}

// admitted lets nodes vote, and returns them in the order of their names: the first has the queue.
func admitted[N interface {
	comparable
	voting.Recorded
}](t testing.TB, ttl time.Duration, all []N) []N {
	t.Helper()
	names := map[N]string{}
	for _, n := range all {
		names[n] = admit(t, n, ttl)
	}
	slices.SortFunc(all, func(a, b N) int { return cmp.Compare(names[a], names[b]) })
	return all
}

// over returns a driver of nodes that was asked for nothing yet.
func over[N voting.Node](t testing.TB, all []N, o *Options) *Driver {
	t.Helper()
	nodes := make([]voting.Node, len(all))
	for i, n := range all {
		nodes[i] = n
	}
	d := New(nodes, o)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// queueAt makes a node the first by name, until the nodes say who they are.
func queueAt(d *Driver, i int) {
	for k, n := range d.nodes {
		name := string(rune('b' + k))
		if k == i {
			name = "a"
		}
		n.life.Store(&name)
	}
	d.route()
}

// setOut takes a node out of service, and probes it not.
func (n *node) setOut(why error) {
	n.mu.Lock()
	n.out = why
	n.mu.Unlock()
	n.d.route()
}

// why says why a node is out of service.
func (n *node) why() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.out
}

func setOf(nodes ...int) (s ballot.Set) {
	for _, n := range nodes {
		s.Add(n)
	}
	return s
}

func heldFor(left time.Duration) error { return &admission.HeldBack{Left: left} }

func leftOf(err error) time.Duration {
	held := (*admission.HeldBack)(nil)
	if errors.As(err, &held) {
		return held.Left
	}
	return 0
}

// failIf fails a test, which goes on, when what it saw is wrong.
func failIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Errorf(format, args...)
	}
}

// stopIf ends a test when what it saw is wrong.
func stopIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Fatalf(format, args...)
	}
}

// bubbled runs a case in a bubble of its own.
func bubbled(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
