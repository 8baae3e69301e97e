// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/gate"
	"github.com/hasplock/hasp/internal/keepalive"
	"github.com/hasplock/hasp/internal/lifetime"
	"github.com/hasplock/hasp/internal/process"
	"github.com/hasplock/hasp/internal/wait"
)

// Client creates locks in one store. It is safe for use by many goroutines; a
// program needs one for each store. It has one goroutine while it holds leases or
// waits, and none otherwise. Its zero value panics: New makes one.
type Client struct {
	_    [0]func() // not comparable, so that any field may be added
	core *core
}

// New returns a client of the store behind d. It does no I/O, and takes ownership
// of d: Close closes it. nil options mean the defaults. An error says that the
// options are invalid, or that the driver's configuration cannot work.
func New(d driver.Driver, o *Options) (*Client, error) {
	if d == nil {
		return nil, newMistake("new", "the driver is nil")
	}
	if o == nil {
		o = &Options{}
	}
	if o.MaxSilence < 0 {
		return nil, newMistake("new", "MaxSilence is %v: it must be positive, or 0 for no bound", o.MaxSilence)
	}
	if o.MaxFaulty < 0 {
		return nil, newMistake("new", "MaxFaulty is %v: it must be positive, or 0 for the default of %v", o.MaxFaulty, defaultFaulty)
	}
	c := newCore(d, o)
	if err := d.Check(); err != nil {
		return nil, c.fail("new", "", err)
	}
	if teller, ok := d.(driver.Teller); ok {
		teller.Tell((&ended{c: c}).hear)
	}
	return &Client{core: c}, nil
}

// made returns what the parts of the client share. It panics for a Client that New did not make.
func (c *Client) made() *core {
	if c == nil || c.core == nil {
		panic("hasp: this Client was not made by New")
	}
	return c.core
}

// Traits says what the store promises as it is configured, and, of MaxTTL, as it has decided since it was reached.
func (c *Client) Traits() driver.Traits { return c.made().drv.Traits() }

// Close ends every wait (ErrClosed), stops renewal, ends the contexts of all
// leases (cause ErrClosed) and releases them, within 5 seconds in all. In an outage it does not wait again for
// what a Release has tried for so long, nor for a lease that was lost: that is sent once more, for 0.3 seconds. A
// key that Do holds is released only after its function returned. The error names
// what could not be released: the store keeps that until its TTL is over. Closing
// twice is harmless. What the caller gave to the driver stays open.
func (c *Client) Close() error { return c.made().close() }

func (c *core) close() error {
	if !c.calls.Close() {
		return nil
	}
	limit, cancel := context.WithTimeout(c.calls.Base, releaseLimit-moment)
	defer cancel()
	c.cleanups.close()
	// First every context, and only then the store: the renewer no longer
	// watches deadlines.
	var ended, running []*hold
	for _, m := range c.renewer.Shut() {
		held, ok := m.(interface{ holds() *hold })
		if !ok {
			continue // a place in the queue: its Lock gives it back
		}
		h := held.holds()
		switch done, runs := h.finish(lifetime.Closed, c.fail("hold", h.req.Key, ErrClosed)); {
		case runs:
			running = append(running, h)
		case done: // otherwise its Release is under way
			ended = append(ended, h)
		}
	}
	err := c.releaseAll(limit, ended)
	select {
	case <-c.calls.Idle(): // every wait has ended and cleaned up behind itself
	case <-limit.Done():
	}
	c.calls.Stop()
	select {
	case <-c.calls.Idle(): // the driver ends what Base ended; a function of Do may not return at all
	case <-time.After(moment):
	}
	err = errors.Join(err, c.cohorts.notFreed())
	for _, h := range running {
		err = errors.Join(err, h.notReleased())
	}
	return errors.Join(err, c.fail("close", "", c.drv.Close()))
}

// mustHave panics without a context.
func mustHave(ctx context.Context) {
	if ctx == nil {
		panic("hasp: the context is nil")
	}
}

// core is what all parts of a client share: its store, and what is under way.
type core struct {
	drv           driver.Driver
	traits        driver.Traits
	observe       func(context.Context, *event.Event)
	recordCallers bool
	maxSilence    time.Duration
	maxFaulty     time.Duration
	heard         atomic.Bool // the store has given a good answer
	now           clock.Clock
	waits         *admission.Waits
	labels        labels
	calls         *gate.Gate
	renewer       *keepalive.Loop
	cleanups      *cleanups
	busy          busy
	cohorts       cohorts
	behind        behind
}

func newCore(d driver.Driver, o *Options) *core {
	c := &core{drv: d, traits: d.Traits(), observe: o.Observe, recordCallers: o.RecordCallers, maxSilence: o.MaxSilence,
		maxFaulty: cmp.Or(o.MaxFaulty, defaultFaulty), now: clock.Cheap(), waits: admission.New(o.StateDir, o.StateFailed), calls: gate.New()}
	c.renewer = keepalive.New(d.Renew, func() clock.Instant { return c.now() }, c.calls)
	c.cleanups = &cleanups{c: c, again: make(chan struct{}, 1)}
	c.cohorts.c = c
	c.behind.newest = map[string]chan struct{}{}
	return c
}

// events are used again, so that an observer costs no memory for each of its calls.
var events = sync.Pool{New: func() any { return new(event.Event) }}

// emit tells the observer, which there is, of one of events.
func (c *core) emit(ctx context.Context, e *event.Event) {
	if ctx == nil {
		ctx = context.Background()
	}
	e.Engine = c.traits.Engine
	c.observe(ctx, e)
	*e = event.Event{}
	events.Put(e)
}

// sentAt returns a time on the monotonic clock as the observer wants it.
func sentAt(mono time.Duration, now clock.Instant) time.Time {
	return time.Now().Add(mono - now.Mono)
}

// ended takes from the engine which leases the store has ended, see
// [driver.Teller]: the end of a session may end thousands at once.
type ended struct {
	c *core

	mu    sync.Mutex
	heard map[driver.ID]uint64 // the largest fence of each; nil: no declare is due
}

// hear notes a lease that is over. It does not block.
func (e *ended) hear(id driver.ID, fence uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.heard == nil {
		if !e.c.calls.Enter() {
			return // Close ends all leases
		}
		e.heard = make(map[driver.ID]uint64)
		go e.declare()
	}
	e.heard[id] = max(e.heard[id], fence)
}

// declare declares lost what was heard of. A lease that its caller does not have
// yet is missed, and lost at its first renewal.
func (e *ended) declare() {
	defer e.c.calls.Leave()
	e.mu.Lock()
	heard := e.heard
	e.heard = nil
	e.mu.Unlock()
	for _, m := range e.c.renewer.Members() {
		held, ok := m.(interface{ holds() *hold })
		if !ok {
			continue
		}
		h := held.holds()
		// An owner that was released may have asked again, with a larger fence.
		if fence, over := heard[h.req.ID()]; over && h.req.Fence <= fence {
			h.lose(fmt.Errorf("%w: it ended the lease", ErrNotHeld))
		}
	}
}

// fail wraps an error once. nil stays nil.
func (c *core) fail(op, key string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(*Error); ok { //nolint:errorlint // one deeper in a cause is of another operation
		return err
	}
	return &Error{Op: op, Key: key, Engine: c.traits.Engine, Class: c.classify(err), Err: err}
}

func (c *core) classify(err error) driver.Class {
	switch {
	case errors.As(err, new(*silentError)), errors.Is(err, voting.ErrNotVoting):
		return driver.ClassUnreachable
	case errors.As(err, new(mistake)), errors.As(err, new(*tooLongError)), errors.Is(err, ErrUnsupported):
		return driver.ClassImpossible
	}
	return c.drv.Classify(err)
}

// troubles is the one rule for errors, by class; docs/errors.md has it in words. A store that gave this client
// a good answer before is not misconfigured: it fails over, its password is rotated, or an operator
// mends it. Before that, what a person must mend ends a wait at once, and the rest may pass by itself.
var troubles = map[driver.Class]struct{ first, then wait.Trouble }{
	driver.ClassUnknown:       {wait.Unclear, wait.Unclear},
	driver.ClassUnreachable:   {wait.Away, wait.Away},
	driver.ClassReadOnly:      {wait.Rejects, wait.Away},
	driver.ClassFull:          {wait.Rejects, wait.Away},
	driver.ClassLogin:         {wait.Rejects, wait.Rejects},
	driver.ClassDenied:        {wait.Permanent, wait.Rejects},
	driver.ClassMisconfigured: {wait.Permanent, wait.Rejects},
	driver.ClassImpossible:    {wait.Permanent, wait.Permanent},
}

func (c *core) trouble(err error) wait.Trouble {
	t := troubles[c.classify(err)]
	if c.heard.Load() {
		return t.then
	}
	return t.first
}

// hears notes what came of a request: nil and ErrNotHeld are good answers.
func (c *core) hears(err error) {
	if (err == nil || errors.Is(err, ErrNotHeld)) && !c.heard.Load() {
		c.heard.Store(true)
	}
}

// answered says whether an error is the store's answer, if only a refusal.
func (c *core) answered(err error) bool {
	t := troubles[c.classify(err)].first
	return t == wait.Permanent || t == wait.Rejects
}

// settled says whether what came of a release is the store's answer for good. A store that never gave a good answer, and
// refused all that it was asked, has nothing of ours; mayHold: it may have, since it granted, or a Try had no answer.
func (c *core) settled(err error, mayHold bool) bool {
	c.hears(err)
	switch {
	case err == nil || errors.Is(err, ErrNotHeld):
		return true
	case mayHold || c.heard.Load():
		return troubles[c.classify(err)].then == wait.Permanent
	}
	return c.answered(err)
}

// request is the context of one request to the store: it ends with the caller's, at the
// deadline, when the client begins to close, and with done. Most requests are answered
// before a goroutine waits for its end, and a timer and a channel cost as much as all else that
// a lock does here: they are made when Done asks for them.
type request struct {
	context.Context                 // the caller's
	open            context.Context // ends when the client begins to close; nil: that does not end it
	deadline        time.Time       // its own; zero: the caller's is earlier

	mu    sync.Mutex
	over  error           // once it is known to have ended
	inner context.Context // what Done asked for
	stop  func()          // ends inner
}

// newRequest returns a context that ends limit from now.
func newRequest(ctx, open context.Context, limit time.Duration) *request {
	r := &request{Context: ctx, open: open, deadline: time.Now().Add(limit)}
	if by, ok := ctx.Deadline(); ok && !r.deadline.Before(by) {
		r.deadline = time.Time{}
	}
	return r
}

// done ends it: its answer is no longer needed.
func (r *request) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = cmp.Or(r.over, context.Canceled)
	if r.inner != nil {
		r.stop()
	}
}

// Deadline implements [context.Context].
func (r *request) Deadline() (time.Time, bool) {
	if r.deadline.IsZero() {
		return r.Context.Deadline()
	}
	return r.deadline, true
}

// Err implements [context.Context].
func (r *request) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over != nil:
	case r.inner != nil:
		r.over = r.inner.Err()
	case r.Context.Err() != nil:
		r.over = r.Context.Err()
	case r.open != nil && r.open.Err() != nil:
		r.over = context.Canceled
	case !r.deadline.IsZero() && !time.Now().Before(r.deadline):
		r.over = context.DeadlineExceeded
	}
	return r.over
}

// Done implements [context.Context].
func (r *request) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inner == nil {
		var cancel context.CancelFunc
		if r.deadline.IsZero() {
			r.inner, cancel = context.WithCancel(r.Context)
		} else {
			r.inner, cancel = context.WithDeadline(r.Context, r.deadline)
		}
		r.stop = cancel
		if r.over != nil {
			cancel()
		} else if r.open != nil {
			forget := context.AfterFunc(r.open, cancel)
			r.stop = func() { forget(); cancel() }
		}
	}
	return r.inner.Done()
}

// Value implements [context.Context]. Contexts made from this one find in it what Done
// made, and need no goroutine each to follow it.
func (r *request) Value(key any) any {
	r.mu.Lock()
	inner := r.inner
	r.mu.Unlock()
	if inner != nil {
		return inner.Value(key)
	}
	return r.Context.Value(key)
}

// tryStore sends one Try, and a second when the first was refused by a store that has been admitted
// since. storeErr is set when the store, not the key, was the reason of a refusal.
func (c *core) tryStore(ctx context.Context, r driver.TryRequest) (res driver.Result, storeErr, err error) {
	for range 2 {
		unsettled := res.Unsettled
		res, err = c.drv.Try(ctx, r)
		res.Unsettled = res.Unsettled || unsettled
		if c.hears(err); err != nil {
			return res, nil, err
		}
		c.cleanups.retry()
		var admitted bool
		if admitted, storeErr = c.admitOrWhy(ctx, res, r.TTL); !admitted {
			break
		}
	}
	return res, storeErr, nil
}

// admitOrWhy admits a store that was held back for long enough, or returns why the store grants nothing. False and nil:
// the refusal is about the key.
func (c *core) admitOrWhy(ctx context.Context, res driver.Result, ttl time.Duration) (admitted bool, err error) {
	switch res.Why {
	case voting.NotVoting:
		n, ok := c.drv.(voting.Recorded)
		if !ok {
			return false, &admission.HeldBack{Left: res.Left}
		}
		rec, err := n.Record(ctx)
		if err == nil {
			err = c.waits.Admit(ctx, n, rec, c.traits.MaxTTL, max(c.traits.MaxTTL, rec.MaxTTL))
		}
		return err == nil, cmp.Or[error](err, &admission.HeldBack{})
	case voting.TTLTooLong:
		return false, &tooLongError{ttl, res.TTL}
	}
	return false, nil
}

// unshared returns why the engine cannot share a key, or not by number.
func (c *core) unshared(limit int) error {
	switch tr := c.traits; {
	case !tr.Shared:
		return fmt.Errorf("%w: %s gives a key to one holder at a time", ErrUnsupported, tr.Engine)
	case limit > 0 && !tr.Slots:
		return fmt.Errorf("%w: %s has no slots: counting votes would admit more than %d", ErrUnsupported, tr.Engine, limit)
	}
	return nil
}

// heldBack returns how long a store is still held back, as far as an error says.
func heldBack(err error) time.Duration {
	if held := (*admission.HeldBack)(nil); errors.As(err, &held) {
		return max(held.Left, 0)
	}
	return 0
}

// maxBusy bounds the keys of a client that are remembered.
const maxBusy = 1 << 14

// busy are the keys of which a client's latest Lock was refused at first: the next one is likely to
// wait, too, and watches and joins with its first Try, which saves a round trip.
type busy struct {
	deaf atomic.Bool // the latest Watch failed: waiting for one would keep a Lock from a key that is free
	n    atomic.Int64
	mu   sync.Mutex
	keys map[string]struct{}
}

// is says whether the key is one.
func (b *busy) is(key string) bool {
	if b.n.Load() == 0 || b.deaf.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.keys[key]
	return ok
}

// note notes how the first Try of a Lock ended.
func (b *busy) note(key string, refused bool) {
	if !refused && b.n.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !refused:
		delete(b.keys, key)
	case b.keys == nil || len(b.keys) >= maxBusy:
		b.keys = map[string]struct{}{key: {}}
	default:
		b.keys[key] = struct{}{}
	}
	b.n.Store(int64(len(b.keys)))
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

// labels makes the labels of a client's acquisitions.
type labels struct{ latest atomic.Pointer[labelText] }

// labelText is Label.Encode for one reason, but for the time.
type labelText struct{ reason, before, after string }

const labelTime = "2006-01-02T15:04:05.000Z"

// label describes an acquisition that begins now.
func (ls *labels) label(o *LockOptions) string {
	reason := o.Reason
	if o.Label != nil {
		other := *o.Label
		if other.Host == "" && other.PID == 0 {
			other, other.Kept = self(), o.Label.Kept
		}
		other.Reason, other.Since = reason, time.Now().UTC()
		return other.Encode()
	}
	l := ls.latest.Load()
	if l == nil || l.reason != reason {
		ref := time.Date(2006, 1, 2, 15, 4, 5, int(time.Millisecond), time.UTC)
		mine := self()
		mine.Reason, mine.Since = reason, ref
		l = &labelText{reason: reason}
		text := mine.Encode()
		at := strings.LastIndex(text, ref.Format(labelTime)) // since comes last
		l.before, l.after = text[:at], text[at+len(labelTime):]
		ls.latest.Store(l)
	}
	b := make([]byte, 0, driver.MaxLabel) // of a fixed size, it stays on the stack
	b = time.Now().UTC().AppendFormat(append(b, l.before...), labelTime)
	return string(append(b, l.after...))
}
