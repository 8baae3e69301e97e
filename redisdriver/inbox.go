// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// The modes of a place, see queue.lua.
const (
	modePoll                = 'p'
	modePublish             = 'n'
	modePublishCounted      = 'c'
	modeShardPublish        = 'N'
	modeShardPublishCounted = 'C'
)

// brokenChannel carries the leases that another client than their holder's released, see
// release.lua. There is one for the server: such leases are rare, and owners unique.
const brokenChannel = wire.Sidecars + "broken"

// boxes are the inboxes of a Driver.
type boxes struct {
	wire.Boxes[*inbox]
	options   wire.InboxOptions // what all have in common
	id        string            // in the name of each channel
	keys      *keyspace
	leases    *leases
	life      context.Context
	unclaimed func(driver.Claim) // answers a hint without a waiter
}

// watch is Watch, see [Driver.Watch].
func (b *boxes) watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	in, err := b.Get(b.keys.hashSlot(c.Key))
	if in == nil {
		return nil, err
	}
	defer in.Use(-1)
	ok, err := in.Await(ctx)
	if !ok {
		return nil, err
	}
	return in.watch(ctx, c), nil
}

// listen opens the subscription that brings news of leases. It is nil when no caller
// wants them: asked says that a holder does.
func (b *boxes) listen(asked bool) *inbox {
	if !asked && !b.leases.reports() {
		return nil
	}
	in, _ := b.Get(-1) // without one, renewals find out
	if in != nil {
		in.Again()
		in.Use(-1)
	}
	return in
}

// mode returns how c's place in the queue gets hints, and where.
func (b *boxes) mode(c driver.Claim) (mode byte, channel string) {
	if in := b.Find(b.keys.hashSlot(c.Key)); in != nil {
		return in.mode(c), in.channel
	}
	return modePoll, ""
}

// expect returns a new token, with which a message may tell, once, that c was handed the key.
func (b *boxes) expect(c driver.Claim) string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	token := hex.EncodeToString(random[:])
	if in := b.Find(b.keys.hashSlot(c.Key)); in != nil {
		in.expect(c, token)
	}
	return token
}

// inbox is one channel on one connection of its own, and all owners here that
// wait for a message on it.
type inbox struct {
	*wire.Inbox
	all      *boxes
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

// inbox returns a new one.
func (b *boxes) inbox(hashSlot int) *inbox {
	in := &inbox{all: b, hashSlot: hashSlot, channel: wire.Sidecars + "inbox:" + b.id, watchers: map[string][]*watcher{}}
	o := b.options
	o.Receive, o.News, o.Idle = in.receive, in.news, in.unused
	if hashSlot >= 0 {
		in.channel = wire.Sidecars + "inbox:{" + wire.TagOf(hashSlot) + "}" + b.id
		o.Sharded = true
	} else {
		o.More = []string{brokenChannel}
	}
	o.Own = in.channel
	in.Inbox = wire.NewInbox(b.life, o)
	return in
}

// watch registers c until ctx ends.
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
	return in.unwatched() && (in.hashSlot >= 0 || !in.all.leases.asking())
}

// Idle: no owner watches, or is about to.
func (in *inbox) Idle() bool { return in.Use(0) == 0 && in.unused() }

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
	keys, leases := in.all.keys, in.all.leases
	if channel != in.channel {
		if id, fence, ok := keys.parseLoss(payload); ok {
			leases.hear(id, fence)
		}
	} else if key, fence, ok := keys.parseJoin(payload); ok {
		leases.joined(key, fence)
	} else {
		in.deliver(payload)
	}
}

// deliver hands a hint to the owner it names.
func (in *inbox) deliver(payload string) {
	m, ok := in.all.keys.parseHint(payload)
	if !ok {
		return // a probe, or none of ours
	}
	in.mu.Lock()
	watchers := in.waiting(m.Claim)
	for _, w := range watchers {
		var h driver.Hint
		if w.token != "" && w.token == m.token {
			w.token, h.Handover = "", m.handover
			in.all.leases.handed(m.ID(), h.Handover) // before the waiter can enter, and release
		}
		if m.after > 0 {
			w.signalLater(m.after)
		} else {
			h.Send(w.hint)
		}
	}
	in.mu.Unlock()
	if len(watchers) == 0 && m.after == 0 {
		in.all.unclaimed(m.Claim)
	}
}

// message is a hint to the waiter that it names.
type message struct {
	driver.Claim
	after    time.Duration   // it is to look then; 0: at once
	handover driver.Handover // of the lease that it was handed, or zero
	token    string          // of its place, which the owner's latest Try gave it
}

// parseHint reads what notify in first.lua publishes: the waiter's claim, and before that may stand
// when to try, in ms; or the lease that it was handed, see offer in serve.lua.
func (k *keyspace) parseHint(s string) (m message, ok bool) {
	if rest, late := strings.CutPrefix(s, "+"); late {
		ms, rest, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseUint(ms, 10, 32)
		if err != nil {
			return m, false
		}
		s, m.after = rest, time.Duration(n)*time.Millisecond+time.Millisecond
	} else if rest, handed := strings.CutPrefix(s, "="); handed {
		f := strings.SplitN(rest, " ", 5)
		if len(f) < 5 || !m.handed(f[0], f[1], f[2]) {
			return m, false
		}
		m.token, s = f[3], f[4]
	}
	m.Claim, ok = k.parseClaim(s)
	return m, ok
}

// handed reads what is said of a handover.
func (m *message) handed(fence, at, claim string) (ok bool) {
	ms, marked := strings.CutSuffix(claim, "!")
	n, err := strconv.ParseUint(fence, 10, 53)
	us, err2 := strconv.ParseUint(at, 10, 53)
	lasts, err3 := strconv.ParseUint(ms, 10, 32)
	m.handover = driver.Handover{
		Fence: n, At: time.Duration(us) * time.Microsecond, TTL: time.Duration(lasts) * time.Millisecond, Abandoned: marked,
	}
	return n > 0 && err == nil && err2 == nil && err3 == nil
}

// parseLoss reads what release.lua publishes: a fence, and the lease as in a hint.
func (k *keyspace) parseLoss(s string) (id driver.ID, fence uint64, ok bool) {
	fence, s, ok = cutFence(s)
	c, isClaim := k.parseClaim(s)
	return c.ID(), fence, ok && isClaim
}

// joinMark begins what try.lua publishes to the holders that asked.
const joinMark = "*"

// parseJoin reads it: a fence that none of them is above, and the lock key.
func (k *keyspace) parseJoin(s string) (key string, fence uint64, ok bool) {
	s, marked := strings.CutPrefix(s, joinMark)
	fence, s, ok = cutFence(s)
	key, ours := strings.CutPrefix(s, k.prefix)
	return key, fence, marked && ok && ours
}

// cutFence reads a fence of 16 digits, and returns what stands behind it.
func cutFence(s string) (fence uint64, rest string, ok bool) {
	const digits = 16
	if len(s) < digits {
		return 0, "", false
	}
	fence, err := strconv.ParseUint(s[:digits], 10, 64)
	return fence, s[digits:], err == nil
}

// parseClaim reads the claim that a message is about: the length of the value in three digits,
// the value, the lock key.
func (k *keyspace) parseClaim(s string) (c driver.Claim, ok bool) {
	if len(s) < 3 {
		return c, false
	}
	n, err := strconv.ParseUint(s[:3], 10, 16)
	if s = s[3:]; err != nil || int(n) > len(s) {
		return c, false
	}
	h := holderOf(s[:n])
	key := s[n:]
	if h.Foreign || len(key) <= len(k.prefix) || key[:len(k.prefix)] != k.prefix {
		return c, false
	}
	return driver.Claim{Key: key[len(k.prefix):], Owner: h.Owner, Label: h.Label}, true
}
