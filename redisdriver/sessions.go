// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
)

// sessions are those of a driver, by TTL.
type sessions struct {
	d   *Driver
	gap time.Duration // beatGap, but for tests
	mu  sync.Mutex
	all map[time.Duration]*session
}

// of returns the session of a lease, nil: it has none.
func (ss *sessions) of(r driver.RenewRequest) *session {
	if ss == nil || r.Mode != driver.Exclusive || r.Wanted != nil || r.Entered {
		return nil
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.all[r.TTL]
	if s == nil && len(ss.all) < maxSessions && ss.d.life.Err() == nil {
		s = &session{d: ss.d, ttl: r.TTL, wake: make(chan struct{}, 1), soon: make(chan struct{}, 1), members: map[string]*member{}, lookAt: time.Now()}
		ss.all[r.TTL] = s
		ss.d.running.Go(s.live)
	}
	return s
}

// close waits until no session begins any more; the driver's life is over.
func (ss *sessions) close() {
	if ss != nil {
		ss.mu.Lock()
		ss.mu.Unlock() //nolint:staticcheck // nothing is to be done in between
	}
}

// granted notes that a Try has a lease, whatever its owner had before.
func (ss *sessions) granted(owner string) {
	if ss == nil {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, s := range ss.all {
		s.mu.Lock()
		if m := s.members[owner]; m != nil {
			m.over = false
		}
		s.mu.Unlock()
	}
}

// released notes that a lease was released, or that nobody knows whether it was.
func (ss *sessions) released(owner string, answered bool) {
	if ss == nil {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, s := range ss.all {
		s.released(owner, answered)
	}
}
