// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"context"

	"github.com/hasplock/hasp"
)

// asking is what a turn asks for.
type asking struct {
	keys      []string
	shared    bool // of the one key, unless the kind is LockAll
	ask       func(ctx context.Context) (holdings, error)
	downgrade bool // halfway through
}

// draw draws what the next turn asks for.
func (w *worker) draw() asking {
	keys, o := w.job.Kind.keys(), &hasp.LockOptions{TTL: w.job.TTL}
	one := func(lock func(context.Context) (*hasp.Lease, error)) asking {
		return asking{keys: keys, ask: func(ctx context.Context) (holdings, error) {
			l, err := lock(ctx)
			if err != nil {
				return nil, err
			}
			return single{l}, nil
		}}
	}
	switch w.job.Kind {
	case Semaphore:
		a := one(w.locks.Semaphore(w.job.Kind.key(), w.job.Slots, o).Lock)
		a.shared = true
		return a
	case Election:
		return one(w.locks.Election(w.job.Kind.key(), o).Campaign)
	case ReadWrite:
		m := w.locks.RWMutex(w.job.Kind.key(), o)
		if w.rand.IntN(4) > 0 {
			a := one(m.RLock)
			a.shared = true
			return a
		}
		a := one(m.Lock)
		a.downgrade = w.rand.IntN(3) == 0
		return a
	}
	return w.drawSome(keys, o)
}

// drawSome draws two or three keys, in any order.
func (w *worker) drawSome(keys []string, o *hasp.LockOptions) asking {
	w.rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = keys[:2+w.rand.IntN(2)]
	var items []hasp.Locker
	for _, key := range keys {
		m := w.locks.RWMutex(key, o)
		if w.rand.IntN(4) == 0 {
			items = append(items, m.RLocker())
		} else {
			items = append(items, m)
		}
	}
	return asking{keys: keys, ask: func(ctx context.Context) (holdings, error) {
		all, err := hasp.LockAll(ctx, items...)
		if err != nil {
			return nil, err
		}
		return all, nil
	}}
}
