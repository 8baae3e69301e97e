// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"sync"
	"sync/atomic"
	"time"
)

// watchFirst is how long a Lock of a busy key waits for a Watch before it asks for the first time: it is
// answered at once where the subscription stands.
const watchFirst = 5 * time.Millisecond

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

// joinFirst has the first Try join, if a Watch is answered at once, as where the subscription stands.
func (a *attempt) joinFirst() {
	timer := time.NewTimer(watchFirst)
	defer timer.Stop()
	_ = a.subscribeUntil(timer.C) // the Try says what ended it
	a.req.Queue = a.sub.hints != nil
	a.sent = true // what the store grants counts from now
}
