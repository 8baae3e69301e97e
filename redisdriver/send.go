// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// call is one run of a script.
type call struct {
	ctx    context.Context
	script *script
	keys   []string
	args   []any
	reply  any
	err    error
	done   chan struct{} // closed when reply and err stand
}

// sender runs scripts. Calls of many goroutines travel together: while all
// lanes are on their way, what arrives waits and leaves as one pipeline. A lone
// call leaves at once.
//
// A caller leaves when its context ends, whatever the connection does: most
// clients let no context interrupt their sockets.
type sender struct {
	rdb   redis.UniversalClient
	lanes int // pipelines on their way at once, while they come back
	batch int // calls in one

	mu     sync.Mutex
	queue  []*call
	flying int
	landed int  // counts pipelines that came back
	armed  bool // relieve will come
}

// Few lanes make large batches. When none of them comes back for a while their
// connections may be dead, and others not: more are opened, up to a bound. In a
// cluster a batch would wait for its slowest node, so calls travel alone.
const (
	senderLanes = 4
	senderBatch = 128
	stuckLanes  = 64
	stuckAfter  = 20 * time.Millisecond
)

func newSender(rdb redis.UniversalClient, cluster bool) *sender {
	if cluster {
		return &sender{rdb: rdb, lanes: 1 << 20, batch: 1}
	}
	return &sender{rdb: rdb, lanes: senderLanes, batch: senderBatch}
}

// do runs one script and returns when it answered or ctx ended.
func (s *sender) do(ctx context.Context, sc *script, keys []string, args ...any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &call{ctx: ctx, script: sc, keys: keys, args: args, done: make(chan struct{})}
	s.mu.Lock()
	s.queue = append(s.queue, c)
	if s.flying < s.lanes {
		s.start()
	} else {
		s.arm()
	}
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.reply, c.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// start opens a lane. mu is held.
func (s *sender) start() {
	s.flying++
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	s.queue = slices.DeleteFunc(s.queue, func(c *call) bool { return c.ctx.Err() != nil }) // their callers left
	if len(s.queue) == 0 {
		return
	}
	if s.landed == landed && s.flying < stuckLanes {
		s.start()
	}
	s.arm()
}

// fly sends what waits until nothing does.
func (s *sender) fly() {
	for {
		s.mu.Lock()
		n := min(len(s.queue), s.batch)
		if n == 0 {
			s.flying--
			s.queue = nil
			s.mu.Unlock()
			return
		}
		calls := s.queue[:n:n]
		s.queue = s.queue[n:]
		s.mu.Unlock()
		s.run(calls)
		s.mu.Lock()
		s.landed++
		s.mu.Unlock()
	}
}

// run sends calls as one pipeline and waits for the answers.
func (s *sender) run(calls []*call) {
	wanted := calls[:0:0]
	for _, c := range calls {
		if c.err = c.ctx.Err(); c.err != nil {
			close(c.done) // its caller left before anything was sent
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
		close(c.done)
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

// exec runs calls as one pipeline: EVALSHA, then once more with EVAL what the
// server did not know. It sets reply and err of each.
func (s *sender) exec(ctx context.Context, calls []*call) {
	known := func(*call) bool { return true }
	s.pipe(ctx, calls, known)
	var again []*call
	for _, c := range calls {
		if redis.HasErrorPrefix(c.err, "NOSCRIPT") {
			again = append(again, c)
		}
	}
	if len(again) == 0 {
		return
	}
	loaded := map[*script]bool{}
	s.pipe(ctx, again, func(c *call) bool {
		if s.batch == 1 {
			return false // cluster: each goes to a node of its own
		}
		was := loaded[c.script]
		loaded[c.script] = true
		return was
	})
}

func (s *sender) pipe(ctx context.Context, calls []*call, known func(*call) bool) {
	cmds := make([]command, len(calls))
	for i, c := range calls {
		cmds[i] = newCommand(ctx, c, known(c))
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
	for i, c := range calls {
		c.reply, c.err = cmds[i].Result()
		if c.err == nil && c.reply == nil {
			// A connection whose set-up the server refused (a wrong password)
			// leaves a pipeline's commands without a word.
			c.err = cmp.Or(all, errReply)
		}
		if c.err == nil {
			continue
		}
		if shut != nil && errors.Is(c.err, io.EOF) {
			c.err = shut
			continue
		}
		if c.err = explain(c.err); unauthenticated(c.err) {
			shut = c.err // the server closes the connection on the commands behind it
		}
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
type command struct{ *redis.Cmd }

func (command) NoRetry() bool { return true }

func (c command) Clone() redis.Cmder { return command{c.Cmd.Clone().(*redis.Cmd)} }

func newCommand(ctx context.Context, c *call, known bool) command {
	args := make([]any, 0, 3+len(c.keys)+len(c.args))
	if known {
		args = append(args, "evalsha", c.script.sha)
	} else {
		args = append(args, "eval", c.script.text)
	}
	args = append(args, len(c.keys))
	for _, k := range c.keys {
		args = append(args, k)
	}
	cmd := redis.NewCmd(ctx, append(args, c.args...)...)
	cmd.SetFirstKeyPos(3)
	return command{cmd}
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
