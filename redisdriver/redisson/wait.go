// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

const (
	pollHeard  = 3 * time.Second  // a waiter that gets messages asks so often all the same
	askTime    = 5 * time.Second  // for the answer to one request
	silentTime = 30 * time.Second // a wait goes on for so long without an answer
)

// wait is one wait for permits, or for a latch to open.
type wait struct {
	*object
	permits int
	// try asks once. in is when to ask again at the latest; 0: not known.
	try func(ctx context.Context) (done bool, in time.Duration, err error)
	// once: a request that may have been carried out is not repeated.
	once bool

	post    *post // once messages come
	watcher *watcher
	deaf    bool // the server does not allow us to subscribe
	trouble error
	since   time.Time // of the first trouble without an answer after it
}

// run tries until it is done, or ctx or the Synchronizers end.
//
// It subscribes once it was refused, and tries again when that is confirmed: so no message is missed in between.
func (w *wait) run(ctx context.Context) error {
	if err := w.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx) // its end takes the watcher away
	defer cancel(nil)
	defer context.AfterFunc(w.s.life, func() { cancel(driver.ErrClosed) })()
	for hinted := false; ; {
		done, in, err := w.ask(ctx)
		if done {
			return nil
		}
		if err != nil {
			in, err = w.troubled(ctx, err)
		} else {
			w.trouble = nil
			if hinted {
				w.passOn()
			}
		}
		if err != nil {
			return err
		}
		at := time.Now().Add(w.pause(in))
		if w.listen(ctx) {
			hinted = false
			continue
		}
		if hinted, err = w.sleep(ctx, time.Until(at)); err != nil {
			return err
		}
	}
}

// errSilent is of the class Unreachable, and does not look like the end of the caller's context.
var errSilent = fmt.Errorf("redisson: no answer from the server within %v: %w", askTime, os.ErrDeadlineExceeded)

// ask tries once, within askTime.
func (w *wait) ask(ctx context.Context) (done bool, in time.Duration, err error) {
	answered := func() {}
	if w.post != nil {
		answered = w.post.asks(w.watcher)
	}
	brief, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	done, in, err = w.try(brief)
	switch {
	case err == nil:
		answered()
	case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
	case driver.IsNotSent(err):
		err = driver.NotSent(errSilent)
	default:
		err = errSilent
	}
	return done, in, err
}

// troubled says how long to wait after an error before asking again, or returns what ends the wait.
func (w *wait) troubled(ctx context.Context, err error) (time.Duration, error) {
	if w.trouble == nil {
		w.since = time.Now()
	}
	switch was := w.trouble; {
	case ctx.Err() != nil:
		if was == nil && !errors.Is(err, ctx.Err()) {
			w.trouble = err
		}
		return 0, w.ended(ctx)
	case w.once && !untouched(err), !passes(wire.Classify(err)), time.Since(w.since) > silentTime:
		return 0, err
	}
	w.trouble = err
	return pollMax, nil
}

// passes says whether an error may go away by itself.
func passes(class driver.Class) bool {
	return class == driver.ClassUnreachable || class == driver.ClassReadOnly || class == driver.ClassFull || class == driver.ClassLogin
}

// ended is why ctx ended, with what was in the way.
func (w *wait) ended(ctx context.Context) error {
	err := ctx.Err()
	if errors.Is(context.Cause(ctx), driver.ErrClosed) {
		err = driver.ErrClosed
	}
	if w.trouble != nil {
		return fmt.Errorf("%w; the latest attempt: %w", err, w.trouble)
	}
	return err
}

// listen subscribes to the messages, and returns true when they come from now on.
func (w *wait) listen(ctx context.Context) bool {
	if w.post != nil || w.deaf {
		return false
	}
	p, err := w.s.posts.Get(w.slot)
	if err != nil || p == nil {
		return false // too many: it polls
	}
	defer p.Use(-1)
	brief, cancel := context.WithTimeout(ctx, pollMax) // without an answer it polls, and tries again
	defer cancel()
	if up, err := p.Await(brief); !up {
		w.deaf = err == nil
		return false
	}
	if ok, err := p.Join(brief, w.channel); !ok {
		w.deaf = err == nil
		return false
	}
	w.post, w.watcher = p, &watcher{permits: w.permits, begun: -1, heeded: -1} // it is about to ask
	p.watch(ctx, w.channel, w.watcher)
	return true
}

// pause is how long to wait for a message.
func (w *wait) pause(in time.Duration) time.Duration {
	most := w.s.poll
	if w.post == nil || !w.post.Listens(w.channel) {
		most = min(most, pollMax)
	}
	if in > 0 {
		return min(in, most)
	}
	return most
}

// sleep waits for a hint, or for a time.
func (w *wait) sleep(ctx context.Context, pause time.Duration) (hinted bool, err error) {
	var hint <-chan driver.Hint
	if w.watcher != nil && w.trouble == nil { // the pause after an error stands
		hint = w.watcher.hint
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-hint:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, w.ended(ctx)
	}
}

// passOn gives the hint of a refused waiter to the next that wants fewer permits.
func (w *wait) passOn() {
	p := w.post
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.waiting[w.channel]
	for _, next := range all[slices.Index(all, w.watcher)+1:] {
		if next.permits < w.permits && !next.woken() {
			next.signal()
			return
		}
	}
}

// undated is a context without a deadline, for a request with an answer that matters also when its caller has left: a client
// may end its connection at the deadline.
type undated struct{ context.Context }

func (undated) Deadline() (at time.Time, ok bool) { return time.Time{}, false }

// ask runs a call. If ctx ends before it is answered, late is called once it is; it must not block.
func (s *Synchronizers) ask(ctx context.Context, c *wire.Call, late func()) error {
	if err := ctx.Err(); err != nil {
		return driver.NotSent(err)
	}
	var mu sync.Mutex
	left, done := false, make(chan struct{})
	s.send.Begin(undated{ctx}, c, func(*wire.Call) {
		mu.Lock()
		defer mu.Unlock()
		close(done)
		if left {
			late()
		}
	})
	select {
	case <-done:
		return c.Err
	case <-ctx.Done():
	}
	mu.Lock()
	defer mu.Unlock()
	select {
	case <-done:
		return c.Err
	default:
		left = true
		return ctx.Err()
	}
}
