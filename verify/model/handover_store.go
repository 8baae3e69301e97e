// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"
)

// messages emits what an owner's messages do, at the store and at its client.
func (m Handover) messages(s handoverState, j int, emit func(Step, handoverState)) {
	o, who := &s.o[j], owner(j)
	if o.sent >= 0 && o.answer.is == 0 {
		n := s
		n.o[j].answer = m.try(&n, j)
		emit(Step{who, Try, 0, int(o.tries)}, n)
	}
	if o.late > 0 {
		n := s
		n.o[j].late--
		m.try(&n, j)
		emit(Step{who, TryLate, 0, 0}, n)
	}
	if o.tries > 0 && s.used[3] < m.Twins && (o.sent < 0 || o.answer.is != 0 || o.tries > 1) {
		n := s
		n.used[3]++
		m.try(&n, j)
		emit(Step{who, TryAgain, 0, 1}, n)
	}
	if o.renew == renewSent {
		n := s
		n.o[j].renew = renewRefused
		m.settle(&n)
		if l := &n.lease; l.owner == int8(j) && (l.claimed || l.enters) { // else it has no fence yet
			n.o[j].renew = renewCarried
			l.until, l.claimed = max(l.until, n.clock+m.TTL), true
		}
		if o.phase == done {
			n.o[j].renew = 0
		}
		emit(Step{who, Renew, 0, 0}, n)
	}
	if o.release != 0 {
		n := s
		n.o[j].release = 0
		m.leave(&n, j, o.release)
		emit(Step{who, Released, 0, 0}, n)
	}
	if o.back {
		n := s
		n.o[j].back = false
		m.leave(&n, j, unclaimed)
		emit(Step{who, GiveBack, 0, 0}, n)
	}
	if !m.Mute {
		m.deliver(s, j, emit)
	}
}

// deliver emits the arrival of a message of a handover.
func (m Handover) deliver(s handoverState, j int, emit func(Step, handoverState)) {
	for i, msg := range s.o[j].mail {
		if msg.fence == 0 {
			continue
		}
		for again := int8(0); again <= min(1, m.Copies-s.used[2]); again++ {
			n := s
			n.used[2] += again
			o := &n.o[j]
			if again == 0 {
				o.mail[i] = handoverMessage{}
			}
			switch {
			case o.phase == asking:
				if msg.fence > o.noted {
					o.told, o.noted = msg, msg.fence
				}
			case o.noted < msg.fence || m.Unread:
				o.back = true
			}
			act := Message
			if again > 0 {
				act = MessageCopy
			}
			emit(Step{owner(j), act, -1, int(msg.fence)}, n)
		}
	}
}

// settle ends the lease, if it is over, and says whether it was. Who did not claim the key gets its old place back,
// once, and the next has the key instead.
func (m Handover) settle(s *handoverState) bool {
	l := s.lease
	if l.owner == nobody || l.until > s.clock {
		return false
	}
	s.mark = s.mark || m.leaves(&l, unfinished)
	s.lease = handoverLease{owner: nobody}
	m.handOn(s)
	if !l.claimed && !s.missed[l.owner] {
		copy(s.queue[1:], s.queue[:])
		s.queue[0], s.missed[l.owner], s.enters[l.owner] = l.owner+1, true, l.enters && m.Again
		m.handOn(s)
	}
	return true
}

// leaves says whether the end of a lease leaves the key abandoned.
func (m Handover) leaves(l *handoverLease, how int8) bool {
	switch {
	case !l.claimed && (!l.enters || l.declined || m.NoMark || how == unclaimed), how == unused:
		return l.mark
	}
	return how == unfinished
}

// handOn hands a free key to the first in the queue.
func (m Handover) handOn(s *handoverState) {
	if s.lease.owner != nobody || s.queue[0] == 0 {
		return
	}
	j := s.queue[0] - 1
	s.lease = handoverLease{owner: j, enters: s.enters[j], until: s.clock + m.Claim, mark: s.mark}
	s.unqueue(j)
	s.mark = false
	if s.lease.enters { // else its fence comes with its claim
		s.newest++
		s.lease.fence = s.newest
		mail := &s.o[j].mail
		free := slices.Index(mail[:], handoverMessage{})
		mail[free] = handoverMessage{s.newest, s.clock, s.lease.mark} // canon leaves room
	}
}

func (s *handoverState) unqueue(j int8) {
	if at := slices.Index(s.queue[:], j+1); at >= 0 {
		copy(s.queue[at:], s.queue[at+1:])
		s.queue[len(s.queue)-1], s.enters[j] = 0, false
	}
}

// try carries out a Try.
func (m Handover) try(s *handoverState, j int) handoverAnswer {
	me := int8(j)
	if l := &s.lease; l.owner == me && !l.claimed {
		l.declined = true
	}
	m.settle(s)
	l := &s.lease
	if l.owner == nobody { // and nobody waits
		*l = handoverLease{owner: me, mark: s.mark}
		s.mark = false
	}
	if l.owner == me {
		if l.fence == 0 {
			s.newest++
			l.fence = s.newest
		}
		l.until, l.claimed = max(l.until, s.clock+m.TTL), true
		return handoverAnswer{saidYes, s.clock, l.fence, l.mark}
	}
	if !slices.Contains(s.queue[:], me+1) {
		s.queue[slices.Index(s.queue[:], 0)], s.missed[j] = me+1, false
	}
	s.enters[j] = true
	return handoverAnswer{saidHeld, s.clock, s.newest, false}
}

// leave carries out a Release, or what gives a handover back that nobody waits for.
func (m Handover) leave(s *handoverState, j int, how int8) {
	me := int8(j)
	if l := &s.lease; l.owner == me && !l.claimed {
		l.declined = how == unused || how == unclaimed
	}
	m.settle(s)
	switch l := s.lease; {
	case l.owner == me && l.claimed && how == unclaimed:
		return
	case l.owner == me:
		s.mark = m.leaves(&l, how)
		s.lease = handoverLease{owner: nobody}
	default:
		s.unqueue(me)
	}
	m.handOn(s)
}

// canon removes what can have no effect any more, so that states that only differ in it are equal.
func (m Handover) canon(s handoverState) handoverState {
	for j := range s.o {
		o := &s.o[j]
		has := s.lease.owner == int8(j) || slices.Contains(s.queue[:], int8(j)+1)
		if o.phase == done && !has && o.late == 0 && s.used[3] >= m.Twins {
			*o = handoverOwner{phase: done, tries: o.tries, sent: -1, begun: -1, fence: o.fence, entered: o.entered, working: o.working}
		}
		if o.tries >= m.Tries[j] && o.late == 0 && (o.sent < 0 || o.answer.is != 0) && s.used[3] >= m.Twins && !has {
			s.missed[j] = false
		}
		if o.unsure && !m.Unsure {
			o.start, o.seen = 0, handoverAnswer{}
		}
		m.tidy(&s, o)
	}
	return s
}

// tidy sorts an owner's messages, and keeps one of those that can only give something back.
func (m Handover) tidy(s *handoverState, o *handoverOwner) {
	if !m.helps(s, o, o.told) {
		o.told = handoverMessage{}
	}
	newest := func(a, b handoverMessage) int { return cmp.Compare(b.fence, a.fence) }
	slices.SortFunc(o.mail[:], newest)
	dull := 0
	for i, msg := range o.mail {
		if msg.fence != 0 && !m.helps(s, o, msg) {
			if dull++; dull > 1 {
				o.mail[i] = handoverMessage{}
			}
		}
	}
	slices.SortFunc(o.mail[:], newest)
}

// helps says whether an owner may yet enter on a message.
func (m Handover) helps(s *handoverState, o *handoverOwner, msg handoverMessage) bool {
	if o.phase != asking || msg.fence == 0 {
		return false
	}
	next := *o // when it has the answer that is in flight
	next.start, next.seen = o.sent, o.answer
	for _, of := range []*handoverOwner{o, &next} {
		if until := m.until(of, msg); of.seen.is <= saidHeld && until > 0 && (until > s.now || m.Receipt) {
			return true
		}
	}
	return false
}
