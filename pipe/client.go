// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/jsonrpc"
)

// Client is the client's end of a connection. Its methods may be called by many goroutines.
type Client struct {
	Hello Hello // of the agent

	conn *jsonrpc.Conn
	wake chan struct{} // room for one: there is a lease to watch

	mu    sync.Mutex
	held  map[string]*Lease
	alive term  // when the agent closes a silent connection; 0: never
	ends  *term // when the agent ends; nil: it said nothing of that
}

// Error is the error of a request. For errors.Is it is that of package hasp which its kind stands for.
type Error struct {
	Message string
	ErrorData
	taken bool // the lease was lost to another owner before its time was over
}

func (e *Error) Error() string { return e.Message }

// Is answers errors.Is.
func (e *Error) Is(target error) bool {
	return e.taken && target == hasp.ErrNotHeld || slices.Contains(kinds, kindOfError{target, e.Kind})
}

// Dial connects to the agent at a socket, "unix:PATH". alive is as of NewClient.
func Dial(ctx context.Context, addr, name string, alive time.Duration) (*Client, error) {
	path, ok := strings.CutPrefix(addr, "unix:")
	if !ok {
		return nil, fmt.Errorf("the agent's address is %q: it is unix:PATH", addr)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return NewClient(ctx, conn, name, alive)
}

// NewClient greets the agent at the other end. name is for people. The agent takes the leases of a process that stands still for longer
// than alive; 0: of none.
func NewClient(ctx context.Context, rwc io.ReadWriteCloser, name string, alive time.Duration) (*Client, error) {
	c := &Client{held: map[string]*Lease{}, wake: make(chan struct{}, 1), alive: term{clock.System(), alive}}
	c.conn = jsonrpc.New(rwc, c.notified, nil)
	go func() {
		_ = c.conn.Serve(context.Background(), c.ended) // an agent that breaks the protocol is an agent that is gone
	}()
	if err := c.Call(ctx, "hello", helloParams{Protocols: []int{Version}, Client: name, Alive: InMillis(alive)}, &c.Hello); err != nil {
		c.conn.Close()
		return nil, err
	}
	go c.watch()
	return c, nil
}

// Close gives back all that the client has, and ends the connection. It takes at most 10 seconds.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // as a Release takes; then Call waits as long for the agent to heed that
	defer cancel()
	err := c.Call(ctx, "bye", nil, nil)
	c.conn.Close()
	return err
}

// Kill ends the connection as the end of the process would: the leases are abandoned.
func (c *Client) Kill() { c.conn.Close() }

// Call sends any request of the protocol. result may be nil. The error is an *Error if the agent answered with one.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	return c.call(ctx, method, params, result, nil)
}

func (c *Client) call(ctx context.Context, method string, params, result any, first func(json.RawMessage)) error {
	if params == nil {
		params = struct{}{}
	}
	answer, err := c.conn.Call(ctx, method, params, first)
	switch e := (*jsonrpc.Error)(nil); {
	case errors.As(err, &e):
		data, _ := e.Data.(json.RawMessage)
		ours := &Error{Message: e.Message}
		_ = json.Unmarshal(data, &ours.ErrorData) // of an agent that says no more, the message is all
		return ours
	case errors.Is(err, jsonrpc.ErrLong):
		return &Error{Message: err.Error(), ErrorData: ErrorData{Kind: Limit}}
	case err != nil || result == nil:
		return err
	}
	return json.Unmarshal(answer, result)
}

// Lease is a grant. It is lost when the agent says so, when the agent is gone, or when its time is over by this process's own clock: the
// agent and its store may be dead or stopped.
type Lease struct {
	Grant
	c      *Client
	done   chan struct{}
	wanted chan struct{}
	once   sync.Once // closes it
	lead   time.Duration

	// Guarded by the client's mu.
	granted term // since it was last asked about
	err     error
}

// term is a time that counts from an instant.
type term struct {
	from  clock.Instant
	lasts time.Duration
}

// left is what remains of it, by the clock that shows the least.
func (t term) left(now clock.Instant) time.Duration { return t.lasts - now.Sub(t.from) }

// Lock asks for a lock. When ctx ends and the lock was granted meanwhile, it returns that.
func (c *Client) Lock(ctx context.Context, p LockParams) (*Lease, error) {
	lead := p.Lead.duration()
	l := &Lease{c: c, done: make(chan struct{}), wanted: make(chan struct{}), lead: lead - lead/10} // the agent, which knows why it is lost, comes first
	sent := clock.System()
	err := c.call(ctx, "lock", p, nil, func(result json.RawMessage) {
		if json.Unmarshal(result, &l.Grant) != nil {
			return // it stays without an id
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		l.granted = term{sent, l.Until.left()}
		c.held[l.Lease] = l
	})
	if err != nil {
		return nil, err
	}
	if l.Lease == "" {
		return nil, errors.New("the agent's answer is no grant")
	}
	c.wakeUp()
	return l, nil
}

func (c *Client) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (u Until) left() time.Duration { return time.Duration(u.Left) * time.Millisecond }

// watch asks for the leases' deadlines in time, and ends those whose time is over.
func (c *Client) watch() {
	var next time.Time // when to ask
	answered := make(chan struct{}, 1)
	asking := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-c.wake:
		case <-answered:
			asking, next = false, time.Time{}
		case <-c.conn.Gone():
			return
		}
		rest, some := c.expire()
		if !some {
			if c.alive.lasts == 0 {
				timer.Stop()
				continue
			}
			rest = c.alive.lasts
		}
		now := time.Now()
		if third := now.Add(rest / 3); next.IsZero() || third.Before(next) { // one that came later may end first, and puts nothing off
			next = third
		}
		if !asking && !now.Before(next) {
			asking = true
			go func() { c.ask(); answered <- struct{}{} }()
		}
		if asking {
			timer.Reset(rest)
		} else {
			timer.Reset(min(rest, max(time.Until(next), time.Millisecond)))
		}
	}
}

// expire ends the leases whose time is over, and returns how long the first of the others has left.
func (c *Client) expire() (rest time.Duration, some bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := clock.System()
	for _, l := range c.held {
		if l.expire(now); l.err == nil {
			if left := l.rest(now) - l.lead; !some || left < rest {
				rest, some = left, true
			}
		}
	}
	return rest, some
}

// ask prolongs the leases that the client had by now, as the agent says. What is lost the agent has told before.
func (c *Client) ask() {
	c.mu.Lock()
	held := maps.Clone(c.held)
	sent := clock.System()
	c.mu.Unlock()
	_ = c.call(context.Background(), "status", nil, nil, func(result json.RawMessage) {
		var s Status
		if json.Unmarshal(result, &s) != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		now, said := clock.System(), term{sent, s.left()}
		c.alive.from = sent // a process that stood still before it wrote gave no sign of life
		for _, l := range held {
			if said.left(now) > l.granted.left(now) {
				l.granted = said
			}
		}
	})
}

// Err is nil while the lease may be relied on. It asks the clock, not the agent.
func (l *Lease) Err() error {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.expire(clock.System())
	return l.err
}

// Done is closed with the lease, however it ends.
func (l *Lease) Done() <-chan struct{} { return l.done }

// Wanted is closed once another owner waits for a key of it, if LockParams.Wanted asked for that.
func (l *Lease) Wanted() <-chan struct{} { return l.wanted }

// Deadline is until when it may be relied on, as of now.
func (l *Lease) Deadline() time.Time {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return time.Now().Add(l.rest(clock.System()))
}

// Release gives it back, in at most 10 seconds. The error is of kind Lost when it had been lost: then the work counts as not finished.
func (l *Lease) Release() error { return l.giveBack(false) }

// Abandon is Release for work that was not finished: the next holder is told (Abandoned).
func (l *Lease) Abandon() error { return l.giveBack(true) }

func (l *Lease) giveBack(abandoned bool) error {
	err := l.Err()
	l.c.mu.Lock()
	l.end(errReleased)
	delete(l.c.held, l.Lease)
	l.c.mu.Unlock()
	release := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // as Close
		defer cancel()
		return l.c.Call(ctx, "release", leaseParams{Lease: l.Lease, Abandoned: abandoned || err != nil}, nil)
	}
	if err != nil {
		go func() { _ = release() }() // the agent may stand still, and the caller knows of the loss
		return err
	}
	return release()
}

var errGone = &Error{Message: "the agent is gone, and the lock with it", ErrorData: ErrorData{Kind: Lost}}

var errReleased = &Error{Message: "this lease was released", ErrorData: ErrorData{Kind: Lost}}

// rest is how long it has left.
func (l *Lease) rest(now clock.Instant) time.Duration {
	left := l.granted.left(now)
	if l.c.alive.lasts > 0 {
		left = min(left, l.c.alive.left(now))
	}
	if l.c.ends != nil {
		left = min(left, l.c.ends.left(now))
	}
	return left
}

// expire ends a lease whose time is over, but for its lead.
func (l *Lease) expire(now clock.Instant) {
	if l.rest(now) > l.lead {
		return
	}
	why := "the lease's time is over, and the agent has not prolonged it"
	if l.c.ends != nil {
		why = "the agent ends"
	}
	l.end(&Error{Message: why, ErrorData: ErrorData{Kind: Lost}})
}

func (l *Lease) end(why error) {
	if l.err == nil {
		l.err = why
		close(l.done)
	}
}

// notified takes a notification of the agent.
func (c *Client) notified(_ context.Context, method string, params json.RawMessage, _ bool) (any, error) {
	var n Notice
	if json.Unmarshal(params, &n) != nil {
		return nil, nil
	}
	var do func(l *Lease)
	switch method {
	case "lost":
		do = func(l *Lease) {
			l.end(&Error{n.Message, ErrorData{Kind: Lost}, n.Left == 0 && l.rest(clock.System()) > 0})
		}
	case "wanted":
		do = func(l *Lease) { l.once.Do(func() { close(l.wanted) }) }
	case "ending": // then it gives the keys to others; it said so a while ago
		c.mu.Lock()
		c.ends = &term{clock.System(), time.Duration(n.Left) * time.Millisecond * 9 / 10}
		c.mu.Unlock()
		c.wakeUp()
		return nil, nil
	default:
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.held[n.Lease]; l != nil {
		do(l)
	}
	return nil, nil
}

// ended ends all leases: the agent is gone.
func (c *Client) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.held {
		l.end(errGone)
	}
}
