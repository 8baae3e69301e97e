// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
)

// link is the way from one client to one node. It can be stopped: then requests
// are carried out, and answered, once it goes on, whoever still waits for them.
type link struct {
	*memdriver.Store

	mu      sync.Mutex
	stopped chan struct{} // closed when it goes on; nil: it does
	away    error         // every request fails with this
	takes   time.Duration // every request takes so long
	sent    atomic.Int64  // requests that were handed to it
	inside  atomic.Int64  // of these, how many it has
	most    atomic.Int64  // and at most had

	// What comes before such a request; its error is the answer.
	try     func(context.Context, voting.VoteRequest) error
	release func(context.Context, voting.WithdrawRequest) error
	renew   func(context.Context, []driver.RenewRequest) error
}

// hangs comes before a request to a node that says nothing.
func hangs[R any](ctx context.Context, _ R) error {
	<-ctx.Done()
	return ctx.Err()
}

// watchHook comes before each Watch of every link; its error is the answer.
var watchHook func(ctx context.Context, l *link) error

func (l *link) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *link) stop() { l.set(func() { l.stopped = make(chan struct{}) }) }

func (l *link) cont() { l.set(func() { close(l.stopped); l.stopped = nil }) }

// fail makes every request fail, or none any more.
func (l *link) fail(err error) { l.set(func() { l.away = err }) }

// delay makes every request take so long.
func (l *link) delay(d time.Duration) { l.set(func() { l.takes = d }) }

func (l *link) onTry(f func(context.Context, voting.VoteRequest) error) { l.set(func() { l.try = f }) }

func (l *link) onRelease(f func(context.Context, voting.WithdrawRequest) error) {
	l.set(func() { l.release = f })
}

// before carries out what a test has come before a request.
func before[R any](ctx context.Context, l *link, hook *func(context.Context, R) error, r R) error {
	l.mu.Lock()
	f := *hook
	l.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, r)
}

// through carries out f, now or when the link goes on.
func through[T any](ctx context.Context, l *link, f func(ctx context.Context) (T, error)) (T, error) {
	l.sent.Add(1)
	if n := l.inside.Add(1); n > l.most.Load() {
		l.most.Store(n)
	}
	l.mu.Lock()
	stopped, away, takes := l.stopped, l.away, l.takes
	l.mu.Unlock()
	time.Sleep(takes)
	var none T
	if away != nil {
		l.inside.Add(-1)
		return none, away
	}
	if stopped == nil {
		defer l.inside.Add(-1)
		return f(ctx)
	}
	type result struct {
		v   T
		err error
	}
	got := make(chan result, 1)
	go func() {
		defer l.inside.Add(-1)
		<-stopped
		v, err := f(context.WithoutCancel(ctx))
		got <- result{v, err}
	}()
	select {
	case r := <-got:
		return r.v, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

func (l *link) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	if err := before(ctx, l, &l.try, r); err != nil {
		return driver.Result{}, err
	}
	return through(ctx, l, func(ctx context.Context) (driver.Result, error) { return l.Store.Vote(ctx, r) })
}

func (l *link) Withdraw(ctx context.Context, r voting.WithdrawRequest) error {
	if err := before(ctx, l, &l.release, r); err != nil {
		return err
	}
	_, err := through(ctx, l, func(ctx context.Context) (struct{}, error) { return struct{}{}, l.Store.Withdraw(ctx, r) })
	return err
}

func (l *link) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	if before(ctx, l, &l.renew, rs) != nil {
		return
	}
	answers, err := through(ctx, l, func(ctx context.Context) ([]driver.Renewal, error) {
		out := make([]driver.Renewal, len(rs))
		l.Store.Renew(ctx, rs, func(i int, r driver.Renewal) { out[i] = r })
		return out, nil
	})
	for i := range rs {
		if err != nil {
			done(i, driver.Renewal{Err: err})
		} else {
			done(i, answers[i])
		}
	}
}

func (l *link) Watch(ctx context.Context, r driver.Claim) (<-chan driver.Hint, error) {
	if watchHook != nil {
		if err := watchHook(ctx, l); err != nil {
			return nil, err
		}
	}
	return l.Store.Watch(ctx, r)
}

func (l *link) Record(ctx context.Context) (voting.Record, error) {
	return through(ctx, l, l.Store.Record)
}

func (l *link) Inspect(ctx context.Context, key string) (driver.Info, error) {
	return through(ctx, l, func(ctx context.Context) (driver.Info, error) { return l.Store.Inspect(ctx, key) })
}

var errGone = errors.New("connection refused")

func (l *link) Classify(err error) driver.Class {
	if errors.Is(err, errGone) {
		return driver.ClassUnreachable
	}
	return l.Store.Classify(err)
}

// newStores returns nodes that vote, the queue node first.
func newStores(t testing.TB, n int) []*memdriver.Store {
	t.Helper()
	return storesAhead(t, n, 0)
}

// storesAhead returns such nodes whose clocks are ahead of ours.
func storesAhead(t testing.TB, n int, by time.Duration) []*memdriver.Store {
	t.Helper()
	all := make([]*memdriver.Store, n)
	for i := range all {
		all[i] = memdriver.NewNode(memdriver.NodeOptions{MaxTTL: ruleTTL, Now: func() time.Time { return time.Now().Add(by) }})
	}
	return admitted(t, ruleTTL, all)
}

// connect returns a driver over stores, and its links.
func connect(t testing.TB, stores []*memdriver.Store) (*Driver, []*link) {
	t.Helper()
	return patient(t, stores, 0)
}

// patient is a driver whose nodes may take so long, with its links; 0: as long as usual.
func patient(t testing.TB, stores []*memdriver.Store, timeout time.Duration) (*Driver, []*link) {
	t.Helper()
	links := make([]*link, len(stores))
	for i, s := range stores {
		links[i] = &link{Store: s}
	}
	return over(t, links, &Options{NodeTimeout: timeout}), links
}

// warm returns a driver that has heard its nodes, and its links.
func warm(t testing.TB, stores []*memdriver.Store) (*Driver, []*link) {
	t.Helper()
	d, links := connect(t, stores)
	mustTry(t, d, ask("warm"))
	synctest.Wait()
	return d, links
}

// client returns a client over stores, and its links.
func client(t testing.TB, stores []*memdriver.Store) (*hasp.Client, []*link) {
	t.Helper()
	d, links := connect(t, stores)
	c, err := hasp.New(d, nil)
	need(t, err)
	t.Cleanup(func() { _ = c.Close() }) // what could not be released is a test's own affair
	return c, links
}

func ask(key string) contend.Owner {
	return contend.Owner{Key: key, Owner: rand.Text(), Label: "{}", TTL: ruleTTL, Patience: 10 * time.Second}
}

// votes counts the stores on which an owner holds a key.
func votes(t testing.TB, stores []*memdriver.Store, key, owner string) (n int) {
	t.Helper()
	for _, s := range stores {
		info, err := s.Inspect(t.Context(), key)
		need(t, err)
		if info.Held && info.Holder.Owner == owner {
			n++
		}
	}
	return n
}

func mustTry(t testing.TB, d driver.Driver, r contend.Owner) driver.Result {
	t.Helper()
	res, err := contend.Try(t.Context(), d, r)
	need(t, err)
	return res
}

func mustLock(t testing.TB, c *hasp.Client, key string) *hasp.Lease {
	t.Helper()
	lease, err := c.Mutex(key, nil).Lock(t.Context())
	need(t, err)
	return lease
}

// grantedAt tells when a waiter has "k", which it releases.
func grantedAt(t *testing.T, c *hasp.Client) <-chan time.Time {
	got := make(chan time.Time, 1)
	go func() {
		n, err := c.Mutex("k", nil).Lock(t.Context())
		got <- time.Now()
		if err == nil {
			_ = n.Release()
		}
	}()
	return got
}
