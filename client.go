// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/user"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/process"
)

// Info describes a key in the store.
type Info = driver.Info

// Holder is somebody who holds a key or waits for it.
type Holder = driver.Holder

// Client hands out the locks of one store. It is safe for use by many
// goroutines; a program needs one for each store. It has one goroutine while
// it holds leases or waits, and none otherwise.
type Client struct {
	drv         driver.Driver
	traits      driver.Traits
	observe     func(Event)
	recordTaken bool
	maxSilence  time.Duration
	now         clock.Clock
	renewer     *renewer
	cohorts     cohorts
	debts       debts
	waits       *admission.Waits
	label       atomic.Pointer[label]

	open context.Context // ends when Close begins: so do all waits
	shut context.CancelFunc
	base context.Context // ends when Close is over: of work that outlives its caller
	stop context.CancelFunc

	mu     sync.Mutex
	closed bool
	ops    int           // calls and background work under way
	idle   chan struct{} // closed when closed and ops is 0
}

// New returns a client of the store behind d, and does no I/O. It takes d
// over: Close closes it. nil options mean the defaults. A driver that was
// configured in a way that cannot work is refused here.
func New(d driver.Driver, o *Options) (*Client, error) {
	if d == nil {
		return nil, errors.New("hasp: new: the driver is nil")
	}
	c := &Client{drv: d, traits: d.Traits(), now: clock.System, idle: make(chan struct{})}
	if o == nil {
		o = &Options{}
	}
	if o.MaxSilence < 0 {
		return nil, fmt.Errorf("hasp: new: MaxSilence is %v: it must be positive, or 0 for no bound", o.MaxSilence)
	}
	c.recordTaken, c.maxSilence = o.RecordTaken, o.MaxSilence
	c.observe, c.waits = o.Observe, admission.New(o.StateDir)
	if ch, ok := d.(driver.Checker); ok {
		if err := ch.Check(); err != nil {
			return nil, c.fail("new", "", err)
		}
	}
	c.open, c.shut = context.WithCancel(context.Background())
	c.base, c.stop = context.WithCancel(context.Background())
	c.debts.c = c
	c.renewer = &renewer{c: c, wake: make(chan struct{}, 1)}
	return c, nil
}

// Traits says what the store, so configured, promises.
func (c *Client) Traits() driver.Traits { return c.traits }

// Inspect says who holds a key, and who waits for it. A free key is no error.
func (c *Client) Inspect(ctx context.Context, key string) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, c.fail("inspect", key, err)
	}
	info, err := c.inspect(ctx, key)
	return info, c.fail("inspect", key, err)
}

func (c *Client) inspect(ctx context.Context, key string) (Info, error) {
	ctx, done, err := c.during(ctx)
	if err != nil {
		return Info{}, err
	}
	defer done()
	return c.drv.Inspect(ctx, key)
}

// List yields the keys that start with prefix and are held or waited for, in
// no order. It ends after the first error.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		ctx, done, err := c.during(ctx)
		if err != nil {
			yield(Info{}, c.fail("list", "", err))
			return
		}
		defer done()
		for info, err := range c.drv.List(ctx, prefix) {
			if !yield(info, c.fail("list", "", err)) || err != nil {
				return
			}
		}
	}
}

// Close ends every wait (ErrClosed), stops renewal, ends the contexts of all
// leases (cause ErrClosed) and releases them, within about 5 seconds in all; a
// key that Do holds only after its function returned. The error names what
// could not be released: the store keeps that until its TTL is over. Closing
// twice is harmless. What the caller gave to the driver stays open.
func (c *Client) Close() error {
	c.mu.Lock()
	first := !c.closed
	if first {
		c.closed = true
		c.shut()
		if c.ops == 0 {
			close(c.idle)
		}
	}
	c.mu.Unlock()
	if !first {
		return nil
	}
	limit, cancel := context.WithTimeout(c.base, releaseLimit)
	defer cancel()
	// First every context, and only then the store: nobody keeps an eye on
	// deadlines any more.
	var held, running []*hold
	for _, h := range c.renewer.shut() {
		switch ended, runs := h.finish(c.fail("hold", h.req.Key, ErrClosed)); {
		case runs:
			running = append(running, h)
		case ended: // otherwise its Release is under way
			held = append(held, h)
		}
	}
	err := c.releaseAll(limit, held)
	select {
	case <-c.idle: // every wait has ended and cleaned up behind itself
	case <-limit.Done():
	}
	c.stop()
	for _, h := range running {
		err = errors.Join(err, h.stillRuns())
	}
	select {
	case <-c.idle: // the driver ends what c.base ended
	case <-time.After(time.Second):
	}
	return errors.Join(err, c.fail("close", "", c.drv.Close()))
}

// releaseAll ends and releases what is held, many at a time.
func (c *Client) releaseAll(ctx context.Context, holds []*hold) error {
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	next := make(chan *hold)
	for range min(releaseLanes, len(holds)) {
		wg.Go(func() {
			for h := range next {
				if err := h.release(ctx, nil, driver.Unfinished); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, h := range holds {
		next <- h
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// during counts a call in, and returns a context that ends with ctx and when
// Close begins; done must be called after the call.
func (c *Client) during(ctx context.Context) (own context.Context, done func(), err error) {
	if !c.enter() {
		return nil, nil, ErrClosed
	}
	own, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.open, func() { cancel(ErrClosed) })
	return own, func() { stop(); cancel(nil); c.leave() }, nil
}

// enter counts a call in, unless the client is closed.
func (c *Client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.ops++
	return true
}

// enterLate is enter for the clean-up of a call that was let in: Close waits
// for it, too. It must be called before that call's leave.
func (c *Client) enterLate() {
	c.mu.Lock()
	c.ops++
	c.mu.Unlock()
}

func (c *Client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ops--; c.ops == 0 && c.closed {
		close(c.idle)
	}
}

// fail wraps an error once. nil stays nil.
func (c *Client) fail(op, key string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(*Error); ok { //nolint:errorlint // one deeper in a cause is of another operation
		return err
	}
	return &Error{Op: op, Key: key, Engine: c.traits.Engine, Class: c.classify(err), Err: err}
}

func (c *Client) classify(err error) Class {
	switch {
	case errors.As(err, new(*silentError)), errors.Is(err, driver.ErrNotVoting):
		return ClassUnreachable
	case errors.As(err, new(*tooLongError)):
		return ClassMisconfigured
	}
	return c.drv.Classify(err)
}

// self is what labels say about this process.
var self = sync.OnceValue(func() driver.Label {
	l := driver.Label{PID: os.Getpid(), Process: process.Self()}
	l.Host, _ = os.Hostname() // a label without a host is still a label
	if u, err := user.Current(); err == nil {
		l.User = u.Username
	}
	return l
})

// label is Label.Encode for one reason, but for the time.
type label struct{ reason, before, after string }

const labelTime = "2006-01-02T15:04:05.000Z"

// newLabel describes an acquisition that begins now.
func (c *Client) newLabel(reason string) string {
	l := c.label.Load()
	if l == nil || l.reason != reason {
		ref := time.Date(2006, 1, 2, 15, 4, 5, int(time.Millisecond), time.UTC)
		who := self()
		who.Reason, who.Since = reason, ref
		l = &label{reason: reason}
		text := who.Encode()
		at := strings.LastIndex(text, ref.Format(labelTime)) // since comes last
		l.before, l.after = text[:at], text[at+len(labelTime):]
		c.label.Store(l)
	}
	b := make([]byte, 0, driver.MaxLabel) // of a fixed size, it stays on the stack
	b = time.Now().UTC().AppendFormat(append(b, l.before...), labelTime)
	return string(append(b, l.after...))
}
