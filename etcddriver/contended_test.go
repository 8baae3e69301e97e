// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/testserver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

var contendFor = flag.Duration("contend", 2500*time.Millisecond, "how long the clients of BenchmarkContended contend in each round")

// BenchmarkContended has clients with connections of their own contend for one key, held for a
// millisecond: in turn by hasp and by etcd's own Mutex, so that both see the same load of the machine.
//
//	go test -run - -bench Contended -benchtime 5x ./etcddriver
func BenchmarkContended(b *testing.B) {
	for _, n := range []int{2, 16, 128} {
		b.Run(fmt.Sprintf("%dclients", n), func(b *testing.B) {
			addr := testserver.Etcd36(b).Addr()
			kinds := []struct {
				name string
				made []contender
				tally
				handoffs, p99 []float64
			}{{name: "hasp", made: make([]contender, n)}, {name: "etcd", made: make([]contender, n)}}
			for i := range n {
				kinds[0].made[i] = haspContender(b, addr, &kinds[0].tally)
				kinds[1].made[i] = etcdContender(b, addr, &kinds[1].tally)
			}
			for b.Loop() {
				for k := range kinds {
					kind := &kinds[k]
					waits := contended(b, &kind.tally, kind.made)
					kind.handoffs = append(kind.handoffs, float64(len(waits))/contendFor.Seconds())
					slices.Sort(waits)
					kind.p99 = append(kind.p99, float64(waits[len(waits)*99/100].Microseconds())/1000)
				}
			}
			for k := range kinds {
				kind := &kinds[k]
				b.ReportMetric(median(kind.handoffs), kind.name+"-handoffs/s")
				b.ReportMetric(median(kind.p99), kind.name+"-p99-ms")
				kind.report(b, kind.name, int(kind.grants.Load()))
			}
			b.ReportMetric(median(kinds[0].handoffs)/median(kinds[1].handoffs), "handoffs-ratio")
			b.ReportMetric(median(kinds[0].p99)/median(kinds[1].p99), "p99-ratio")
		})
	}
}

func median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}

// contender locks the key for a millisecond.
type contender func(ctx context.Context, held func()) error

// contended has all lock the key over and over, and returns the waits of those that another had held
// the key before.
func contended(b *testing.B, t *tally, all []contender) (waits []time.Duration) {
	ctx, cancel := context.WithTimeout(b.Context(), *contendFor)
	defer cancel()
	t.on.Store(true)
	defer t.on.Store(false)
	var mu sync.Mutex
	var inside atomic.Int32
	last := -1
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				err := c(ctx, func() {
					if inside.Add(1) > 1 {
						b.Error("two holders at once")
					}
					t.grants.Add(1)
					mu.Lock()
					if last != i {
						waits = append(waits, time.Since(start))
					}
					last = i
					mu.Unlock()
					time.Sleep(time.Millisecond)
					inside.Add(-1)
				})
				if err != nil && ctx.Err() == nil {
					b.Error(err)
				}
				if err != nil { // it waited to the end
					mu.Lock()
					waits = append(waits, time.Since(start))
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return waits
}

func haspContender(b *testing.B, addr string, t *tally) contender {
	locks, err := hasp.New(New(t.connect(b, addr), nil), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = locks.Close() })
	return func(ctx context.Context, held func()) error {
		lease, err := locks.Mutex("hot", nil).Lock(ctx)
		if err != nil {
			return err
		}
		held()
		return lease.Release()
	}
}

func etcdContender(b *testing.B, addr string, t *tally) contender {
	session, err := concurrency.NewSession(t.connect(b, addr), concurrency.WithTTL(30))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = session.Close() })
	m := concurrency.NewMutex(session, "/lock/hot")
	return func(ctx context.Context, held func()) error {
		if err := m.Lock(ctx); err != nil {
			return err
		}
		held()
		return m.Unlock(context.WithoutCancel(ctx))
	}
}

// tally counts what clients ask for, while it is on.
type tally struct {
	on                                                    atomic.Bool
	grants                                                atomic.Int64
	leases, keeps, writes, reads, watches, sent, received atomic.Int64
}

// report is what each of n grants took.
func (t *tally) report(b *testing.B, kind string, n int) {
	for what, count := range map[string]*atomic.Int64{
		"leases": &t.leases, "keep-alives": &t.keeps, "writes": &t.writes, "reads": &t.reads, "watch-messages": &t.watches,
		"bytes-out": &t.sent, "bytes-in": &t.received,
	} {
		if count.Load() > 0 {
			b.ReportMetric(float64(count.Load())/float64(n), kind+"-"+what+"/grant")
		}
	}
}

func (t *tally) connect(b *testing.B, addr string) *clientv3.Client {
	b.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithStatsHandler(t)}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return c
}

// writesAny reports whether etcd has to write a request to its log.
func writesAny(ops []*pb.RequestOp) bool {
	return slices.ContainsFunc(ops, func(op *pb.RequestOp) bool {
		if in := op.GetRequestTxn(); in != nil {
			return writesAny(in.Success) || writesAny(in.Failure)
		}
		return op.GetRequestRange() == nil
	})
}

// The methods of a grpc stats.Handler.
func (t *tally) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (t *tally) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (t *tally) HandleConn(context.Context, stats.ConnStats)                       {}
func (t *tally) HandleRPC(_ context.Context, s stats.RPCStats) {
	if !t.on.Load() {
		return
	}
	switch s := s.(type) {
	case *stats.InPayload:
		t.received.Add(int64(s.WireLength))
	case *stats.OutPayload:
		t.sent.Add(int64(s.WireLength))
		switch r := s.Payload.(type) {
		case *pb.TxnRequest:
			if writesAny(r.Success) || writesAny(r.Failure) {
				t.writes.Add(1)
			} else {
				t.reads.Add(1)
			}
		case *pb.RangeRequest:
			t.reads.Add(1)
		case *pb.WatchRequest:
			t.watches.Add(1)
		case *pb.LeaseGrantRequest:
			t.leases.Add(1)
		case *pb.LeaseKeepAliveRequest:
			t.keeps.Add(1)
		case *pb.PutRequest, *pb.DeleteRangeRequest:
			t.writes.Add(1)
		}
	}
}
