// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Sender runs scripts. Calls of many goroutines travel together: while all
// lanes are on their way, what arrives waits and leaves as one pipeline, and
// requests of the batch script as one script. A lone call leaves at once.
//
// A caller leaves when its context ends, whatever the connection does: most
// clients let no context interrupt their sockets, so a lane waits for them. See DoAlone for
// callers that wait for themselves.
type Sender struct {
	client   Client
	traits   Traits
	direct   *direct // for lone calls; nil: there are none
	lanes    int     // pipelines on their way at once, while they come back
	batch    int     // calls in one
	replicas int     // that must confirm what the calls wrote
	closing  <-chan struct{}
	wake     chan bool   // a token for each lane that was idle: true: it has work again, false: it ends
	prompt   atomic.Bool // its latest answer came soon

	mu       sync.Mutex
	queue    []*Call
	busy     int  // lanes at work
	away     int  // calls on their way
	idle     int  // lanes that rest
	returned int  // counts pipelines that came back
	armed    bool // unblock will run
	reaping  bool // reap will run
}

// Few lanes make large batches, and no lane takes more than its share of all
// calls: while the server is at work on some, others are written and read. When
// none of the lanes comes back for a while their
// connections may be dead, and others not: more are opened, up to a bound. In a
// cluster a batch would wait for its slowest node, so calls travel alone.
const (
	// Lanes is how many pipelines are on their way at once.
	Lanes       = 3
	senderBatch = 128
	stuckLanes  = 64
	stuckAfter  = 20 * time.Millisecond

	// ScriptCalls is how many requests one script carries: the server does
	// nothing else meanwhile, for about 10 µs each in the worst case.
	ScriptCalls = 32
	// idleTime is how long lanes without work keep their goroutines, at least.
	idleTime = 200 * time.Millisecond

	// promptly is how soon a server answers that its callers may wait for themselves, and aloneFor for how long
	// they do so at most.
	promptly = 100 * time.Millisecond
	aloneFor = 250 * time.Millisecond
)

// NewSender returns a Sender over the caller's client. Its calls count once so many replicas of
// their keys' master have confirmed what they wrote. Its goroutines end when they have had no work for
// a moment, and when closing is closed.
func NewSender(c Client, replicas int, closing <-chan struct{}) *Sender {
	s := &Sender{client: c, traits: c.Traits(), replicas: replicas, closing: closing, wake: make(chan bool, stuckLanes)}
	s.Width(Lanes, senderBatch)
	if s.traits.Cluster {
		s.Width(1<<20, 1)
	}
	if s.traits.Deadlines && replicas == 0 {
		s.direct = &direct{}
	}
	return s
}

// Width sets how many pipelines are on their way at once, while they come back, and how many calls one
// carries at most. It must not be called once the Sender is in use.
func (s *Sender) Width(lanes, batch int) { s.lanes, s.batch = lanes, batch }

// Replicas is how many replicas confirm each call.
func (s *Sender) Replicas() int { return s.replicas }

// Prompt reports whether the latest answer came so soon that a lone request may be sent by its caller.
func (s *Sender) Prompt() bool { return s.prompt.Load() }

// Busy returns how many lanes are at work, and how many calls wait for one.
func (s *Sender) Busy() (lanes, queued int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy, len(s.queue)
}

// Do runs one call and returns when it answered or ctx ended.
func (s *Sender) Do(ctx context.Context, c *Call) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, driver.NotSent(err)
	}
	c.done = make(chan struct{})
	s.Begin(ctx, c, nil)
	select {
	case <-c.done:
		return c.Reply, c.Err
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		if !c.taken { // the lane that takes it looks at ctx
			return nil, driver.NotSent(ctx.Err())
		}
		return nil, ctx.Err()
	}
}

// DoAlone is Do for a request that its caller may make twice, unless it says Once. The caller's own goroutine sends it if it is the
// only one, a request of a batch script, and the server answers promptly. That saves two switches between
// goroutines, half of what a call costs.
//
// The caller cannot leave, but after a moment: the client heeds deadlines (ContextTimeoutEnabled), though it lets no
// other end of a context interrupt its sockets. Then the error is Slow, and the caller makes the request again with Do. So one call of
// a server that stops answering is held up, for aloneFor at most, and no other.
func (s *Sender) DoAlone(ctx context.Context, c *Call) (any, error) {
	if ctx.Err() == nil && s.sendAlone(ctx, c) {
		return c.Reply, c.Err
	}
	return s.Do(ctx, c)
}

// Slow reports whether err is of a call that took its caller too long (DoAlone), and if so, whether it was sent: it may
// still arrive then.
func Slow(err error) (slow, sent bool) {
	e, slow := err.(slowError) //nolint:errorlint // as DoAlone returned it
	return slow, slow && !driver.IsNotSent(e.error)
}

type slowError struct{ error }

func (e slowError) Unwrap() error { return e.error }

// sendAlone sends a call by its caller's goroutine, and reports whether it did. The caller counts as a lane.
func (s *Sender) sendAlone(ctx context.Context, c *Call) bool {
	if s.direct == nil || !c.Script.Batch || c.Once || !s.prompt.Load() {
		return false
	}
	if by, ok := ctx.Deadline(); ok && time.Until(by) < aloneFor || !s.takeAlone() {
		return false
	}
	defer s.giveAlone() // also when a hook of the client's panics
	wait := s.direct.begin(ctx)
	defer s.direct.end()
	c.ctx, c.alone[0] = ctx, c
	s.send(wait, c.alone[:])
	var network net.Error
	if c.Err != nil && errors.As(c.Err, &network) && network.Timeout() { // the answer, or the connection; context.DeadlineExceeded is such an error, too
		c.Err = slowError{c.Err}
	}
	return true
}

// takeAlone makes a lane of the caller, if there is no other, and nothing to do for one.
func (s *Sender) takeAlone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy > 0 || len(s.queue) > 0 {
		return false
	}
	s.busy++
	s.away++
	return true
}

// giveAlone ends that lane.
func (s *Sender) giveAlone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned++
	s.away--
	s.busy--
	if len(s.queue) > 0 {
		s.start()
	}
}

// Begin runs one call. report is called once, by the goroutine with the answer: it must
// not block. A call is dropped when its ctx ended before it was sent.
func (s *Sender) Begin(ctx context.Context, c *Call, report func(*Call)) {
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
func (s *Sender) start() {
	s.busy++
	if s.idle > 0 {
		s.idle--
		s.wake <- true
		return
	}
	go s.work()
}

// arm has unblock look after what waits. mu is held.
func (s *Sender) arm() {
	if s.armed {
		return
	}
	s.armed = true
	returned := s.returned
	time.AfterFunc(stuckAfter, func() { s.unblock(returned) })
}

// unblock opens a lane more when nothing came back since it was armed.
func (s *Sender) unblock(returned int) {
	var left []*Call
	defer func() {
		for _, c := range left {
			c.ends()
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	s.queue = slices.DeleteFunc(s.queue, func(c *Call) bool {
		if c.Err = driver.NotSent(c.ctx.Err()); c.Err != nil { // its caller left
			left = append(left, c)
		}
		return c.Err != nil
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
func (s *Sender) work() {
	for company := false; ; {
		if company {
			runtime.Gosched() // callers that were answered, and are about to ask again, come along
		}
		s.mu.Lock()
		share := (s.away + len(s.queue) + s.lanes - 1) / s.lanes
		n := min(len(s.queue), s.batch, share)
		if n == 0 {
			s.queue = nil
			stays := s.rest()
			s.mu.Unlock()
			if !stays || !s.woken() {
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
		calls = s.run(calls)
		s.mu.Lock()
		s.returned++
		s.away -= n
		over, stays := !company && len(s.queue) == 0, false
		if over { // before its caller asks again, which then need not share the way with this lane
			stays = s.rest()
		}
		s.mu.Unlock()
		for _, c := range calls {
			c.ends()
		}
		if over && (!stays || !s.woken()) {
			return
		}
	}
}

// rest ends the work of a lane, and says whether to keep its goroutine for the next. mu is
// held.
func (s *Sender) rest() (stays bool) {
	s.busy--
	if s.idle >= s.lanes || s.idle+len(s.wake) >= cap(s.wake) { // a token never waits for room
		return false
	}
	s.idle++
	s.reap()
	return true
}

// woken waits until there is work for a lane that rests, and is false when there is none.
func (s *Sender) woken() bool {
	select {
	case work := <-s.wake:
		return work
	case <-s.closing:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case work := <-s.wake:
		return work
	default:
		s.idle--
		return false
	}
}

// reap ends lanes that are idle, once nothing came back for a while: one timer for all,
// since one for each call costs as much as a lane's work. mu is held.
func (s *Sender) reap() {
	if s.reaping {
		return
	}
	s.reaping = true
	returned := s.returned
	time.AfterFunc(idleTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reaping = false
		if s.returned != returned {
			s.reap()
			return
		}
		for ; s.idle > 0; s.idle-- {
			s.wake <- false
		}
	})
}

// run sends calls as one pipeline and waits for the answers. It returns those with callers
// to be told: callers that left before anything was sent have been.
func (s *Sender) run(calls []*Call) []*Call {
	wanted := calls[:0] // calls are this lane's alone
	for _, c := range calls {
		if c.Err = driver.NotSent(c.ctx.Err()); c.Err != nil {
			c.ends() // its caller left before anything was sent
			continue
		}
		wanted = append(wanted, c)
	}
	if len(wanted) == 0 {
		return nil
	}
	ctx, cancel := wanted[0].ctx, context.CancelFunc(func() {})
	if len(wanted) > 1 { // one caller's end must not end the others', the last one's may
		ctx, cancel = lastOf(wanted)
	}
	s.send(ctx, wanted)
	cancel()
	return wanted
}

// send runs calls as one pipeline, and makes of their errors what callers are told.
func (s *Sender) send(ctx context.Context, calls []*Call) {
	began := time.Now()
	s.Exec(ctx, calls)
	for _, c := range calls {
		if c.Err = Explained(c.Err); c.Err != nil && c.voids() {
			c.Err = driver.NotSent(c.Err)
		}
	}
	s.prompt.Store(calls[0].Err == nil && time.Since(began) < promptly)
}

// lastOf returns a context that ends at the latest deadline of calls; never,
// when one of them has none.
func lastOf(calls []*Call) (context.Context, context.CancelFunc) {
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

// direct bounds the waits of lone calls. It is used by one caller at a time: see takeAlone.
type direct struct {
	timer *time.Timer   // there is one for all calls, until one of them has taken too long
	ended chan struct{} // closed by it
}

// begin returns the context to send a call of ctx with, until end.
func (d *direct) begin(ctx context.Context) context.Context {
	if d.timer != nil {
		d.timer.Reset(aloneFor)
	} else {
		ended := make(chan struct{})
		d.ended, d.timer = ended, time.AfterFunc(aloneFor, func() { close(ended) })
	}
	return waiting{ctx, d.ended, time.Now().Add(aloneFor)}
}

func (d *direct) end() {
	if !d.timer.Stop() {
		d.timer = nil
	}
}

// waiting is a context that ends with a wait. To make a timer and a channel for each costs as much as the call.
type waiting struct {
	context.Context
	ended <-chan struct{}
	until time.Time
}

func (w waiting) Done() <-chan struct{}       { return w.ended }
func (w waiting) Deadline() (time.Time, bool) { return w.until, true }

func (w waiting) Err() error {
	select {
	case <-w.ended:
		return context.DeadlineExceeded
	default:
		return w.Context.Err()
	}
}
