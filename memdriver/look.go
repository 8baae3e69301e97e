// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Watch implements [driver.Driver].
func (s *Store) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	id, ch := c.ID(), make(chan driver.Hint, 1)
	if s.watchers[id] == nil {
		s.watchers[id] = make(map[chan driver.Hint]struct{})
	}
	s.watchers[id][ch] = struct{}{}
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers[id], ch)
		if len(s.watchers[id]) == 0 {
			delete(s.watchers, id)
		}
	})
	return ch, nil
}

// hint tells an owner to try again.
func (s *Store) hint(id driver.ID, h driver.Hint) {
	for ch := range s.watchers[id] {
		h.Send(ch)
	}
}

// hintAll has every waiter look, after what hints may have been missed in.
func (s *Store) hintAll() {
	for id := range s.watchers {
		s.hint(id, driver.Hint{})
	}
}

// Inspect implements [driver.Driver].
func (s *Store) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if err := s.enter(ctx); err != nil {
		return driver.Info{}, err
	}
	defer s.mu.Unlock()
	now := s.now()
	e := s.settled(key, now)
	defer s.forget(e, now)
	info := e.info(now)
	for _, h := range e.holders {
		info.Holders = append(info.Holders, h.lease(now))
	}
	for _, p := range e.queue {
		info.Queue = append(info.Queue, p.holderInfo())
	}
	return info, nil
}

func (e *entry) info(now time.Time) driver.Info {
	info := driver.Info{Key: e.key, Leases: len(e.holders), Waiters: len(e.queue)}
	if len(e.holders) > 0 {
		first := e.holders[0].lease(now)
		info.Held, info.Holder, info.Fence, info.Left = true, first.Holder, first.Fence, first.Left
	}
	return info
}

func (p *place) lease(now time.Time) driver.Holding {
	return driver.Holding{Holder: p.holderInfo(), Fence: p.fence, Left: p.left(now)}
}

// List implements [driver.Driver].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		keys, err := s.keysWith(ctx, prefix)
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		for _, key := range keys {
			info, err := s.Inspect(ctx, key)
			if err == nil && !info.Held && info.Waiters == 0 {
				continue // over by now
			}
			info.Holders, info.Queue = nil, nil
			if !yield(info, err) || err != nil {
				return
			}
		}
	}
}

func (s *Store) keysWith(ctx context.Context, prefix string) ([]string, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var keys []string
	for key := range s.keys {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}
