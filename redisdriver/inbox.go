// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/redis/go-redis/v9"
)

const (
	confirmTime = 5 * time.Second        // for the answer to SUBSCRIBE, and to PING
	quietTime   = 5 * time.Second        // between checks of a subscription that stands
	reopenPause = 500 * time.Millisecond // between attempts, unless a waiter comes
	deniedPause = time.Minute            // and where the server refuses
)

// inbox is one channel on one connection of its own, and everybody here who
// waits for a message on it.
type inbox struct {
	d        *Driver
	hashSlot int // -1 outside a cluster
	channel  string
	life     context.Context
	end      context.CancelFunc
	kick     chan struct{} // do not pause
	first    chan struct{} // closed when the first attempt came to something

	mu       sync.Mutex
	up       bool                  // subscribed, as far as is known
	counted  bool                  // PUBLISH counts us as a receiver
	denied   bool                  // the server does not let us subscribe
	err      error                 // why the last attempt failed
	since    time.Time             // when it did
	attempt  chan struct{}         // closed when the attempt under way came to something
	watchers map[string][]*watcher // by owner
	coming   int                   // calls of Watch that have not become watchers yet
	conn     *redis.PubSub
}

// watcher is one owner who waits.
type watcher struct {
	key  string
	hint chan struct{}
	late *time.Timer // signals it later; guarded by inbox.mu
}

func (w *watcher) signal() {
	select {
	case w.hint <- struct{}{}:
	default: // one hint is enough
	}
}

// signalLater replaces a signal that was to come later. inbox.mu is held.
func (w *watcher) signalLater(after time.Duration) {
	if w.late == nil {
		w.late = time.AfterFunc(after, w.signal)
	} else {
		w.late.Reset(after)
	}
}

func newInbox(d *Driver, hashSlot int) *inbox {
	in := &inbox{
		d: d, hashSlot: hashSlot, channel: sidecars + "inbox:" + d.id,
		kick: make(chan struct{}, 1), attempt: make(chan struct{}), watchers: map[string][]*watcher{},
	}
	if hashSlot >= 0 {
		in.channel = sidecars + "inbox:{" + tagOf(hashSlot) + "}" + d.id
	}
	in.first = in.attempt
	in.life, in.end = context.WithCancel(d.life)
	return in
}

// await returns true once the subscription stands, false with a nil error when
// there will be none.
func (in *inbox) await(ctx context.Context) (bool, error) {
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
		select {
		case in.kick <- struct{}{}:
		default:
		}
		select {
		case <-attempt:
		case <-ctx.Done():
			return false, ctx.Err()
		case <-in.life.Done():
			return false, driver.ErrClosed
		}
	}
}

// watch registers r until ctx ends.
func (in *inbox) watch(ctx context.Context, c driver.Claim) <-chan struct{} {
	w := &watcher{key: c.Key, hint: make(chan struct{}, 1)}
	in.mu.Lock()
	in.watchers[c.Owner] = append(in.watchers[c.Owner], w)
	if !in.up {
		w.signal() // the connection went while we came
	}
	in.mu.Unlock()
	context.AfterFunc(ctx, func() { in.forget(c.Owner, w) })
	return w.hint
}

func (in *inbox) forget(owner string, w *watcher) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if w.late != nil {
		w.late.Stop()
	}
	rest := slices.DeleteFunc(in.watchers[owner], func(other *watcher) bool { return other == w })
	if in.watchers[owner] = rest; len(rest) == 0 {
		delete(in.watchers, owner)
	}
}

// waiting returns who waits here for c. mu is held.
func (in *inbox) waiting(c driver.Claim) []*watcher {
	return slices.DeleteFunc(slices.Clone(in.watchers[c.Owner]), func(w *watcher) bool { return w.key != c.Key })
}

func (in *inbox) idle() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.watchers) == 0 && in.coming == 0
}

// come counts a call of Watch in (1) and out (-1).
func (in *inbox) come(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.coming += n
}

// mode says how a place of c gets hints now.
func (in *inbox) mode(c driver.Claim) byte {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case !in.up || len(in.waiting(c)) == 0:
		return modePoll
	case in.hashSlot < 0 && in.counted:
		return modePublishCounted
	case in.hashSlot < 0:
		return modePublish
	case in.counted:
		return modeShardPublishCounted
	}
	return modeShardPublish
}

// run keeps the subscription up until close.
func (in *inbox) run() {
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
func (in *inbox) rest() time.Duration {
	if in.denied {
		return deniedPause
	}
	return reopenPause
}

// pause waits for a good moment for the next attempt: soon while somebody
// waits, else when somebody comes. It returns false when there is none.
func (in *inbox) pause() bool {
	in.mu.Lock()
	after := in.rest()
	var soon <-chan time.Time
	if len(in.watchers) > 0 {
		timer := time.NewTimer(after)
		defer timer.Stop()
		soon = timer.C
	}
	in.mu.Unlock()
	select {
	case <-in.kick:
	case <-soon:
	case <-in.life.Done():
		return false
	}
	return true
}

func (in *inbox) close() {
	in.end()
	in.mu.Lock()
	conn := in.conn
	in.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // ends a Receive that is under way
	}
}

// session opens one connection and delivers what comes, until it fails.
func (in *inbox) session() error {
	conn := in.d.rdb.Subscribe(in.life)
	in.mu.Lock()
	in.conn = conn
	in.mu.Unlock()
	defer conn.Close()
	if in.life.Err() != nil {
		return in.life.Err()
	}
	subscribe := conn.Subscribe
	if in.hashSlot >= 0 {
		subscribe = conn.SSubscribe
	}
	channels := []string{in.channel}
	if in.hashSlot < 0 {
		channels = append(channels, brokenChannel)
	}
	if err := subscribe(in.life, channels...); err != nil {
		return err
	}
	for range channels {
		if _, err := conn.ReceiveTimeout(in.life, confirmTime); err != nil {
			return err
		}
	}
	counted, _ := in.probe()
	in.raise(counted)
	checked, pinged := time.Now(), false
	for {
		m, err := conn.ReceiveTimeout(in.life, quietTime)
		if err != nil && (pinged || !timeout(err)) {
			return err
		}
		switch m := m.(type) {
		case *redis.Message:
			in.receive(m)
		case *redis.Subscription:
			return errUnsubscribed // the hash slot moved to another node
		}
		if pinged = false; time.Since(checked) < quietTime {
			continue
		}
		if again, err := in.probe(); err == nil && counted && !again {
			return errElsewhere
		}
		if err := conn.Ping(in.life); err != nil {
			return err
		}
		checked, pinged = time.Now(), true
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
func (in *inbox) probe() (counted bool, err error) {
	publish := in.d.rdb.Publish
	if in.hashSlot >= 0 {
		publish = in.d.rdb.SPublish
	}
	ctx, cancel := context.WithTimeout(in.life, confirmTime)
	defer cancel()
	n, err := await(ctx, func(ctx context.Context) (int64, error) { return publish(ctx, in.channel, "").Result() })
	switch in.d.Classify(err) {
	case driver.ClassDenied, driver.ClassMisconfigured:
		in.d.muted.Store(true)
	default:
		if err == nil {
			in.d.muted.Store(false)
		}
	}
	return n > 0, err
}

// raise says that the subscription stands. Who waited meanwhile tries again.
func (in *inbox) raise(counted bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.up, in.denied, in.counted, in.err = true, false, counted, nil
	in.news()
}

// down says that there is no subscription now.
func (in *inbox) down(err error) (was bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	was = in.up
	switch in.d.Classify(err) {
	case driver.ClassDenied, driver.ClassMisconfigured:
		in.denied = true
	default:
		in.denied = false
	}
	in.up, in.err, in.since = false, err, time.Now()
	in.news()
	return was
}

// news wakes all who wait: for an attempt, or for a hint. mu is held.
func (in *inbox) news() {
	close(in.attempt)
	in.attempt = make(chan struct{})
	for _, ws := range in.watchers {
		for _, w := range ws {
			w.signal()
		}
	}
}

// receive takes a message. Anybody who may publish can have sent it: what is not of our
// form is ignored.
func (in *inbox) receive(m *redis.Message) {
	if m.Channel == in.channel {
		in.deliver(m.Payload)
	} else if id, fence, ok := in.d.parseLoss(m.Payload); ok {
		in.d.leases.hear(id, fence)
	}
}

// deliver hands a hint to the owner it names.
func (in *inbox) deliver(payload string) {
	c, after, ok := in.d.parseHint(payload)
	if !ok {
		return // a probe, or none of ours
	}
	in.mu.Lock()
	watchers := in.waiting(c)
	if after > 0 {
		for _, w := range watchers {
			w.signalLater(after)
		}
		in.mu.Unlock()
		return
	}
	in.mu.Unlock()
	for _, w := range watchers {
		w.signal()
	}
	if len(watchers) == 0 {
		in.d.giveBack(c)
	}
}
