// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/memdriver"
)

// patched is the reference engine with parts replaced.
type patched struct {
	*memdriver.Store
	traits  func(driver.Traits) driver.Traits
	try     func(ctx context.Context, r voting.VoteRequest) (driver.Result, error)
	renew   func(ctx context.Context, r driver.RenewRequest) driver.Renewal // of each
	batch   func(rs []driver.RenewRequest, answers []driver.Renewal) (reported int)
	release func(ctx context.Context, r voting.WithdrawRequest) error
	watch   func(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error)
	inspect func(ctx context.Context, key string) (driver.Info, error)
	list    func(ctx context.Context, prefix string) iter.Seq2[driver.Info, error]
	close   func() error
	sweep   func(ctx context.Context, prefix string, held func(driver.Info)) iter.Seq2[operator.Leftover, error]
	remove  func(ctx context.Context, l operator.Leftover) (time.Duration, error)
	record  func(ctx context.Context) (voting.Record, error)
	admit   func(ctx context.Context, r voting.Record, maxTTL time.Duration) error
}

// patch returns the reference engine with nothing replaced.
func patch(s *memdriver.Store) *patched {
	return &patched{Store: s,
		traits: func(t driver.Traits) driver.Traits { return t },
		try:    s.Vote, release: s.Withdraw, watch: s.Watch, inspect: s.Inspect, list: s.List,
		sweep: s.ListLeftovers, remove: s.RemoveLeftover, record: s.Record, admit: s.Admit,
		renew: func(ctx context.Context, r driver.RenewRequest) driver.Renewal { return renewOne(ctx, s, r) },
		batch: func(rs []driver.RenewRequest, _ []driver.Renewal) int { return len(rs) },
		close: func() error { return nil },
	}
}

func (p *patched) Traits() driver.Traits { return p.traits(p.Store.Traits()) }

func (p *patched) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	return p.try(ctx, voting.VoteRequest{TryRequest: r})
}

func (p *patched) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	return p.try(ctx, r)
}

func (p *patched) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	answers := make([]driver.Renewal, len(rs))
	for i, r := range rs {
		answers[i] = p.renew(ctx, r)
	}
	for i := range p.batch(rs, answers) {
		if i < len(answers) {
			done(i, answers[i])
		} else {
			done(i, driver.Renewal{})
		}
	}
}

func (p *patched) Release(ctx context.Context, r driver.ReleaseRequest) error {
	return p.release(ctx, voting.WithdrawRequest{ReleaseRequest: r})
}

func (p *patched) Withdraw(ctx context.Context, r voting.WithdrawRequest) error {
	return p.release(ctx, r)
}

func (p *patched) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	return p.watch(ctx, c)
}

func (p *patched) Inspect(ctx context.Context, key string) (driver.Info, error) {
	return p.inspect(ctx, key)
}

func (p *patched) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return p.list(ctx, prefix)
}

func (p *patched) Operations() operator.Operations {
	return operator.Operations{ListLeftovers: p.sweep, RemoveLeftover: p.remove}
}

func (p *patched) Record(ctx context.Context) (voting.Record, error) { return p.record(ctx) }

func (p *patched) Admit(ctx context.Context, r voting.Record, maxTTL time.Duration) error {
	return p.admit(ctx, r, maxTTL)
}

func (p *patched) Close() error { return p.close() }

// engine makes the clients of a broken engine. It is called once for each store, and its result for each client.
type engine func(s *memdriver.Store) func() driver.Driver

// one is an engine whose clients are all the same.
func one(change func(s *memdriver.Store, p *patched)) engine {
	return func(s *memdriver.Store) func() driver.Driver {
		p := patch(s)
		change(s, p)
		return func() driver.Driver { return p }
	}
}

// each is an engine whose clients differ.
func each(change func(s *memdriver.Store, p *patched)) engine {
	return func(s *memdriver.Store) func() driver.Driver {
		return func() driver.Driver {
			p := patch(s)
			change(s, p)
			return p
		}
	}
}

// remembering is an engine with a memory of its own.
func remembering[M any](f func(m *M) engine) engine {
	return func(s *memdriver.Store) func() driver.Driver { return f(new(M))(s) }
}

func traits(f func(t *driver.Traits)) engine {
	return one(func(_ *memdriver.Store, p *patched) {
		p.traits = func(t driver.Traits) driver.Traits { f(&t); return t }
	})
}

// asking is an engine with another Try.
func asking(f func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error)) engine {
	return one(func(s *memdriver.Store, p *patched) {
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) { return f(ctx, s, r) }
	})
}

// reask returns an engine that changes each request; reply, an engine that changes each answer.
func reask(f func(s *memdriver.Store, r *voting.VoteRequest)) engine {
	return asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		f(s, &r)
		return s.Vote(ctx, r)
	})
}

func reply(f func(s *memdriver.Store, r voting.VoteRequest, res *driver.Result)) engine {
	return asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if err == nil {
			f(s, r, &res)
		}
		return res, err
	})
}

// renewing returns an engine with another Renew; prolong, an engine that changes each request; prolonged, an engine that changes
// each answer.
func renewing(f func(ctx context.Context, s *memdriver.Store, r driver.RenewRequest) driver.Renewal) engine {
	return one(func(s *memdriver.Store, p *patched) {
		p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal { return f(ctx, s, r) }
	})
}

func prolong(f func(s *memdriver.Store, r *driver.RenewRequest)) engine {
	return renewing(func(ctx context.Context, s *memdriver.Store, r driver.RenewRequest) driver.Renewal {
		f(s, &r)
		return renewOne(ctx, s, r)
	})
}

func prolonged(f func(s *memdriver.Store, r driver.RenewRequest, a *driver.Renewal)) engine {
	return renewing(func(ctx context.Context, s *memdriver.Store, r driver.RenewRequest) driver.Renewal {
		a := renewOne(ctx, s, r)
		f(s, r, &a)
		return a
	})
}

// withdrawing returns an engine with another Release; rewithdraw, an engine that changes each request.
func withdrawing(f func(ctx context.Context, s *memdriver.Store, r voting.WithdrawRequest) error) engine {
	return one(func(s *memdriver.Store, p *patched) {
		p.release = func(ctx context.Context, r voting.WithdrawRequest) error { return f(ctx, s, r) }
	})
}

func rewithdraw(f func(s *memdriver.Store, r *voting.WithdrawRequest)) engine {
	return withdrawing(func(ctx context.Context, s *memdriver.Store, r voting.WithdrawRequest) error {
		f(s, &r)
		return s.Withdraw(ctx, r)
	})
}

// relook is an engine that changes the answers of Inspect.
func relook(f func(s *memdriver.Store, info *driver.Info)) engine {
	return one(func(s *memdriver.Store, p *patched) {
		p.inspect = func(ctx context.Context, key string) (driver.Info, error) {
			info, err := s.Inspect(ctx, key)
			f(s, &info)
			return info, err
		}
	})
}

func renewOne(ctx context.Context, d driver.Driver, r driver.RenewRequest) (a driver.Renewal) {
	d.Renew(ctx, []driver.RenewRequest{r}, func(_ int, got driver.Renewal) { a = got })
	return a
}

// looked returns Inspect's answer from a store that never fails.
func looked(s *memdriver.Store, key string) driver.Info {
	info, _ := s.Inspect(context.Background(), key)
	return info
}

// unfenced removes all fences from an answer of Inspect.
func unfenced(info driver.Info) driver.Info {
	info.Fence = 0
	for i := range info.Holders {
		info.Holders[i].Fence = 0
	}
	return info
}

// another is an owner that no case uses.
const another = "ANOTHERANOTHERANOTHERANOTH"

// as returns c in the name of another.
func as(c driver.Claim, h driver.Holder) driver.Claim {
	c.Owner, c.Label = h.Owner, h.Label
	return c
}

// memo is a broken engine's own memory.
type memo[K comparable, V any] struct {
	mu sync.Mutex
	m  map[K]V
}

func (m *memo[K, V]) get(k K) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.m[k]
}

func (m *memo[K, V]) set(k K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.m == nil {
		m.m = make(map[K]V)
	}
	m.m[k] = v
}

func (m *memo[K, V]) each(f func(V)) {
	m.mu.Lock()
	all := slices.Collect(maps.Values(m.m))
	m.mu.Unlock()
	for _, v := range all {
		f(v)
	}
}

// ownQueue is an engine with its own queue over locks without one: pick returns which
// place of the queue is next, -1 for any that asks.
type ownQueue struct {
	*patched
	mu     sync.Mutex
	queues map[string][]driver.Claim
	pick   func(n int) int
}

func ownQueued(pick func(n int) int) engine {
	return one(func(s *memdriver.Store, p *patched) {
		o := &ownQueue{patched: p, queues: make(map[string][]driver.Claim), pick: pick}
		p.try, p.release, p.inspect = o.ask, o.leave, o.look
		p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
			if r.Queue {
				return driver.Renewal{}
			}
			return renewOne(ctx, s, r)
		}
	})
}

func (o *ownQueue) ask(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	waiting := o.queues[r.Key]
	i := slices.IndexFunc(waiting, func(p driver.Claim) bool { return p.Owner == r.Owner })
	next, queue := o.pick(len(waiting)), r.Queue
	r.Queue = false
	info := looked(o.Store, r.Key)
	if info.Held || len(waiting) == 0 || next < 0 || i == next {
		res, err := o.Store.Vote(ctx, r)
		if err != nil || res.Granted {
			if i >= 0 {
				o.queues[r.Key] = slices.Delete(waiting, i, i+1)
			}
			return res, err
		}
	}
	if i < 0 {
		i = len(waiting)
		if queue {
			o.queues[r.Key] = append(waiting, r.Claim)
		}
	}
	return driver.Result{Ahead: i, Holder: info.Holder, Left: info.Left, RetryIn: info.Left}, nil
}

func (o *ownQueue) leave(ctx context.Context, r voting.WithdrawRequest) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	waiting := o.queues[r.Key]
	i := slices.IndexFunc(waiting, func(p driver.Claim) bool { return p.Owner == r.Owner })
	if i < 0 {
		return o.Store.Withdraw(ctx, r)
	}
	o.queues[r.Key] = slices.Delete(waiting, i, i+1)
	_ = o.Store.Withdraw(ctx, r)
	return nil
}

func (o *ownQueue) look(ctx context.Context, key string) (driver.Info, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	info, err := o.Store.Inspect(ctx, key)
	for _, p := range o.queues[key] {
		info.Queue = append(info.Queue, driver.Holder{Owner: p.Owner, Label: p.Label})
	}
	info.Waiters = len(info.Queue)
	return info, err
}
