// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/redis/go-redis/v9"
)

// call is one run of a script, or one request of the batch script.
type call struct {
	ctx    context.Context // the caller's; nil in a Renew, which has one for all
	script *script
	mark   string // of the batch script: where fences are counted
	keys   []any
	args   []any
	reply  any
	life   string // of the batch script of a node: names the run of the server
	err    error
	report func(*call) // called once, when reply and err stand; nil in a Renew

	taken bool         // by a lane; guarded by sender.mu
	fate  atomic.Int32 // whether it goes out: unsent, sent or void
}

// The fates of a call. Until the client asks what to write nothing was sent, and
// what was made void never is.
const (
	unsent = iota
	sent
	void
)

// voids makes sure that a call is never sent, if it was not yet.
func (c *call) voids() bool { return c.fate.CompareAndSwap(unsent, void) }

// sender runs scripts. Calls of many goroutines travel together: while all
// lanes are on their way, what arrives waits and leaves as one pipeline, and
// requests of the batch script as one script. A lone call leaves at once.
//
// A caller leaves when its context ends, whatever the connection does: most
// clients let no context interrupt their sockets.
type sender struct {
	rdb      redis.UniversalClient
	lanes    int // pipelines on their way at once, while they come back
	batch    int // calls in one
	replicas int // that must confirm what the calls wrote
	closing  <-chan struct{}
	wake     chan struct{} // a token for each lane that was idle and has work again
	reached  atomic.Bool   // the server answered once

	mu       sync.Mutex
	queue    []*call
	busy     int  // lanes at work
	away     int  // calls on their way
	idle     int  // lanes that rest
	returned int  // counts pipelines that came back
	armed    bool // unblock will run
}

// Few lanes make large batches, and no lane takes more than its share of all
// calls: while the server is at work on some, others are written and read. When
// none of the lanes comes back for a while their
// connections may be dead, and others not: more are opened, up to a bound. In a
// cluster a batch would wait for its slowest node, so calls travel alone.
const (
	senderLanes = 3
	senderBatch = 128
	stuckLanes  = 64
	stuckAfter  = 20 * time.Millisecond

	// scriptCalls is how many requests one script carries: the server does
	// nothing else meanwhile, for about 10 µs each in the worst case.
	scriptCalls = 32
	// idleTime is how long a lane without work keeps its goroutine.
	idleTime = 200 * time.Millisecond
)

func newSender(rdb redis.UniversalClient, cluster bool, closing <-chan struct{}) *sender {
	s := &sender{rdb: rdb, lanes: senderLanes, batch: senderBatch, closing: closing}
	if cluster {
		s.lanes, s.batch = 1<<20, 1
	}
	s.wake = make(chan struct{}, stuckLanes)
	return s
}

// do runs one call and returns when it answered or ctx ended.
func (s *sender) do(ctx context.Context, c *call) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, driver.NotSent(err)
	}
	done := make(chan struct{})
	s.begin(ctx, c, func(*call) { close(done) })
	select {
	case <-done:
		return c.reply, c.err
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		if !c.taken { // whoever takes it looks at ctx
			return nil, driver.NotSent(ctx.Err())
		}
		return nil, ctx.Err()
	}
}

// begin runs one call. report is called once, by whoever has the answer: it must
// not block. A call whose ctx ended is dropped where it was not sent yet.
func (s *sender) begin(ctx context.Context, c *call, report func(*call)) {
	c.ctx, c.report = ctx, report
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, c)
	if s.busy < s.lanes {
		s.start()
	} else {
		s.arm()
	}
}

// start opens a lane. mu is held.
func (s *sender) start() {
	s.busy++
	if s.idle > 0 {
		s.idle--
		s.wake <- struct{}{}
		return
	}
	go s.work()
}

// arm has unblock look after what waits. mu is held.
func (s *sender) arm() {
	if s.armed {
		return
	}
	s.armed = true
	returned := s.returned
	time.AfterFunc(stuckAfter, func() { s.unblock(returned) })
}

// unblock opens a lane more when nothing came back since it was armed.
func (s *sender) unblock(returned int) {
	var left []*call
	defer func() {
		for _, c := range left {
			c.report(c)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	s.queue = slices.DeleteFunc(s.queue, func(c *call) bool {
		if c.err = driver.NotSent(c.ctx.Err()); c.err != nil { // its caller left
			left = append(left, c)
		}
		return c.err != nil
	})
	if len(s.queue) == 0 {
		return
	}
	if s.returned == returned && s.busy < stuckLanes {
		s.start()
	}
	s.arm()
}

// work sends what waits until nothing does, and for a while longer.
func (s *sender) work() {
	for company := false; ; {
		if company {
			runtime.Gosched() // whoever was answered, and is about to ask again, comes along
		}
		s.mu.Lock()
		share := (s.away + len(s.queue) + s.lanes - 1) / s.lanes
		n := min(len(s.queue), s.batch, share)
		if n == 0 {
			s.queue = nil
			if !s.rest() {
				return
			}
			continue
		}
		calls := s.queue[:n:n]
		for _, c := range calls {
			c.taken = true
		}
		s.queue = s.queue[n:]
		s.away += n
		if len(s.queue) > 0 && s.busy < s.lanes {
			s.start()
		}
		company = n > 1
		s.mu.Unlock()
		s.run(calls)
		s.mu.Lock()
		s.returned++
		s.away -= n
		s.mu.Unlock()
	}
}

// rest ends the work of a lane, and keeps its goroutine for the next. It is
// false when none came. mu is held, and released.
func (s *sender) rest() bool {
	s.busy--
	if s.idle >= s.lanes || s.idle+len(s.wake) >= cap(s.wake) { // a token never waits for room
		s.mu.Unlock()
		return false
	}
	s.idle++
	s.mu.Unlock()
	limit := time.NewTimer(idleTime)
	defer limit.Stop()
	select {
	case <-s.wake:
		return true
	case <-limit.C:
	case <-s.closing:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.wake:
		return true
	default:
		s.idle--
		return false
	}
}

// run sends calls as one pipeline and waits for the answers.
func (s *sender) run(calls []*call) {
	wanted := calls[:0] // calls are this lane's alone
	for _, c := range calls {
		if c.err = driver.NotSent(c.ctx.Err()); c.err != nil {
			c.report(c) // its caller left before anything was sent
			continue
		}
		wanted = append(wanted, c)
	}
	if len(wanted) == 0 {
		return
	}
	ctx, cancel := wanted[0].ctx, context.CancelFunc(func() {})
	if len(wanted) > 1 { // one caller's end must not end the others', the last one's may
		ctx, cancel = lastOf(wanted)
	}
	s.exec(ctx, wanted)
	cancel()
	for _, c := range wanted {
		c.err = explained(c.err)
		if c.err != nil && c.voids() {
			c.err = driver.NotSent(c.err)
		}
		c.report(c)
	}
}

// lastOf returns a context that ends at the latest deadline of calls; never,
// when one of them has none.
func lastOf(calls []*call) (context.Context, context.CancelFunc) {
	var last time.Time
	for _, c := range calls {
		at, ok := c.ctx.Deadline()
		if !ok {
			return context.Background(), func() {}
		}
		if at.After(last) {
			last = at
		}
	}
	return context.WithDeadline(context.Background(), last)
}

// await runs f, which may not heed its context, and returns when it did or ctx
// ended.
func await[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	ch := make(chan result, 1)
	go func() {
		v, err := f(ctx)
		ch <- result{v, err}
	}()
	select {
	case r := <-ch:
		return r.v, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
