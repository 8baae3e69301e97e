// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"
)

// Handover is a model of one store with a queue. An owner may enter on the message that says that the key was handed to its place,
// before it claims the key. Time is counted in steps, and leases go by the store's clock, which may be set. Messages arrive at any
// later time, or never; a lost message is the same as a message that is still in flight. An owner outside the model holds the key
// at first, for as long as it likes. The zero value of each rule is what hasp does; setting one removes it.
type Handover struct {
	Owners  int
	TTL     int8    // of a lease that was asked for or claimed
	Claim   int8    // of a lease that was handed over
	End     int8    // the last moment
	Tries   [3]int8 // of each owner
	Renewed int8    // how often an owner renews; the first time is the claim
	Fails   bool    // owners also tell the store that they did not finish
	Mute    bool    // no message arrives

	// In all: by how much the store's clock is set back and forward, how many messages and Tries arrive twice, and
	// for how many Tries their owners wait no longer.
	Backs, Jumps, Copies, Twins, Silent int8

	Receipt  bool // the lease counts from when the message came
	AnyFence bool // the fence of the refusal is not compared
	Unsure   bool // an owner enters although a Try of its own had no answer
	Unread   bool // a copy of a message gives the key back although its owner entered
	Drops    bool // the same, from when that owner sends its release on
	Again    bool // a place that came back may enter before its owner asked again
	NoMark   bool // a handover that expires leaves no mark
	Untold   bool // no owner need be told that an owner before it did not finish
}

// handoverLease is the lease of the key.
type handoverLease struct {
	owner    int8 // 0 is A; -1: none
	fence    int8
	until    int8 // by the store's clock
	enters   bool // its owner may enter on the message
	claimed  bool
	declined bool // its owner said that it did not enter
	mark     bool // an owner before it did not finish, and no owner since was told
}

// handoverMessage tells of a handover. A fence of 0: there is none.
type handoverMessage struct {
	fence, at int8
	mark      bool
}

type handoverOwner struct {
	phase    int8 // idle, asking, holding, done, or lapsed
	tries    int8
	sent     int8 // when the Try began that it waits for; -1: there is none
	answer   handoverAnswer
	late     int8 // Tries that it does not wait for any more
	unsure   bool // there was such a Try
	start    int8 // before the Try that was refused last
	seen     handoverAnswer
	mail     [3]handoverMessage // in flight
	told     handoverMessage    // the newest that came
	noted    int8               // the newest fence that came, or that it has: a message of it gives nothing back
	entered  bool               // it acted on a message
	deadline int8
	fence    int8
	renewals int8
	begun    int8 // when the latest renewal began; -1: it was answered
	renew    int8 // not sent, in flight, carried out, or refused
	release  int8 // not sent, or how its lease ended
	back     bool // in flight: what it was handed is given back
	working  bool // it began to work and did not finish, and no owner was told of that
}

// handoverAnswer is the answer to a Try; a Try that was not carried out has none.
type handoverAnswer struct {
	is    int8 // none, saidHeld, or saidYes
	at    int8 // by the store's clock
	fence int8
	mark  bool
}

const (
	saidHeld = 1
	saidYes  = 2

	renewSent    = 1
	renewCarried = 2
	renewRefused = 3

	finished   = 1
	unused     = 2
	unfinished = 3
	unclaimed  = 4

	outside = 3  // the number of the owner that holds the key at first
	forever = 99 // when its lease ends
)

type handoverState struct {
	now    int8
	clock  int8 // of the store
	lease  handoverLease
	mark   bool    // of a free key
	newest int8    // fence
	queue  [3]int8 // owners' numbers plus 1; 0: none
	missed [3]bool // owners that did not claim the key once
	enters [3]bool // owners in the queue that may enter
	o      [3]handoverOwner
	used   [5]int8 // backs, jumps, copies, twins, silent
	fence  int8    // the largest in use so far
	wrong  verdict
}

func (m Handover) system() system[handoverState] {
	s := handoverState{newest: 1, fence: 1, lease: handoverLease{owner: outside, fence: 1, until: forever, claimed: true}}
	for j := range s.o {
		s.o[j].sent, s.o[j].begun = -1, -1
	}
	return system[handoverState]{
		init:  []handoverState{s},
		next:  m.next,
		canon: m.canon,
		wrong: func(s handoverState) string { return verdicts[s.wrong] },
	}
}

func (m Handover) next(s handoverState, emit func(Step, handoverState)) {
	if s.now < m.End {
		n := s
		n.now++
		n.clock++
		emit(Step{"", Tick, -1, int(n.now)}, n)
	}
	for by := int8(1); by <= m.Backs-s.used[0]; by++ {
		n := s
		n.clock -= by
		n.used[0] += by
		emit(Step{"", Back, 0, int(by)}, n)
	}
	for by := int8(1); by <= m.Jumps-s.used[1]; by++ {
		n := s
		n.clock += by
		n.used[1] += by
		emit(Step{"", Jump, 0, int(by)}, n)
	}
	if s.lease.owner == outside {
		n := s
		n.lease = handoverLease{owner: noOwner}
		m.handOn(&n)
		emit(Step{"", Vanish, 0, 0}, n)
	} else if n := s; m.settle(&n) {
		emit(Step{"", Expire, 0, int(s.lease.owner)}, n)
	}
	for j := range m.Owners {
		if j > 0 && s.o[j-1].phase == idle && m.Tries[j-1] == m.Tries[j] {
			continue // the owners differ only in name
		}
		m.decide(s, j, emit)
		m.messages(s, j, emit)
	}
}

// decide emits what an owner's client does by itself.
func (m Handover) decide(s handoverState, j int, emit func(Step, handoverState)) {
	o, actor := &s.o[j], owner(j)
	if (o.phase == idle || o.phase == asking && o.sent < 0) && o.tries < m.Tries[j] {
		n := s
		n.o[j].phase, n.o[j].sent = asking, s.now
		n.o[j].tries++
		emit(Step{actor, Send, 0, int(o.tries) + 1}, n)
	}
	switch o.phase {
	case asking:
		if o.sent >= 0 {
			m.answered(s, j, emit)
		} else if until := m.enters(&s, j); s.now < until {
			n := s
			n.o[j].entered = true
			m.begin(&n, j, until, o.told.fence, o.told.mark)
			emit(Step{actor, Enter, -1, int(until)}, n)
		}
		m.ends(s, j, unused, emit)
	case holding:
		m.renewal(s, j, emit)
		if s.now < o.deadline {
			m.ends(s, j, finished, emit)
		}
	}
	if m.Fails && (o.phase == holding || o.phase == lapsed) {
		m.ends(s, j, unfinished, emit)
	}
}

// answered emits what becomes of the Try that an owner waits for.
func (m Handover) answered(s handoverState, j int, emit func(Step, handoverState)) {
	o, actor := &s.o[j], owner(j)
	if s.used[4] < m.Silent {
		n := s
		n.used[4]++
		p := &n.o[j]
		p.sent, p.answer, p.unsure = -1, handoverAnswer{}, true
		p.late += int8(bit(o.answer.is == 0))
		emit(Step{actor, Silent, 0, int(o.tries)}, n)
	}
	if o.answer.is == 0 {
		return
	}
	n := s
	p := &n.o[j]
	p.sent, p.answer = -1, handoverAnswer{}
	if o.answer.is == saidHeld {
		p.start, p.seen = o.sent, o.answer
		emit(Step{actor, Refused, -1, 0}, n)
		return
	}
	until := o.sent + m.TTL
	if s.now >= until { // it asks again, or gives up
		emit(Step{actor, Overdue, 0, int(o.tries)}, n)
		return
	}
	m.begin(&n, j, until, o.answer.fence, o.answer.mark)
	emit(Step{actor, Hold, -1, int(until)}, n)
}

// enters returns until when an owner may rely on the handover that it was told of; 0: it must ask.
func (m Handover) enters(s *handoverState, j int) int8 {
	o := &s.o[j]
	since := o.told.at - o.seen.at
	switch {
	case since > s.now-o.start: // never, unless the store's clock went ahead
		return 0
	case m.Receipt && m.until(o, o.told) > 0:
		return s.now + m.Claim
	}
	return m.until(o, o.told)
}

// until is enters without the checks that depend on the time.
func (m Handover) until(o *handoverOwner, told handoverMessage) int8 {
	since := told.at - o.seen.at
	if o.seen.is == 0 || told.fence == 0 || o.unsure && !m.Unsure || told.fence <= o.seen.fence && !m.AnyFence || since < 0 {
		return 0
	}
	return o.start + since + m.Claim
}

// begin makes an owner rely on the key.
func (m Handover) begin(s *handoverState, j int, until, fence int8, told bool) {
	m.relies(s, j)
	if fence <= s.fence {
		s.wrong = says("a fence is not above those that were used before")
	}
	s.fence = max(s.fence, fence)
	for k := range s.o {
		if s.o[k].working && !told && !m.Untold && s.wrong == 0 {
			s.wrong = says("an owner did not finish, and the next is not told")
		}
		s.o[k].working = false
	}
	o := &s.o[j]
	*o = handoverOwner{phase: holding, tries: o.tries, sent: -1, late: o.late, unsure: o.unsure, mail: o.mail, noted: max(o.noted, fence),
		entered: o.entered, deadline: until, fence: fence, begun: -1, working: true}
}

// relies says what is wrong where another owner relies on the key, too.
func (m Handover) relies(s *handoverState, j int) {
	for k := range s.o {
		if k != j && s.o[k].phase == holding && s.now < s.o[k].deadline {
			s.wrong = says("two rely on the key at once")
		}
	}
}

// renewal emits what a holder does to keep its lease.
func (m Handover) renewal(s handoverState, j int, emit func(Step, handoverState)) {
	o, actor := &s.o[j], owner(j)
	if s.now >= o.deadline {
		return // an answer that comes later does not count
	}
	if o.renewals < m.Renewed {
		n := s
		p := &n.o[j]
		p.renewals++
		p.renew, p.begun = renewSent, s.now
		emit(Step{actor, Renewing, -1, 0}, n)
	}
	if o.begun < 0 || o.renew < renewCarried {
		return
	}
	n := s
	p := &n.o[j]
	p.begun, p.renew = -1, 0
	if o.renew == renewRefused {
		p.phase, p.deadline = lapsed, 0
		emit(Step{actor, Refused, -1, 0}, n)
		return
	}
	p.deadline = max(o.deadline, o.begun+m.TTL)
	m.relies(&n, j)
	emit(Step{actor, Renewed, -1, int(p.deadline)}, n)
}

// ends emits the end of an attempt, or of a lease.
func (m Handover) ends(s handoverState, j int, how int8, emit func(Step, handoverState)) {
	n := s
	o := &n.o[j]
	late := o.late + int8(bit(o.sent >= 0 && o.answer.is == 0))
	*o = handoverOwner{phase: done, tries: o.tries, sent: -1, late: late, mail: o.mail, begun: -1,
		release: how, working: o.working && how != finished}
	if o.noted = s.o[j].noted; m.Drops {
		o.noted = 0
	}
	if how == finished {
		o.fence, o.entered = s.o[j].fence, s.o[j].entered
	}
	if s.o[j].renew == renewSent {
		o.renew = renewSent
	}
	emit(Step{owner(j), Release, -1, int(how)}, n)
}

// messages emits what an owner's messages do, at the store and at its client.
func (m Handover) messages(s handoverState, j int, emit func(Step, handoverState)) {
	o, actor := &s.o[j], owner(j)
	if o.sent >= 0 && o.answer.is == 0 {
		n := s
		n.o[j].answer = m.try(&n, j)
		emit(Step{actor, Try, 0, int(o.tries)}, n)
	}
	if o.late > 0 {
		n := s
		n.o[j].late--
		m.try(&n, j)
		emit(Step{actor, TryLate, 0, 0}, n)
	}
	if o.tries > 0 && s.used[3] < m.Twins && (o.sent < 0 || o.answer.is != 0 || o.tries > 1) {
		n := s
		n.used[3]++
		m.try(&n, j)
		emit(Step{actor, TryAgain, 0, 1}, n)
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
		emit(Step{actor, Renew, 0, 0}, n)
	}
	if o.release != 0 {
		n := s
		n.o[j].release = 0
		m.leave(&n, j, o.release)
		emit(Step{actor, Released, 0, 0}, n)
	}
	if o.back {
		n := s
		n.o[j].back = false
		m.leave(&n, j, unclaimed)
		emit(Step{actor, GiveBack, 0, 0}, n)
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

// settle ends the lease, if it is over, and says whether it was. An owner that did not claim the key gets its old
// place back, once, and the next owner has the key instead.
func (m Handover) settle(s *handoverState) bool {
	l := s.lease
	if l.owner == noOwner || l.until > s.clock {
		return false
	}
	s.mark = s.mark || m.leaves(&l, unfinished)
	s.lease = handoverLease{owner: noOwner}
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
	if s.lease.owner != noOwner || s.queue[0] == 0 {
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
	if l.owner == noOwner { // and no owner waits
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

// leave carries out a Release, or gives back a handover that its owner does not wait for.
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
		s.lease = handoverLease{owner: noOwner}
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

// tidy sorts an owner's messages, and keeps one of the messages that can only give something back.
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
