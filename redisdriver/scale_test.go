// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

// The handoff costs the server the same number of commands whether 2 wait or
// 512, each on connections of its own, and the order of grants is the order of
// the queue.
func TestCommandsPerHandoffAreFlat(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--maxclients", "4000")
	cost := map[int]float64{}
	for _, n := range []int{2, 64, 512} {
		cost[n] = w.handoffs(n)
		t.Logf("%d clients: %.1f commands a handoff", n, cost[n])
	}
	failIf(t, cost[512] > 1.2*cost[2], "a handoff costs %.1f commands with 512 waiters, %.1f with 2", cost[512], cost[2])
}

// handoffs queues n clients behind a holder, lets each have the key once, and
// returns the commands that each handoff cost, without those by which subscriptions are checked.
func (w *world) handoffs(n int) float64 {
	w.Helper()
	w.do("FLUSHALL")
	first := ask("k")
	starter := w.driver(nil)
	w.grant(starter, first)
	var probes atomic.Int64
	drivers, rs, hints := make([]*Driver, n), make([]contend.Owner, n), make([]<-chan driver.Hint, n)
	for i := range n {
		rdb := w.client(func(o *redis.Options) { o.PoolSize = 1 })
		defer rdb.Close()
		rdb.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() == "publish" { // by the client itself: the hints are sent by scripts
				probes.Add(1)
			}
			return next(ctx, cmd)
		}))
		drivers[i], rs[i] = patient(New(rdb, nil)), ask("k")
		defer drivers[i].Close()
		hints[i] = w.wait(drivers[i], rs[i])
	}
	var order []int
	var mu sync.Mutex
	var wg sync.WaitGroup
	w.do("CONFIG", "RESETSTAT")
	probes.Store(0)
	for i := range n {
		wg.Go(func() {
			w.hint(hints[i])
			w.grant(drivers[i], queued(rs[i]))
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			w.release(drivers[i], rs[i])
		})
	}
	w.release(starter, first)
	wg.Wait()
	total := 0
	for command, calls := range w.calls() {
		if command != "ping" { // which come by the clock, as the probes do
			total += calls
		}
	}
	total -= int(probes.Load())
	for i, got := range order {
		stopIf(w, got != i, "grant %d of %d went to place %d", i, n, got)
	}
	return float64(total) / float64(n)
}

// One Renew takes any number of leases in scripts of 500 and reports each once.
func TestRenewMany(t *testing.T) {
	w, d := newPlain(t)
	const n = 20_000
	rs := make([]contend.Owner, n)
	pipe := w.admin.Pipeline()
	for i := range rs {
		rs[i] = ask(fmt.Sprint("many/", i))
		if i%10 != 0 {
			pipe.Set(w.ctx, "lock:"+rs[i].Key, value(rs[i].Claim()), time.Hour)
		}
	}
	_, err := pipe.Exec(w.ctx)
	w.succeeds(err)
	contend.Renew(w.ctx, d, rs[:1], func(int, driver.Renewal) {}) // the server knows the script
	w.do("CONFIG", "RESETSTAT")
	seen := make([]int, n)
	contend.Renew(w.ctx, d, rs, func(i int, r driver.Renewal) {
		seen[i]++
		failIf(t, (i%10 == 0) != (r.Err == driver.ErrNotHeld), "lease %d: %v", i, r.Err)
	})
	for i, times := range seen {
		failIf(t, times != 1, "lease %d was reported %d times", i, times)
	}
	if scripts := w.calls()["evalsha"]; scripts != n/perScript {
		t.Errorf("%d leases took %d scripts", n, scripts)
	}
}

// A pipeline that hangs does not keep the outcome of others back, and nothing
// is reported after Renew returned.
func TestRenewReportsWhatIsKnown(t *testing.T) {
	w := newWorld(t)
	var stuck dialer
	d := w.over(w.client(func(o *redis.Options) { o.Dialer = stuck.dial }), nil)
	const n = wire.CarryLanes * wire.PerPipe * perScript
	rs := make([]contend.Owner, n)
	for i := range rs {
		rs[i] = ask(fmt.Sprint("n", i))
	}
	stuck.hangNext()
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	known, late := 0, 0
	contend.Renew(ctx, d, rs, func(_ int, r driver.Renewal) {
		if errors.Is(r.Err, context.Canceled) {
			late++
			return
		}
		if known++; known == n-wire.PerPipe*perScript {
			cancel()
		}
	})
	failIf(t, known != n-wire.PerPipe*perScript || late != 0 && late != wire.PerPipe*perScript, "%d outcomes of %d are known, and %d are called unknown", known, n, late)
}

// Connections that died unnoticed do not hold up the requests of others.
func TestStuckConnections(t *testing.T) {
	w := newWorld(t)
	var stuck dialer
	rdb := w.client(func(o *redis.Options) { o.Dialer = stuck.dial })
	d := w.over(rdb, nil)
	const dead = wire.Lanes + 2
	var conns []*redis.Conn
	for range dead {
		c := rdb.Conn()
		must(t, c.Ping(w.ctx).Err())
		conns = append(conns, c)
	}
	for _, c := range conns {
		_ = c.Close() // back to the pool
	}
	stuck.hang()
	for i := range dead {
		go func() { _, _ = contend.Try(w.ctx, d, ask("k")) }()
		w.until("it hangs", func() bool {
			lanes, queued := d.send.Busy()
			return lanes == i+1 && queued == 0
		})
	}
	if _, err := contend.Try(w.ctx, d, ask("other")); err != nil { // long before the client's read timeout
		t.Error(err)
	}
}

// dialer makes connections that can be muted, each as it is now: replies
// are lost. Later ones are sound.
type dialer struct {
	mu    sync.Mutex
	conns []*muteConn
	next  atomic.Bool            // the connection of the next script is muted
	late  bool                   // a muted connection does not hang: its timeout has passed
	sent  atomic.Pointer[func()] // what is called after each script that was sent
}

type muteConn struct {
	net.Conn
	d     *dialer
	muted atomic.Bool
	over  atomic.Bool // its time
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	s := &muteConn{Conn: c, d: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, s)
	return s, nil
}

func (d *dialer) hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		c.muted.Store(true)
	}
}

// hangNext mutes the connection of the next script.
func (d *dialer) hangNext() { d.next.Store(true) }

func (c *muteConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("evalsha")) && c.d.next.CompareAndSwap(true, false) {
		c.muted.Store(true)
	}
	n, err := c.Conn.Write(b)
	if sent := c.d.sent.Load(); sent != nil && bytes.Contains(b, []byte("evalsha")) {
		(*sent)()
	}
	return n, err
}

func (c *muteConn) Read(b []byte) (int, error) {
	for !c.over.Load() {
		n, err := c.Conn.Read(b)
		if err != nil || !c.muted.Load() {
			return n, err
		}
		c.over.Store(c.d.late) // the server has answered
	}
	return 0, os.ErrDeadlineExceeded
}
