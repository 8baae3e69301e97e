// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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

// maxBoxes bounds the subscriptions of a Driver in a cluster, where each hash slot
// needs its own. Waiters in further slots poll.
const maxBoxes = 32

// boxes are the inboxes of a Driver: one, or in a cluster one for each hash slot
// with waiters.
type boxes struct {
	d      *Driver
	mu     sync.Mutex
	open   map[int]*inbox
	closed bool
}

// Watch returns the channel of hints for c.Owner; see [driver.Driver]. It is nil if the
// server does not allow this client to subscribe.
//
// The first Watch opens one connection for subscriptions beside the client's
// pool; it stays until Close.
func (d *Driver) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	if err := d.check(c); err != nil {
		return nil, err
	}
	in, err := d.boxes.get(d.hashSlotOf(c.Key))
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

// expect returns a new token, with which a message may tell that c was handed the key.
func (b *boxes) expect(c driver.Claim) string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	token := hex.EncodeToString(random[:])
	b.mu.Lock()
	in := b.open[b.d.hashSlotOf(c.Key)]
	b.mu.Unlock()
	if in != nil {
		in.expect(c, token)
	}
	return token
}

// hashSlotOf says which inbox serves a key: its hash slot, or -1 outside a cluster.
func (d *Driver) hashSlotOf(key string) int {
	if !d.cluster {
		return -1
	}
	return wire.HashSlot(d.prefix + key)
}

// get returns the inbox for a hash slot, a new one if need be, or nil when there
// are too many.
func (b *boxes) get(hashSlot int) (*inbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, driver.ErrClosed
	}
	if in := b.open[hashSlot]; in != nil {
		in.Use(1)
		return in, nil
	}
	if len(b.open) >= maxBoxes && !b.makeRoom() {
		return nil, nil
	}
	in := newInbox(b.d, hashSlot)
	in.Use(1)
	b.open[hashSlot] = in
	b.d.running.Go(in.Run)
	return in, nil
}

// makeRoom closes an idle inbox.
func (b *boxes) makeRoom() bool {
	for hashSlot, in := range b.open {
		if in.idle() {
			delete(b.open, hashSlot)
			in.Close()
			return true
		}
	}
	return false
}

// mode returns how c's place in the queue gets hints, and where.
func (b *boxes) mode(c driver.Claim) (mode byte, inbox string) {
	b.mu.Lock()
	in := b.open[b.d.hashSlotOf(c.Key)]
	b.mu.Unlock()
	if in == nil {
		return modePoll, ""
	}
	return in.mode(c), in.channel
}

func (b *boxes) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, in := range b.open {
		in.Close()
	}
}

// parseHint reads what notify in first.lua publishes: the waiter's claim, and before that may stand
// when to try, in ms: such a hint says only that a waiter should look then; or the lease that it was handed, see
// offer in serve.lua.
func (d *Driver) parseHint(s string) (c driver.Claim, after time.Duration, to handover, ok bool) {
	if rest, late := strings.CutPrefix(s, "+"); late {
		ms, rest, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseUint(ms, 10, 32)
		if err != nil {
			return c, 0, to, false
		}
		s, after = rest, time.Duration(n)*time.Millisecond+time.Millisecond
	} else if rest, handed := strings.CutPrefix(s, "="); handed {
		if s, to, ok = parseHandover(rest); !ok {
			return c, 0, to, false
		}
	}
	c, ok = d.parseClaim(s)
	return c, after, to, ok
}

// handover is what a message says of one.
type handover struct {
	driver.Handover
	token string // of the place, which the owner's latest Try gave it
}

// parseHandover reads one, and returns what stands behind it.
func parseHandover(s string) (rest string, to handover, ok bool) {
	fence, s, _ := strings.Cut(s, " ")
	at, s, _ := strings.Cut(s, " ")
	claim, s, _ := strings.Cut(s, " ")
	token, rest, _ := strings.Cut(s, " ")
	ms, marked := strings.CutSuffix(claim, "!")
	n, err := strconv.ParseUint(fence, 10, 53)
	us, err2 := strconv.ParseUint(at, 10, 53)
	lasts, err3 := strconv.ParseUint(ms, 10, 32)
	ok = n > 0 && err == nil && err2 == nil && err3 == nil
	return rest, handover{driver.Handover{
		Fence: n, At: time.Duration(us) * time.Microsecond, TTL: time.Duration(lasts) * time.Millisecond, Abandoned: marked,
	}, token}, ok
}

// parseClaim reads the claim that a message is about: the length of the value in three digits,
// the value, the lock key.
func (d *Driver) parseClaim(s string) (c driver.Claim, ok bool) {
	if len(s) < 3 {
		return c, false
	}
	n, err := strconv.ParseUint(s[:3], 10, 16)
	if s = s[3:]; err != nil || int(n) > len(s) {
		return c, false
	}
	h := holderOf(s[:n])
	key := s[n:]
	if h.Foreign || len(key) <= len(d.prefix) || key[:len(d.prefix)] != d.prefix {
		return c, false
	}
	return driver.Claim{Key: key[len(d.prefix):], Owner: h.Owner, Label: h.Label}, true
}
