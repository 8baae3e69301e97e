// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"
)

// messages emits what an owner's messages do at the store; those that attach it are elsewhere.
func (m Session) messages(s sessionState, j int, emit func(Step, sessionState)) {
	o, who, me := &s.o[j], owner(j), int8(j)
	free, mine := s.lock.owner == nobody, s.lock.owner == me
	if o.phase == asking && !o.granted && free {
		n := s
		n.lock, n.o[j].granted = sessionLock{owner: me, until: s.now + m.TTL}, true
		emit(Step{who, Try, 0, 1}, n)
	}
	if (o.phase == holding || o.phase == done) && free && s.used[0] < m.Twins {
		n := s
		n.used[0]++
		n.lock = sessionLock{owner: me, until: s.now + m.TTL, again: true}
		emit(Step{who, TryAgain, 0, 1}, n)
	}
	if o.renew == renewSent {
		n := s
		m.extend(&n, j)
		emit(Step{who, Renew, 0, 0}, n)
	}
	if o.release {
		n := s
		p := &n.o[j]
		p.release = false
		if mine {
			n.lock = sessionLock{owner: nobody}
		}
		if p.over != 0 {
			p.over = overCarried
		}
		emit(Step{who, Released, 0, 0}, n)
	}
	if o.over != 0 {
		n := s
		n.o[j].over = overCarried
		if mine && (s.lock.mark != 0 || !m.Marked) {
			n.lock = sessionLock{owner: nobody}
		}
		emit(Step{who, Over, 0, 0}, n)
	}
	if o.over == overCarried {
		n := s
		n.o[j].over = 0
		emit(Step{who, Forgotten, -1, 0}, n)
	}
}

// settle ends what is over at this time.
func (m Session) settle(s *sessionState) {
	if s.lock.owner != nobody && s.lock.until <= s.now {
		s.lock = sessionLock{owner: nobody}
	}
	for i, k := range s.kept {
		if k.until <= s.now {
			s.kept[i] = sessionKept{}
		}
	}
	for j, o := range s.o {
		if o.phase == holding && o.deadline <= s.now {
			m.ends(s, j)
		}
	}
}

// extend carries out a renewal.
func (m Session) extend(s *sessionState, j int) {
	o, l := &s.o[j], &s.lock
	switch {
	case l.owner != int8(j):
		o.renew = renewRefused
	case l.mark != 0 && !m.Blind:
		o.renew = renewAttached
	default:
		o.renew = renewCarried
		l.until = max(l.until, s.now+m.TTL)
	}
	if o.phase == done {
		o.renew = 0
	}
}

// attachNow carries out a message that attaches an owner's lease, which it does not where others wait for the key.
func (m Session) attachNow(s *sessionState, j int, a *sessionAttach, waited bool) {
	k, l := &s.kept[a.to-1], &s.lock
	to, begins := a.to, a.first && k.until == 0
	*a = sessionAttach{to: a.to, done: true, stale: a.stale}
	switch {
	case k.until == 0 && !begins:
	case begins || !m.Short:
		k.until = max(k.until, s.now+m.Beat)
	}
	if waited || k.until == 0 || l.owner != int8(j) || l.mark != 0 || l.until > s.now+m.Beat && !m.Longer || m.Fenced && l.again {
		*a = sessionAttach{} // the answer is no news
		return
	}
	l.mark, l.until = to, forever
	k.named &^= 1 << j
}

// beat carries out a beat.
func (m Session) beat(s *sessionState, b *sessionBeat) {
	k := &s.kept[b.to-1]
	if k.until == 0 && !m.Reborn {
		b.is = beatGone
		return
	}
	k.until = s.now + m.Beat
	b.is, b.named = beatLives, k.named
	if m.Once {
		k.named = 0
	}
}

// detach gives the lease an end of its own, as its session has it; where that is over, so is the lease.
func (m Session) detach(s *sessionState) {
	l := &s.lock
	k := &s.kept[l.mark-1]
	if k.until == 0 {
		*l = sessionLock{owner: nobody}
		return
	}
	k.named |= 1 << l.owner
	l.mark, l.until = 0, k.until
	switch {
	case m.Endless:
		l.until = forever
	case m.Early:
		l.until--
	}
	m.settle(s)
}

// canon counts time from now, and removes what can have no effect any more, so that states that only differ in it
// are equal.
func (m Session) canon(s sessionState) sessionState {
	now := s.now
	s.now = 0
	if s.lock.owner != nobody && s.lock.until != forever {
		s.lock.until -= now
	}
	var held uint8
	for j, o := range s.o {
		held |= bit(o.phase == holding) << j
	}
	for i := range s.kept {
		k := &s.kept[i]
		k.until = max(0, k.until-now)
		k.named &= held
	}
	exist := m.exist(&s)
	for j := range s.o {
		m.tidy(&s, j, now, exist)
	}
	for d := range s.d {
		beats := &s.d[d].beats
		for i := range beats {
			b := &beats[i]
			over := b.to != s.d[d].current
			if b.to == 0 || over && (b.is != 0 || exist>>b.to&1 == 0) {
				*b = sessionBeat{}
				continue
			}
			b.sent -= now
			b.named &= held
			for j := d; j < len(s.o); j += len(s.d) {
				if held>>j&1 == 0 || over || b.is == beatGone || !m.Receipt && b.sent+m.Beat <= s.o[j].deadline {
					b.waits &^= 1 << j
				}
			}
			if b.waits == 0 || m.Receipt {
				b.sent = 0
			}
		}
		slices.SortFunc(beats[:], func(a, b sessionBeat) int {
			return cmp.Or(cmp.Compare(b.to, a.to), cmp.Compare(a.is, b.is), cmp.Compare(a.sent, b.sent), cmp.Compare(a.waits, b.waits), cmp.Compare(a.named, b.named))
		})
	}
	return s
}

// exist returns which sessions exist, or may again.
func (m Session) exist(s *sessionState) uint8 {
	var e uint8
	for i, k := range s.kept {
		e |= bit(k.until > 0) << (i + 1)
	}
	for _, o := range s.o {
		for _, a := range o.attach {
			e |= bit(a.first) << a.to
		}
	}
	for _, d := range s.d {
		e |= bit(m.Reborn && d.current != 0) << d.current
		for _, b := range d.beats {
			e |= bit(m.Reborn && b.to != 0) << b.to
		}
	}
	return e
}

// tidy is canon for one owner.
func (m Session) tidy(s *sessionState, j int, now int8, exist uint8) {
	o := &s.o[j]
	switch o.phase {
	case asking:
		o.sent = max(o.sent-now, -m.TTL)
	case holding:
		o.deadline -= now
		if o.renew == renewSent || o.renew == renewCarried {
			o.begun = max(o.begun-now, o.deadline-m.TTL)
		} else {
			o.begun = 0
		}
	case done:
		if s.lock.owner != int8(j) && s.used[0] >= m.Twins {
			o.renew, o.release, o.over = 0, false, 0
		}
	}
	for i := range o.attach {
		a := &o.attach[i]
		if a.done && (o.phase == done || a.stale || a.to != s.d[driverOf(j)].current && !m.Any) || exist>>a.to&1 == 0 && !a.done {
			*a = sessionAttach{}
		}
		a.stale = a.stale && a.to != 0
	}
	slices.SortFunc(o.attach[:], func(a, b sessionAttach) int {
		return cmp.Or(cmp.Compare(b.to, a.to), cmp.Compare(bit(b.first), bit(a.first)), cmp.Compare(bit(a.done), bit(b.done)), cmp.Compare(bit(a.stale), bit(b.stale)))
	})
}
