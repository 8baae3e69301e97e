// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/rpc"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
)

// The walk "a new engine" of CONTRIBUTING, followed once: a map behind connections, which is asked with net/rpc. It has no queue and
// shares nothing. The connections are pipes, so that the cases run under a fake clock.

// mapStore is the store. Its methods are what it can be asked.
type mapStore struct {
	mu     sync.Mutex
	keys   map[string]*mapKey
	gone   map[driver.ID]bool // owners that were released
	newest uint64             // the largest fence
}

// mapKey is what is known of a key.
type mapKey struct {
	held         bool
	id           driver.ID
	fence        uint64
	since, until time.Time
	marked       bool // its holder was granted an abandoned key
	abandoned    bool // the next one is
}

// newMapStore returns how to connect to an empty store.
func newMapStore(t testing.TB) (dial func() net.Conn) {
	server := rpc.NewServer()
	if err := server.RegisterName("Map", &mapStore{keys: map[string]*mapKey{}, gone: map[driver.ID]bool{}}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(all.Wait) // its clients close their connections
	return func() net.Conn {
		client, conn := net.Pipe()
		all.Go(func() { server.ServeConn(conn) })
		return client
	}
}

// key returns a key as it is now.
func (s *mapStore) key(key string) *mapKey {
	k := s.keys[key]
	if k == nil {
		k = &mapKey{}
		s.keys[key] = k
	}
	if k.held && !k.until.After(time.Now()) {
		k.held, k.abandoned = false, true
	}
	return k
}

// last moves the end of a lease, never to an earlier moment, and returns what is left.
func (k *mapKey) last(ttl time.Duration) time.Duration {
	if until := time.Now().Add(ttl); until.After(k.until) {
		k.until = until
	}
	return time.Until(k.until)
}

func (k *mapKey) info(key string) driver.Info {
	if !k.held {
		return driver.Info{Key: key}
	}
	l := driver.Holding{Holder: driver.Holder{Owner: k.id.Owner, Label: k.id.Label, Since: k.since}, Fence: k.fence, Left: time.Until(k.until)}
	return driver.Info{Key: key, Held: true, Leases: 1, Holder: l.Holder, Fence: l.Fence, Left: l.Left, Holders: []driver.Holding{l}}
}

func (s *mapStore) Try(r driver.TryRequest, res *driver.Result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, id := s.key(r.Key), r.ID()
	switch {
	case s.gone[id]:
		*res = driver.Result{Why: driver.WhyReleased, RetryIn: time.Second}
		return nil
	case k.held && k.id != id:
		info := k.info(r.Key)
		*res = driver.Result{Holder: info.Holder, Left: info.Left, RetryIn: max(min(info.Left, 80*time.Millisecond), 1)}
		return nil
	case !k.held:
		res.Fences = max(r.Fences, 1)
		s.newest = max(s.newest+1, uint64(time.Now().UnixMicro())) + uint64(res.Fences-1)
		*k = mapKey{held: true, id: id, fence: s.newest, since: time.Now(), marked: k.abandoned}
	}
	res.Granted, res.Fence, res.TTL, res.Abandoned = true, k.fence, k.last(r.TTL), k.marked
	return nil
}

// Renew answers with how long each lease lasts, 0 if it is not held.
func (s *mapStore) Renew(rs []driver.RenewRequest, lasts *[]time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rs {
		var left time.Duration
		if k := s.key(r.Key); k.held && k.id == r.ID() && !r.Queue { // there are no places
			left = k.last(r.TTL)
		}
		*lasts = append(*lasts, left)
	}
	return nil
}

func (s *mapStore) Release(r driver.ReleaseRequest, held *bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, id := s.key(r.Key), r.ID()
	if !r.Settled {
		s.gone[id] = true
		time.AfterFunc(driver.MaxTransit, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.gone, id)
		})
	}
	if *held = k.held && k.id == id; *held {
		*k = mapKey{abandoned: r.End == driver.EndUnfinished || r.End == driver.EndUnused && k.marked}
	}
	return nil
}

func (s *mapStore) Inspect(key string, info *driver.Info) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*info = s.key(key).info(key)
	return nil
}

func (s *mapStore) List(prefix string, all *[]driver.Info) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.keys {
		if info := s.key(key).info(key); info.Held && strings.HasPrefix(key, prefix) {
			*all = append(*all, info)
		}
	}
	return nil
}

// mapDriver is the engine.
type mapDriver struct {
	dial func() net.Conn

	mu     sync.Mutex
	idle   []*rpc.Client
	closed bool
}

var _ driver.Driver = (*mapDriver)(nil)

func (d *mapDriver) Check() error { return nil }

func (d *mapDriver) Traits() driver.Traits {
	return driver.Traits{Engine: "map", Fencing: true, MarksAbandoned: true, MinTTL: 50 * time.Millisecond}
}

func (d *mapDriver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, c := range d.idle {
		_ = c.Close()
	}
	return nil
}

// connect returns a connection that no other call uses.
func (d *mapDriver) connect(ctx context.Context) (*rpc.Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.idle); n > 0 {
		c := d.idle[n-1]
		d.idle = d.idle[:n-1]
		return c, nil
	}
	return rpc.NewClient(d.dial()), nil
}

// rest keeps a connection for later calls, until Close.
func (d *mapDriver) rest(c *rpc.Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = c.Close()
		return
	}
	d.idle = append(d.idle, c)
}

// ask sends a request, and throws the connection away if the context ends before the answer.
func (d *mapDriver) ask(ctx context.Context, method string, request, answer any) error {
	c, err := d.connect(ctx)
	if err != nil {
		return driver.NotSent(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	if err = c.Call("Map."+method, request, answer); !stop() {
		return ctx.Err()
	}
	if err == nil {
		d.rest(c)
		return nil
	}
	_ = c.Close()
	return err
}

func (d *mapDriver) Try(ctx context.Context, r driver.TryRequest) (res driver.Result, err error) {
	switch err := r.Check(); {
	case err != nil:
		return res, err
	case r.Mode != driver.Exclusive:
		return res, fmt.Errorf("a map shares no keys: %w", driver.ErrUnsupported)
	}
	if err := d.ask(ctx, "Try", r, &res); err != nil {
		return driver.Result{}, err
	}
	return res, nil
}

func (d *mapDriver) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	var lasts []time.Duration
	err := d.ask(ctx, "Renew", rs, &lasts)
	for i := range rs {
		switch {
		case err != nil:
			done(i, driver.Renewal{Err: err})
		case lasts[i] <= 0:
			done(i, driver.Renewal{Err: driver.ErrNotHeld})
		default:
			done(i, driver.Renewal{TTL: lasts[i]})
		}
	}
}

func (d *mapDriver) Release(ctx context.Context, r driver.ReleaseRequest) error {
	var held bool
	err := d.ask(ctx, "Release", r, &held)
	if err == nil && !held {
		return driver.ErrNotHeld
	}
	return err
}

// Watch has no hints to give.
func (d *mapDriver) Watch(ctx context.Context, _ driver.Claim) (<-chan driver.Hint, error) {
	return nil, ctx.Err()
}

func (d *mapDriver) Inspect(ctx context.Context, key string) (info driver.Info, err error) {
	if err := driver.CheckKey(key); err != nil {
		return info, err
	}
	err = d.ask(ctx, "Inspect", key, &info)
	return info, err
}

func (d *mapDriver) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		var all []driver.Info
		if err := d.ask(ctx, "List", prefix, &all); err != nil {
			yield(driver.Info{}, err)
			return
		}
		for _, info := range all {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (d *mapDriver) Classify(err error) driver.Class {
	var away net.Error
	switch {
	case errors.As(err, &away), errors.Is(err, net.ErrClosed), errors.Is(err, rpc.ErrShutdown), errors.Is(err, io.ErrUnexpectedEOF):
		return driver.ClassUnreachable
	case errors.Is(err, driver.ErrUnsupported):
		return driver.ClassImpossible
	}
	return driver.ClassUnknown
}

// An engine that follows CONTRIBUTING passes the suite, which runs as many cases at once as
// it is told to.
func TestMapEngine(t *testing.T) {
	const atOnce = 2
	var mu sync.Mutex
	cases, most, full := map[string]bool{}, 0, make(chan struct{})
	begin := func(name string) {
		mu.Lock()
		defer mu.Unlock()
		cases[name] = true
		if most = max(most, len(cases)); most == atOnce && full != nil {
			close(full)
			full = nil
		}
	}
	first := full
	drivertest.Run(t, drivertest.Harness{Fake: true, Parallel: true, AtOnce: atOnce, New: func(t testing.TB) drivertest.Store {
		begin(t.Name())
		<-first // so many cases run at once
		t.Cleanup(func() {
			mu.Lock()
			defer mu.Unlock()
			delete(cases, t.Name())
		})
		dial := newMapStore(t)
		return drivertest.Store{Open: func() driver.Driver { return &mapDriver{dial: dial} }}
	}})
	if most != atOnce {
		t.Errorf("%d cases ran at once, want %d", most, atOnce)
	}
}
