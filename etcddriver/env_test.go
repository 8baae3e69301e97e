// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/internal/testserver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var must = expect.Need

// limit ends waits for what must happen, however busy the machine is.
const limit = 5 * time.Minute

// each runs a test over both versions.
func each(t *testing.T, f func(t *testing.T, s *testserver.Server)) {
	t.Parallel()
	for name, start := range versions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, start(t, quick...))
		})
	}
}

// tap sees what a client sends, and can lose replies.
type tap struct {
	mu    sync.Mutex
	txns  []*pb.TxnRequest
	lose  func(r *pb.TxnRequest) bool // carried out, and not answered
	drop  func(r *pb.TxnRequest) bool // neither, though it may still come
	keeps atomic.Int64                // keep-alives
	sent  atomic.Int64                // transactions
}

func (p *tap) set(lose func(*pb.TxnRequest) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose, p.txns = lose, nil
}

// before has f called before the n-th transaction from now on is sent.
func (p *tap) before(n int64, f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var seen atomic.Int64
	p.drop = func(*pb.TxnRequest) bool {
		if seen.Add(1) == n {
			f()
		}
		return false
	}
}

// lost are the transactions whose replies were lost.
func (p *tap) lost() []*pb.TxnRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.txns
}

func (p *tap) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	txn, ok := req.(*pb.TxnRequest)
	p.mu.Lock()
	drop := p.drop
	p.mu.Unlock()
	if ok && drop != nil && drop(txn) {
		return status.Error(codes.Unavailable, "the request was lost")
	}
	err := call(ctx, method, req, reply, cc, opts...)
	if !ok || err != nil {
		return err
	}
	p.sent.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lose != nil && p.lose(txn) {
		p.txns = append(p.txns, txn)
		return status.Error(codes.Unavailable, "the reply was lost")
	}
	return nil
}

func (p *tap) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil || method != "/etcdserverpb.Lease/LeaseKeepAlive" {
		return s, err
	}
	return &counted{s, &p.keeps}, nil
}

// counted counts what is sent on a stream.
type counted struct {
	grpc.ClientStream
	n *atomic.Int64
}

func (s *counted) SendMsg(m any) error {
	s.n.Add(1)
	return s.ClientStream.SendMsg(m)
}

// tapped returns a driver with a tap on what it sends.
func tapped(t testing.TB, addrs ...string) (*Driver, *tap) {
	t.Helper()
	p := &tap{}
	c, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(p.unary), grpc.WithChainStreamInterceptor(p.stream),
	}})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return opened(t, c), p
}

func opened(t testing.TB, c *clientv3.Client) *Driver {
	d := New(c, &Options{ElectionTimeout: quickElection})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func open(t testing.TB, addrs ...string) *Driver { return opened(t, connect(t, addrs...)) }

func claim(key string) driver.Claim {
	return driver.Claim{Key: key, Owner: rand.Text(), Label: `{"host":"test"}`}
}

func ask(c driver.Claim, ttl time.Duration) driver.TryRequest {
	return driver.TryRequest{Claim: c, TTL: ttl, Queue: true, Patience: ttl}
}

func try(t testing.TB, d *Driver, r driver.TryRequest) driver.Result {
	t.Helper()
	res, err := d.Try(t.Context(), r)
	if err != nil {
		t.Fatalf("Try of %q: %v", r.Key, err)
	}
	return res
}

func grant(t testing.TB, d *Driver, r driver.TryRequest) driver.Result {
	t.Helper()
	res := try(t, d, r)
	if !res.Granted {
		t.Fatalf("Try of %q was refused: %+v", r.Key, res)
	}
	return res
}

func refuse(t testing.TB, d *Driver, r driver.TryRequest) driver.Result {
	t.Helper()
	res := try(t, d, r)
	if res.Granted {
		t.Fatalf("Try of %q was granted: %+v", r.Key, res)
	}
	return res
}

func renew(t testing.TB, d *Driver, rs ...driver.TryRequest) []driver.Renewal {
	t.Helper()
	var mu sync.Mutex
	got := make([]driver.Renewal, len(rs))
	for i := range got {
		got[i].Err = errors.New("no answer")
	}
	var all []driver.RenewRequest
	for _, r := range rs {
		all = append(all, driver.RenewRequest{Claim: r.Claim, TTL: r.TTL})
	}
	d.Renew(t.Context(), all, func(i int, r driver.Renewal) {
		mu.Lock()
		defer mu.Unlock()
		got[i] = r
	})
	return got
}

func renewed(t testing.TB, d *Driver, r driver.TryRequest) driver.Renewal {
	t.Helper()
	got := renew(t, d, r)[0]
	if got.Err != nil {
		t.Fatalf("Renew of %q: %v", r.Key, got.Err)
	}
	return got
}

func give(t testing.TB, d *Driver, r driver.TryRequest, end driver.End) {
	t.Helper()
	if err := d.Release(t.Context(), driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL, End: end}); err != nil {
		t.Fatalf("Release of %q: %v", r.Key, err)
	}
}

func comes[T any](t testing.TB, ch <-chan T, what string) (got T) {
	t.Helper()
	select {
	case got = <-ch:
	case <-time.After(limit):
		t.Fatalf("%s has not come within %v", what, limit)
	}
	return got
}

// own is the owner's key in etcd, nil when it has none.
func own(t testing.TB, d *Driver, r driver.TryRequest, class byte) (lease int64, found bool) {
	t.Helper()
	got, err := d.client.Get(t.Context(), d.names(r.ID()).name(class))
	must(t, err)
	if len(got.Kvs) == 0 {
		return 0, false
	}
	return got.Kvs[0].Lease, true
}

// forgetful returns a driver whose servers' answers about leases are changed.
func forgetful(t testing.TB, addr string, change func(*pb.LeaseTimeToLiveResponse)) *Driver {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := call(ctx, method, req, reply, cc, opts...)
			if r, ok := reply.(*pb.LeaseTimeToLiveResponse); ok && err == nil {
				change(r)
			}
			return err
		}),
	}})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return opened(t, c)
}

// behind has a client hold a key, and another wait for it: their requests, and the waiter's hints.
func behind(t testing.TB, holder, waiter *Driver) (a, b driver.TryRequest, hints <-chan driver.Hint) {
	t.Helper()
	a, b = ask(claim("k"), time.Minute), ask(claim("k"), time.Minute)
	grant(t, holder, a)
	hints, err := waiter.Watch(t.Context(), b.Claim)
	must(t, err)
	refuse(t, waiter, b)
	return a, b, hints
}
