// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// call is one run of a script, or one request of the batch script.
type call struct {
	ctx    context.Context // the caller's; nil in a Renew, which has one for all
	slow   bool            // somebody is in its way: no lone script
	script *script
	mark   string // of the batch script: where fences are counted
	keys   []any
	args   []any
	reply  any
	life   string // of the batch script of a node: names the run of the server
	err    error
	report func(*call) // called once, when reply and err stand; nil in a Renew
}

// sender runs scripts. Calls of many goroutines travel together: while all
// lanes are on their way, what arrives waits and leaves as one pipeline, and
// requests of the batch script as one script. A lone call leaves at once.
//
// A caller leaves when its context ends, whatever the connection does: most
// clients let no context interrupt their sockets.
type sender struct {
	rdb     redis.UniversalClient
	lanes   int // pipelines on their way at once, while they come back
	batch   int // calls in one
	closing <-chan struct{}
	wake    chan struct{} // a token for each lane that was parked and has work again

	mu     sync.Mutex
	queue  []*call
	flying int
	away   int // calls on their way
	parked int
	landed int  // counts pipelines that came back
	armed  bool // relieve will come
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
	// parkTime is how long a lane without work keeps its goroutine.
	parkTime = 200 * time.Millisecond
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
		return nil, err
	}
	done := make(chan struct{})
	s.begin(ctx, c, func(*call) { close(done) })
	select {
	case <-done:
		return c.reply, c.err
	case <-ctx.Done():
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
	if s.flying < s.lanes {
		s.start()
	} else {
		s.arm()
	}
}

// start opens a lane. mu is held.
func (s *sender) start() {
	s.flying++
	if s.parked > 0 {
		s.parked--
		s.wake <- struct{}{}
		return
	}
	go s.fly()
}

// arm has relieve look after what waits. mu is held.
func (s *sender) arm() {
	if s.armed {
		return
	}
	s.armed = true
	landed := s.landed
	time.AfterFunc(stuckAfter, func() { s.relieve(landed) })
}

// relieve opens a lane more when nothing came back since it was armed.
func (s *sender) relieve(landed int) {
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
		if c.err = c.ctx.Err(); c.err != nil { // its caller left
			left = append(left, c)
		}
		return c.err != nil
	})
	if len(s.queue) == 0 {
		return
	}
	if s.landed == landed && s.flying < stuckLanes {
		s.start()
	}
	s.arm()
}

// fly sends what waits until nothing does, and for a while longer.
func (s *sender) fly() {
	for company := false; ; {
		if company {
			runtime.Gosched() // whoever was answered, and is about to ask again, comes along
		}
		s.mu.Lock()
		share := (s.away + len(s.queue) + s.lanes - 1) / s.lanes
		n := min(len(s.queue), s.batch, share)
		if n == 0 {
			s.queue = nil
			if !s.park() {
				return
			}
			continue
		}
		calls := s.queue[:n:n]
		s.queue = s.queue[n:]
		s.away += n
		if len(s.queue) > 0 && s.flying < s.lanes {
			s.start()
		}
		company = n > 1
		s.mu.Unlock()
		s.run(calls)
		s.mu.Lock()
		s.landed++
		s.away -= n
		s.mu.Unlock()
	}
}

// park ends the flight of a lane, and keeps its goroutine for the next. It is
// false when none came. mu is held, and released.
func (s *sender) park() bool {
	s.flying--
	if s.parked >= s.lanes || s.parked+len(s.wake) >= cap(s.wake) { // a token never waits for room
		s.mu.Unlock()
		return false
	}
	s.parked++
	s.mu.Unlock()
	limit := time.NewTimer(parkTime)
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
		s.parked--
		return false
	}
}

// run sends calls as one pipeline and waits for the answers.
func (s *sender) run(calls []*call) {
	wanted := calls[:0] // calls are this lane's alone
	for _, c := range calls {
		if c.err = c.ctx.Err(); c.err != nil {
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

// errCompany is of a request that failed beside others in one script. Alone,
// the client sees the server's error, and acts on it (READONLY: another server
// is the master now). Asking again is harmless: see [driver.Driver].
var errCompany = errors.New("redis: a request failed in company")

// exec runs calls as one pipeline: EVALSHA, then with EVAL what the server did
// not know, and alone what failed in company. It sets reply and err of each.
func (s *sender) exec(ctx context.Context, calls []*call) {
	s.pipe(ctx, calls, scriptCalls, false)
	for range 3 { // lone script, batch script, each of which the server may not know
		var again, alone []*call
		for _, c := range calls {
			switch {
			case c.err == errCompany: //nolint:errorlint // the very value, set in answer
				alone = append(alone, c)
			case c.err != nil && redis.HasErrorPrefix(c.err, "NOSCRIPT"):
				again = append(again, c)
			}
		}
		if len(again)+len(alone) == 0 {
			return
		}
		if again = stillWanted(again); len(again) > 0 {
			s.pipe(ctx, again, scriptCalls, true)
		}
		if alone = stillWanted(alone); len(alone) > 0 {
			s.pipe(ctx, alone, 1, false)
		}
	}
}

// stillWanted leaves out the calls whose callers left: what they asked for may
// have been released meanwhile.
func stillWanted(calls []*call) []*call {
	return slices.DeleteFunc(calls, func(c *call) bool {
		if c.ctx == nil || c.ctx.Err() == nil {
			return false
		}
		c.err = c.ctx.Err()
		return true
	})
}

// pipe sends calls, requests of the batch script at most size to a script;
// with load, the server learns the scripts.
func (s *sender) pipe(ctx context.Context, calls []*call, size int, load bool) {
	var cmds []command
	for rest, known := calls, (map[*script]bool)(nil); len(rest) > 0; {
		n := together(rest, size)
		text := load && !known[rest[0].script]
		if load && s.batch > 1 { // in a cluster each goes to a node of its own
			if known == nil {
				known = map[*script]bool{}
			}
			known[rest[0].script] = true
		}
		cmds = append(cmds, newCommand(ctx, rest[:n], text))
		rest = rest[n:]
	}
	var all, shut error
	if len(cmds) == 1 {
		all = s.rdb.Process(ctx, cmds[0])
	} else {
		p := s.rdb.Pipeline()
		for _, cmd := range cmds {
			_ = p.Process(ctx, cmd)
		}
		_, all = p.Exec(ctx)
	}
	for _, cmd := range cmds {
		reply, err := cmd.Result()
		if err == nil && reply == nil {
			// A connection whose set-up the server refused (a wrong password)
			// leaves a pipeline's commands without a word.
			err = cmp.Or(all, errReply)
		}
		if shut != nil && errors.Is(err, io.EOF) {
			err = shut
		} else if err = explain(err); unauthenticated(err) {
			shut = err // the server closes the connection on the commands behind it
		}
		cmd.answer(reply, err)
	}
}

func unauthenticated(err error) bool {
	return redis.HasErrorPrefix(err, "Protocol error: unauthenticated")
}

// explain adds to errors of the server that do not say what to do.
func explain(err error) error {
	switch {
	case redis.HasErrorPrefix(err, "CROSSSLOT"):
		return fmt.Errorf("%w (this server is a cluster: use a redis.ClusterClient)", err)
	case unauthenticated(err):
		return fmt.Errorf("%w (the server wants a password)", err)
	}
	return err
}

// command is an EVALSHA or EVAL that the client does not send again by itself,
// whatever its options say: after a time-out it would arrive when the caller
// is long gone and has released what it asked for.
type command struct {
	*redis.Cmd
	calls []*call
}

func (command) NoRetry() bool { return true }

func (c command) Clone() redis.Cmder { return command{c.Cmd.Clone().(*redis.Cmd), c.calls} }

// together counts the calls at the front that one command carries.
func together(calls []*call, size int) int {
	n := 1
	for calls[0].script.batch && n < min(len(calls), size) && calls[n].script.batch {
		n++
	}
	return n
}

// goesAlone says whether the lone script may do for a call.
func (c *call) goesAlone() bool {
	return c.script.lone != nil && !c.slow && (c.args[0] == "p" || c.args[0] == "b")
}

func newCommand(ctx context.Context, calls []*call, text bool) command {
	first := calls[0]
	nkeys, nargs := 0, 0
	for _, c := range calls {
		nkeys, nargs = nkeys+len(c.keys), nargs+len(c.args)
	}
	args := make([]any, 0, 7+nkeys+nargs)
	script := first.script
	if len(calls) == 1 && first.goesAlone() {
		script = script.lone
	}
	if text {
		args = append(args, "eval", script.text)
	} else {
		args = append(args, "evalsha", script.sha)
	}
	if first.script.batch {
		args = append(args, 1+len(first.script.keys)+nkeys, first.mark)
		args = append(args, first.script.keys...)
	} else {
		args = append(args, nkeys)
	}
	for _, c := range calls {
		args = append(args, c.keys...)
	}
	if first.script.batch {
		args = append(args, len(calls))
	}
	for _, c := range calls {
		args = append(args, c.args...)
	}
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return command{cmd, calls}
}

// answer deals out the reply of a script.
func (c command) answer(reply any, err error) {
	if err != nil || !c.calls[0].script.batch {
		for _, call := range c.calls {
			call.reply, call.err = reply, err
		}
		return
	}
	answers, _ := reply.([]any)
	life := ""
	if n := len(c.calls); len(answers) == n+1 && len(c.calls[0].script.keys) > 0 {
		life, _ = answers[n].(string)
		answers = answers[:n]
	}
	for i, call := range c.calls {
		switch {
		case len(answers) != len(c.calls):
			call.err = errReply
		case answers[i] == nil:
			call.err, call.slow = errCompany, true
		default:
			call.reply, call.life, call.err = answers[i], life, nil
		}
	}
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
