// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/hasplock/hasp/driver"
)

// lines are the waiters of a client that the server sends no hints. Of those that want a key alone, only the first asks
// at intervals: the turn of each other comes after its, and when its wait ends it wakes the next. So what the
// polls cost a server depends on how many clients wait, not on how many waiters they have.
type lines struct {
	mu   sync.Mutex
	keys map[string][]*inLine
}

// inLine is a waiter with a channel.
type inLine struct {
	owner string
	wake  chan driver.Hint
	place int64 // noPlace: it has none that is known, and asks for itself
}

const noPlace = math.MaxInt64

// watch puts a waiter into its line, until ctx has ended.
func (l *lines) watch(ctx context.Context, c driver.Claim) <-chan driver.Hint {
	w := &inLine{c.Owner, make(chan driver.Hint, 1), noPlace}
	l.change(c.Key, "", func() { l.keys[c.Key] = append(l.keys[c.Key], w) })
	context.AfterFunc(ctx, func() {
		l.change(c.Key, "", func() { l.keys[c.Key] = slices.DeleteFunc(l.keys[c.Key], func(o *inLine) bool { return o == w }) })
	})
	return w.wake
}

// behind notes the place that a waiter has, and says whether the waiter can wait until it is woken.
func (l *lines) behind(key, owner string, place int64) (behind bool) {
	l.change(key, owner, func() {
		for _, w := range l.keys[key] {
			if w.owner == owner {
				w.place, behind = place, place != noPlace
			}
		}
		if first := l.first(key); first != nil {
			behind = behind && first.owner != owner
		}
	})
	return behind
}

// change wakes the waiter that it makes the first of a line, unless that is just asking.
func (l *lines) change(key, asks string, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys == nil {
		l.keys = make(map[string][]*inLine)
	}
	before := l.first(key)
	f()
	if first := l.first(key); first != nil && first != before && first.owner != asks {
		driver.Hint{}.Send(first.wake)
	}
	if len(l.keys[key]) == 0 {
		delete(l.keys, key)
	}
}

// first is the waiter of a line whose turn comes first, nil where none has a place that is known.
func (l *lines) first(key string) (first *inLine) {
	for _, w := range l.keys[key] {
		if w.place != noPlace && (first == nil || w.place < first.place) {
			first = w
		}
	}
	return first
}
