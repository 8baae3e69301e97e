// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"crypto/rand"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// attach attaches a lease that was renewed by itself.
func (s *session) attach(c driver.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[c.Owner]
	if m == nil {
		m = &member{Claim: c}
		s.members[c.Owner] = m
	}
	m.id = "" // the renewal made it an ordinary one, whatever the answer to an earlier request says
	m.alone++
	m.until, m.over = time.Now().Add(s.ttl), false
	s.enlist(m)
}

// enlist attaches a member with the next round. mu is held.
func (s *session) enlist(m *member) {
	if !m.queued {
		m.queued = true
		if !m.listed {
			m.listed = true
			s.fresh = append(s.fresh, m)
		}
		s.stir()
	}
}

// attachAll attaches what was renewed since the latest round.
func (s *session) attachAll() {
	for begun := time.Now(); ; {
		s.mu.Lock()
		now := time.Now()
		all, alone := make([]*member, 0, perAttach), make([]int, 0, perAttach)
		for len(s.fresh) > 0 && len(all) < perAttach {
			m := s.fresh[0]
			s.fresh = s.fresh[1:]
			if m.queued && s.members[m.Owner] == m && !m.until.Before(now) { // else it was released since
				all, alone = append(all, m), append(alone, m.alone)
			}
			m.queued, m.listed = false, false
		}
		more := len(s.fresh) > 0
		begins := s.id == "" && len(all) > 0
		if begins {
			s.id, s.gone = rand.Text(), nil
		}
		id := s.id
		for _, m := range all {
			m.sent, m.asked = id, now
		}
		s.mu.Unlock()
		if len(all) == 0 {
			return
		}
		r, err := s.do(s.attachCall(id, begins, all))
		s.mu.Lock()
		s.attached(id, begins, all, alone, r, err)
		s.mu.Unlock()
		if err != nil || !more {
			return // what was not attached is, after its next renewal
		}
		if time.Since(begun) >= s.gap() { // others wait for a beat
			s.stir()
			return
		}
	}
}

func (s *session) attachCall(id string, begins bool, all []*member) *wire.Call {
	n := len(all)
	keys, args := make([]any, 1+3*n), make([]any, 3, 3+n)
	keys[0], args[0], args[1], args[2] = sessionKey(id), wire.Millis(s.ttl), longest.Milliseconds(), ""
	if begins {
		args[2] = "1"
	}
	for i, m := range all {
		names := s.d.names(m.Key)
		keys[1+i], keys[1+n+i], keys[1+2*n+i] = names.lock, names.grant, names.queue
		args = append(args, value(m.Claim))
	}
	return &wire.Call{Script: attachScript, Keys: keys, Args: args}
}

// attached reads what a script attached. A session that may have begun, or not, is never used again. mu is held.
func (s *session) attached(id string, begins bool, all []*member, alone []int, r *wire.Reply, err error) {
	if s.id != id {
		return
	}
	run := ""
	if err == nil {
		run = wire.Next[string](r)
	}
	switch {
	case begins && err == nil && !r.Bad:
		s.run = run
	case err != nil && !begins:
		return
	case err != nil || r.Bad || run != s.run:
		s.id = ""
		return
	}
	now := time.Now()
	for i, m := range all {
		is := wire.Next[int64](r) == 1
		switch {
		case r.Bad || m.alone != alone[i]: // a renewal that was sent since makes it an ordinary one
		case is:
			m.id, m.attached = id, now
		default: // where it was attached, its grant is gone, and its expiry would come unnoticed: it is renewed by itself
			m.id = ""
		}
	}
}
