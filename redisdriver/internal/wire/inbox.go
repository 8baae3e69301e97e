// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
)

const (
	confirmTime = 5 * time.Second        // for the answer to SUBSCRIBE, and to PUBLISH
	quietTime   = 5 * time.Second        // between checks of a standing subscription; twice that while no message is waited for
	reopenPause = 500 * time.Millisecond // between attempts, unless a waiter comes
	deniedPause = time.Minute            // and where the server refuses
)

// Inbox is one connection of its own for subscriptions: to the channels that it always has, and to
// those that come and go.
type Inbox struct {
	o     InboxOptions
	life  context.Context
	end   context.CancelFunc
	kick  chan struct{} // do not pause
	first chan struct{} // closed when the first attempt came to something

	mu       sync.Mutex
	up       bool          // subscribed, as far as is known
	counted  bool          // PUBLISH counts us as a receiver
	denied   bool          // the server does not let us subscribe
	err      error         // why the last attempt failed
	since    time.Time     // when it did
	attempt  chan struct{} // closed when the attempt under way came to something
	users    int           // see Use
	conn     Subscription
	channels channels
}

// InboxOptions set what an Inbox is for. It calls Receive, News and Stands without a lock of its own, and one after the other.
type InboxOptions struct {
	Client  Client
	Sharded bool     // SSUBSCRIBE: the channels are in one hash slot of a cluster
	Own     string   // the channel by which it finds out whether messages come
	More    []string // others that it always has

	Receive  func(channel, payload string)
	News     func()                    // the subscription stands now, or does not: messages may have been missed
	Stands   func(channel string)      // a channel that came stands now: messages on it may have been missed
	Muted    func(bool)                // whether this client may not publish; nil: it does not matter
	Classify func(error) driver.Class  // of an error of the client
	Idle     func() (nobodyWaits bool) // then it is not reopened in haste, and checked less often
	Pace     time.Duration             // of the checks, and for an answer if longer: quietTime, but for tests
}

// NewInbox returns an Inbox that lives until Close, or the end of life. Run opens it.
func NewInbox(life context.Context, o InboxOptions) *Inbox {
	in := &Inbox{o: o, kick: make(chan struct{}, 1), attempt: make(chan struct{})}
	in.o.Pace = cmp.Or(o.Pace, quietTime)
	in.first = in.attempt
	in.life, in.end = context.WithCancel(life)
	in.channels.in, in.channels.all = in, map[string]*channel{}
	return in
}

// Use counts a user in (1) and out (-1), and returns how many there are.
func (in *Inbox) Use(n int) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.users += n
	return in.users
}

// Up reports whether the subscription stands, and whether PUBLISH counts it as a receiver.
func (in *Inbox) Up() (up, counted bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.up, in.counted
}

// Await returns true once the subscription stands, false with a nil error when
// there will be none.
func (in *Inbox) Await(ctx context.Context) (bool, error) {
	for first := true; ; first = false {
		in.mu.Lock()
		up, denied, err, attempt := in.up, in.denied && time.Since(in.since) < in.rest(), in.err, in.attempt
		in.mu.Unlock()
		switch {
		case up || denied:
			return up, nil
		case !first && err != nil:
			return false, err
		}
		in.hurry()
		select {
		case <-attempt:
		case <-ctx.Done():
			return false, ctx.Err()
		case <-in.life.Done():
			return false, driver.ErrClosed
		}
	}
}

// Outlast returns true once the subscription stands, however many attempts that takes, and false soon after it is not wanted
// any more. It makes no attempt by itself.
func (in *Inbox) Outlast(ctx context.Context, wanted func() bool) bool {
	for wanted() {
		in.mu.Lock()
		up, attempt := in.up, in.attempt
		in.mu.Unlock()
		if up {
			return true
		}
		select {
		case <-attempt:
		case <-time.After(reopenPause): // no attempt comes while the client waits for nothing
		case <-ctx.Done():
			return false
		case <-in.life.Done():
			return false
		}
	}
	return false
}

// Begun returns when the first attempt to subscribe has come to something, or ctx ended.
func (in *Inbox) Begun(ctx context.Context) {
	select {
	case <-in.first:
	case <-ctx.Done():
	case <-in.life.Done():
	}
}

// Again makes a new attempt, unless there was one a moment ago.
func (in *Inbox) Again() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if time.Since(in.since) >= in.rest() {
		in.hurry()
	}
}

func (in *Inbox) hurry() {
	select {
	case in.kick <- struct{}{}:
	default:
	}
}

// Run keeps the subscription up until Close.
func (in *Inbox) Run() {
	for {
		begun := time.Now()
		err := in.session()
		if in.life.Err() != nil {
			return
		}
		if stood := in.down(err); stood && time.Since(begun) > reopenPause {
			continue
		}
		if !in.pause() {
			return
		}
	}
}

// rest is how long to wait after an attempt that failed. mu is held.
func (in *Inbox) rest() time.Duration {
	if in.denied {
		return deniedPause
	}
	return reopenPause
}

// pause waits for a good moment for the next attempt: soon while a caller
// waits, else when a caller comes. It returns false when there is none.
func (in *Inbox) pause() bool {
	idle := in.o.Idle()
	in.mu.Lock()
	after := in.rest()
	in.mu.Unlock()
	var soon <-chan time.Time
	if !idle {
		timer := time.NewTimer(after)
		defer timer.Stop()
		soon = timer.C
	}
	select {
	case <-in.kick:
	case <-soon:
	case <-in.life.Done():
		return false
	}
	return true
}

// Close ends the subscription, and Run.
func (in *Inbox) Close() {
	in.end()
	in.mu.Lock()
	conn := in.conn
	in.mu.Unlock()
	if conn != nil {
		go func() { _ = conn.Close() }() // ends a Receive that is under way; it waits for an attempt to connect
	}
}

// Raise says that the subscription stands. Callers that waited try again; callers that come from now on have missed nothing.
func (in *Inbox) Raise(counted bool) {
	in.o.News()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.up, in.denied, in.counted, in.err = true, false, counted, nil
	in.decided()
}

// down says that there is no subscription now.
func (in *Inbox) down(err error) (was bool) {
	class := in.o.Classify(err)
	in.mu.Lock()
	was = in.up
	in.denied = class == driver.ClassDenied || class == driver.ClassMisconfigured
	in.up, in.err, in.since, in.conn = false, err, time.Now(), nil
	in.decided()
	in.mu.Unlock()
	in.channels.gone()
	in.o.News()
	return was
}

// decided wakes all callers that wait for an attempt. mu is held.
func (in *Inbox) decided() {
	close(in.attempt)
	in.attempt = make(chan struct{})
}

// session opens one connection and delivers what comes, until it fails.
func (in *Inbox) session() error {
	conn := in.o.Client.Subscription(in.life)
	in.mu.Lock()
	in.conn = conn
	in.mu.Unlock()
	defer conn.Close()
	if in.life.Err() != nil {
		return in.life.Err()
	}
	channels := append([]string{in.o.Own}, in.o.More...)
	if err := conn.Send(in.life, in.sharded("subscribe"), channels...); err != nil {
		return err
	}
	for range channels {
		if _, err := conn.Receive(in.life, max(confirmTime, in.o.Pace)); err != nil {
			return err
		}
	}
	counted, _ := in.probe()
	in.Raise(counted)
	if err := in.channels.arrive(conn); err != nil {
		return err
	}
	return in.receive(conn, counted)
}

// sharded is the command for the channels of this inbox.
func (in *Inbox) sharded(command string) string {
	if in.o.Sharded {
		return "s" + command
	}
	return command
}

// receive delivers what comes over a connection until it fails.
func (in *Inbox) receive(conn Subscription, counted bool) error {
	checked, pinged := time.Now(), false
	for {
		m, err := conn.Receive(in.life, in.o.Pace)
		if name, ok := in.channels.refused(err); ok {
			in.stands(name)
		} else if err != nil && (pinged || !timeout(err)) {
			return in.channels.cause(err)
		}
		switch m.Kind {
		case "message":
			in.o.Receive(m.Channel, m.Payload)
		case "subscribe", "ssubscribe":
			in.stands(m.Channel) // before a user that joins it now hears of it, and has missed nothing
			in.channels.confirmed(m.Channel)
		case "unsubscribe", "sunsubscribe":
			if !in.channels.ended(m.Channel) {
				return errUnsubscribed // the hash slot moved to another node
			}
		}
		if pinged = false; time.Since(checked) < in.quiet() {
			continue
		}
		counts, err := in.probe()
		if err == nil && counted && !counts {
			return errElsewhere
		}
		if !counts { // else that message is to come
			if err := conn.Send(in.life, "ping"); err != nil {
				return err
			}
		}
		checked, pinged = time.Now(), true
	}
}

// quiet is how long after a check the next one is due.
func (in *Inbox) quiet() time.Duration {
	if in.o.Idle() {
		return 2 * in.o.Pace
	}
	return in.o.Pace
}

func (in *Inbox) stands(channel string) {
	if in.o.Stands != nil { // else no channel comes and goes
		in.o.Stands(channel)
	}
}

var (
	errUnsubscribed = errors.New("redis: the server ended a subscription")
	errElsewhere    = errors.New("redis: the subscription is not on the server that commands go to")
)

func timeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// probe publishes to ourselves, by the way that commands take, and says
// whether the count of receivers includes us: then a count of 0 means that
// this process is gone. Behind a proxy, say, it does not; after a failover the
// subscription may still be on the server that was the master.
func (in *Inbox) probe() (counted bool, err error) {
	cmds := []Command{Plain(in.sharded("publish"), in.o.Own, "")}
	ctx, cancel := context.WithTimeout(in.life, max(confirmTime, in.o.Pace))
	defer cancel()
	n, err := int64(0), Ask(ctx, in.o.Client, cmds)
	if err == nil {
		n, err = cmds[0].Int()
	}
	if in.o.Muted != nil {
		switch in.o.Classify(err) {
		case driver.ClassDenied, driver.ClassMisconfigured:
			in.o.Muted(true)
		default:
			if err == nil {
				in.o.Muted(false)
			}
		}
	}
	return n > 0 && (in.o.Sharded || !in.o.Client.Traits().Cluster), err // else it goes to any master of a cluster, which counts for itself
}
