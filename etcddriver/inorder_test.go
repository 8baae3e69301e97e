// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
)

// inOrder is an etcd on a fake clock that takes its time for each keep-alive, one after another, and knows some keys.
type inOrder struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	takes   time.Duration
	mute    int // the request on the first stream from which on there are no answers; 0: none
	kvs     map[string]*mvccpb.KeyValue
	streams atomic.Int64
}

func (s *inOrder) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	first := s.streams.Add(1) == 1
	for n := 1; ; n++ {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if first && n == s.mute {
			<-stream.Context().Done()
			return stream.Context().Err()
		}
		time.Sleep(s.takes)
		if err := stream.Send(&pb.LeaseKeepAliveResponse{ID: r.ID, TTL: r.ID}); err != nil {
			return err
		}
	}
}

func (s *inOrder) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	res := &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: 1}, Succeeded: true}
	for _, op := range r.Success {
		found := &pb.RangeResponse{}
		for name, kv := range s.kvs {
			if asked := op.GetRequestRange(); string(asked.Key) <= name && name < string(asked.RangeEnd) {
				found.Kvs = append(found.Kvs, kv)
			}
		}
		res.Responses = append(res.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: found}})
	}
	return res, nil
}

// serve returns a driver whose server is s, and what ends both.
func (s *inOrder) serve(t *testing.T) (d *Driver, end func()) {
	t.Helper()
	listener, server := bufconn.Listen(1<<20), grpc.NewServer(grpc.WaitForHandlers(true))
	pb.RegisterKVServer(server, s)
	pb.RegisterLeaseServer(server, s)
	go func() { _ = server.Serve(listener) }()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"etcd:1"}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	}})
	must(t, err)
	d = New(c, nil)
	return d, func() {
		_, _ = d.Close(), c.Close()
		server.Stop()
	}
}

// holders gives a driver n leases that want a keep-alive, each with a reader on it, and returns what renews them.
func (s *inOrder) holders(t *testing.T, d *Driver, n int) (all []driver.RenewRequest) {
	t.Helper()
	s.kvs = make(map[string]*mvccpb.KeyValue)
	for i := range n {
		c := claim(fmt.Sprint(i))
		c.Mode = driver.Shared
		ttl := time.Duration(10+2*i) * time.Second // another one for each, so that they share no lease
		name := d.names(c.ID()).name(reads)
		kv := &mvccpb.KeyValue{Key: []byte(name), Value: []byte(stored{state: holds, many: 1, label: c.Label}.String()), CreateRevision: 1, ModRevision: 1, Lease: int64(ttl / time.Second)}
		s.kvs[name] = kv
		own, ok := d.entryOf(kv)
		if !ok {
			t.Fatalf("it is no owner's key: %q", name)
		}
		l := &lease{id: own.lease, asked: ttl, ttl: ttl, sent: time.Now().Add(-ttl / 3), members: 1}
		d.leases[l.id] = l
		d.records[c.ID()] = &record{own: *own, on: l}
		all = append(all, driver.RenewRequest{Claim: c, TTL: ttl})
	}
	return all
}

// TestManyKeepAlivesInOrder: a stream of keep-alives that answers steadily is left alone however long the last of them
// waits, and each renewal renews the leases whose keep-alives were answered in time.
func TestManyKeepAlivesInOrder(t *testing.T) {
	for _, c := range []struct {
		leases int
		takes  time.Duration
		first  int // so many are renewed at once
	}{{50, 10 * time.Millisecond, 50}, {400, 10 * time.Millisecond, 300}, {200, 30 * time.Millisecond, 100}} {
		t.Run(fmt.Sprintf("%d of %v", c.leases, c.takes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &inOrder{takes: c.takes}
				d, end := s.serve(t)
				defer end()
				all := s.holders(t, d, c.leases)
				for want := c.first; len(all) > 0; want = len(all) / 2 {
					ctx, cancel := context.WithTimeout(t.Context(), 3300*time.Millisecond)
					var late []driver.RenewRequest
					d.Renew(ctx, all, func(i int, r driver.Renewal) {
						switch {
						case r.Err == nil && r.TTL >= all[i].TTL:
						case d.Classify(r.Err) == driver.ClassUnreachable:
							late = append(late, all[i])
						default:
							t.Errorf("a renewal: %+v", r)
						}
					})
					cancel()
					if n := len(all) - len(late); n < want {
						t.Fatalf("%d of %d were renewed, want %d at least", n, len(all), want)
					}
					all = late
				}
				if n := s.streams.Load(); n != 1 {
					t.Errorf("there were %d streams, want 1", n)
				}
			})
		})
	}
}

// TestMuteStream: a stream that gives no more answers is replaced, and all that it leaves unanswered is sent again.
func TestMuteStream(t *testing.T) {
	for _, mute := range []int{1, 6} {
		synctest.Test(t, func(t *testing.T) {
			s := &inOrder{takes: 10 * time.Millisecond, mute: mute}
			d, end := s.serve(t)
			defer end()
			ctx, cancel := context.WithTimeout(t.Context(), silence+silence/2)
			defer cancel()
			d.Renew(ctx, s.holders(t, d, 20), func(_ int, r driver.Renewal) {
				if r.Err != nil {
					t.Errorf("mute from request %d on: %v", mute, r.Err)
				}
			})
			if n := s.streams.Load(); n != 2 {
				t.Errorf("mute from request %d on: %d streams, want 2", mute, n)
			}
		})
	}
}

// TestTwoTimesOnOneLease: a lease that is long enough for one of its holders and not for the other is kept alive for both.
func TestTwoTimesOnOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &inOrder{}
		d, end := s.serve(t)
		defer end()
		all := s.holders(t, d, 2)
		a, b := d.records[all[0].ID()], d.records[all[1].ID()]
		a.on.members, a.on.sent = 2, time.Now().Add(-time.Second/2)
		b.on, b.own.lease = a.on, a.on.id
		s.kvs[d.names(all[1].ID()).name(reads)].Lease = int64(a.on.id)
		all[1].TTL = all[0].TTL - time.Second
		answered := 0
		d.Renew(t.Context(), all, func(i int, r driver.Renewal) {
			if answered++; r.Err != nil || r.TTL < all[0].TTL {
				t.Errorf("the renewal for %v: %+v", all[i].TTL, r)
			}
		})
		if answered != len(all) {
			t.Errorf("%d of %d renewals were answered", answered, len(all))
		}
	})
}

// TestEndedConnection: a connection that ended while something was asked on it is not counted as closed for its silence.
func TestEndedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		ls := &links{dial: func(context.Context, string) (net.Conn, error) { return here, nil }, closed: make(map[string]closed)}
		c, err := ls.connect(t.Context(), "etcd:1")
		must(t, err)
		reads := make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 1))
			reads <- err
		}()
		l, r := c.(*link), &rpc{}
		l.asks(r)
		time.Sleep(lookEvery + lookEvery/2)
		_ = there.Close()
		if err := <-reads; err == nil {
			t.Error("a closed connection was read")
		}
		l.over(r)
		l.asks(&rpc{}) // on a stream that does not know yet
		time.Sleep(bears)
		if n := len(ls.closed); n > 0 {
			t.Error("its end was taken for silence")
		}
	})
}
