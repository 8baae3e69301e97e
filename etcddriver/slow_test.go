// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// replied returns a driver that has f called before the reply to a request is given to the client.
func replied(t *testing.T, s *testserver.Server, f func(req any)) *Driver {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := call(ctx, method, req, reply, cc, opts...)
			f(req)
			return err
		}),
	}})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return opened(t, c)
}

// TestSlowGrant: an etcd that takes longer for a lease than newcomers share one is slow, but grants.
func TestSlowGrant(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := replied(t, s, func(req any) {
			if _, ok := req.(*pb.LeaseGrantRequest); ok {
				time.Sleep(window + window/4)
			}
		})
		ctx, r := t.Context(), ask(claim("k"), time.Hour)
		if res, err := d.Try(ctx, r); err != nil || !res.Granted || res.TTL < r.TTL {
			t.Fatalf("Try: %+v, %v", res, err)
		}
		if err := d.Release(ctx, driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL}); err != nil {
			t.Fatalf("Release: %v", err)
		}
	})
}

// TestLateLook: a grant that came after the look at a place that was lost is not told as lost.
func TestLateLook(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		looks, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		d := replied(t, s, func(req any) {
			if r, ok := req.(*pb.RangeRequest); ok && r.KeysOnly && strings.HasSuffix(string(r.Key), bar+string(converted)) {
				once.Do(func() {
					close(looks)
					<-goOn
				})
			}
		})
		losses := told(d)
		a, b, hints := behind(t, d, d)
		sign := driver.RenewRequest{Claim: b.Claim, Queue: true, Patience: b.Patience}
		d.Renew(t.Context(), []driver.RenewRequest{sign}, func(_ int, r driver.Renewal) {
			if r.Err != nil {
				t.Error(r.Err)
			}
		})
		del(t, d, d.names(b.ID()).name(writes))
		comes(t, looks, "the look after a place was lost")
		give(t, d, a, driver.EndFinished)
		select {
		case <-hints:
		default:
		}
		grant(t, d, b)
		close(goOn)
		select {
		case l := <-losses:
			t.Errorf("told the loss of a lease that stands: %+v", l)
		case <-time.After(time.Second):
		}
		if rec, ok := d.known(b.ID()); !ok || !rec.own.held() {
			t.Errorf("the grant was forgotten: %+v", rec)
		}
	})
}

// TestLateSign: a sign of life whose answer comes after that of the Try which was granted the key
// leaves the grant counted among the members of its lease.
func TestLateSign(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		looks, goOn := make(chan struct{}), make(chan struct{})
		var armed atomic.Bool
		d := replied(t, s, func(req any) {
			if _, ok := req.(*pb.TxnRequest); ok && armed.CompareAndSwap(true, false) {
				close(looks)
				<-goOn
			}
		})
		a, b := ask(claim("k"), time.Minute), ask(claim("k"), time.Minute)
		b.Patience = time.Hour
		grant(t, d, a)
		refuse(t, d, b)
		armed.Store(true)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			sign := driver.RenewRequest{Claim: b.Claim, Queue: true, Patience: b.Patience}
			d.Renew(t.Context(), []driver.RenewRequest{sign}, func(int, driver.Renewal) {})
		}()
		comes(t, looks, "the look of the sign of life")
		give(t, d, a, driver.EndFinished)
		grant(t, d, b)
		close(goOn)
		comes(t, ended, "the end of the renewal")
		on, _ := own(t, d, b, writes)
		d.mu.Lock()
		defer d.mu.Unlock()
		if l := d.leases[clientv3.LeaseID(on)]; l.members != 1 {
			t.Errorf("the lease of the grant has %d members, want 1", l.members)
		}
		if rec := d.records[b.ID()]; rec == nil || !rec.own.held() {
			t.Errorf("the driver took the grant for a place: %+v", rec)
		}
	})
}

// TestSignOfAHolder: a sign of life of a place does not touch the lease of a holder.
func TestSignOfAHolder(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		r := ask(claim("k"), time.Minute)
		grant(t, d, r)
		before, _ := own(t, d, r, writes)
		sign := driver.RenewRequest{Claim: r.Claim, Queue: true, Patience: time.Hour}
		d.Renew(t.Context(), []driver.RenewRequest{sign}, func(_ int, got driver.Renewal) {
			if !errors.Is(got.Err, driver.ErrNotHeld) {
				t.Errorf("Renew: %+v, want ErrNotHeld", got)
			}
		})
		if after, _ := own(t, d, r, writes); after != before {
			t.Error("the holder's key is on a lease that lasts as long as the patience")
		}
	})
}
