// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// inbox is one channel on one connection of its own, and all owners here that
// wait for a message on it.
type inbox struct {
	*wire.Inbox
	d        *Driver
	hashSlot int // -1 outside a cluster
	channel  string

	mu       sync.Mutex
	watchers map[string][]*watcher // by owner
}

// watcher is one owner that waits.
type watcher struct {
	key   string
	hint  chan driver.Hint
	late  *time.Timer // signals it later; guarded by inbox.mu, as is:
	token string      // of its place, until a message of a handover came with it; "": none is expected
}

func (w *watcher) signal() { driver.Hint{}.Send(w.hint) }

// signalLater replaces a signal that was to come later. inbox.mu is held.
func (w *watcher) signalLater(after time.Duration) {
	if w.late == nil {
		w.late = time.AfterFunc(after, w.signal)
	} else {
		w.late.Reset(after)
	}
}

func newInbox(d *Driver, hashSlot int) *inbox {
	in := &inbox{d: d, hashSlot: hashSlot, channel: wire.Sidecars + "inbox:" + d.id, watchers: map[string][]*watcher{}}
	o := wire.InboxOptions{
		Client: d.rdb, Receive: in.receive, News: in.news, Muted: d.muted.Store, Classify: classify, Idle: in.unused,
	}
	if hashSlot >= 0 {
		in.channel = wire.Sidecars + "inbox:{" + wire.TagOf(hashSlot) + "}" + d.id
		o.Sharded = true
	} else {
		o.More = []string{brokenChannel}
	}
	o.Own = in.channel
	in.Inbox = wire.NewInbox(d.life, o)
	return in
}

// watch registers r until ctx ends.
func (in *inbox) watch(ctx context.Context, c driver.Claim) <-chan driver.Hint {
	w := &watcher{key: c.Key, hint: make(chan driver.Hint, 1)}
	in.mu.Lock()
	in.watchers[c.Owner] = append(in.watchers[c.Owner], w)
	in.mu.Unlock()
	if up, _ := in.Up(); !up {
		w.signal() // the connection went while we came
	}
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

// waiting returns the watchers for c. mu is held.
func (in *inbox) waiting(c driver.Claim) []*watcher {
	return slices.DeleteFunc(slices.Clone(in.watchers[c.Owner]), func(w *watcher) bool { return w.key != c.Key })
}

// expect takes a message with that token, once, for the word that c was handed the key.
func (in *inbox) expect(c driver.Claim, token string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, w := range in.waiting(c) {
		w.token = token
	}
}

func (in *inbox) unwatched() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.watchers) == 0
}

// unused: no waiter waits for a hint, and no holder for news of a waiter that joins.
func (in *inbox) unused() bool {
	return in.unwatched() && (in.hashSlot >= 0 || !in.d.leases.asking())
}

// idle: no owner watches, or is about to.
func (in *inbox) idle() bool { return in.Use(0) == 0 && in.unused() }

// mode says how a place of c gets hints now.
func (in *inbox) mode(c driver.Claim) byte {
	in.mu.Lock()
	watched := len(in.waiting(c)) > 0
	in.mu.Unlock()
	switch up, counted := in.Up(); {
	case !up || !watched:
		return modePoll
	case in.hashSlot < 0 && counted:
		return modePublishCounted
	case in.hashSlot < 0:
		return modePublish
	case counted:
		return modeShardPublishCounted
	}
	return modeShardPublish
}

// news gives each watcher a hint.
func (in *inbox) news() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, ws := range in.watchers {
		for _, w := range ws {
			w.signal()
		}
	}
}

// receive takes a message. Any client that may publish can have sent it: what is not of
// our form is ignored.
func (in *inbox) receive(channel, payload string) {
	if key, fence, ok := in.d.parseJoin(payload); ok && channel == in.channel {
		in.d.leases.joined(key, fence)
	} else if channel == in.channel {
		in.deliver(payload)
	} else if id, fence, ok := in.d.parseLoss(payload); ok {
		in.d.leases.hear(id, fence)
	}
}

// deliver hands a hint to the owner it names.
func (in *inbox) deliver(payload string) {
	c, after, handed, ok := in.d.parseHint(payload)
	if !ok {
		return // a probe, or none of ours
	}
	in.mu.Lock()
	watchers := in.waiting(c)
	for _, w := range watchers {
		var h driver.Hint
		if w.token != "" && w.token == handed.token {
			w.token, h.Handover = "", handed.Handover
			in.d.leases.handed(c.ID(), h.Handover) // before the waiter can enter, and release
		}
		if after > 0 {
			w.signalLater(after)
		} else {
			h.Send(w.hint)
		}
	}
	in.mu.Unlock()
	if len(watchers) == 0 && after == 0 {
		in.d.giveBack(c)
	}
}
