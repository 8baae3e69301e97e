// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

// Handover is a model of one store with a queue, whose owners may enter on the message that says that the
// key was handed to their place, before they claim it. Time is counted in steps, and leases go by the store's
// clock, which may be set. Messages arrive at any later time, or never; a lost one is the same as one that is
// still in flight. Somebody outside holds the key at first, for as long as it likes. The zero value of
// each rule is the rule; setting one removes it.
type Handover struct {
	Owners  int
	TTL     int8    // of a lease that was asked for or claimed
	Claim   int8    // of one that was handed over
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
	Untold   bool // nobody need be told who did not finish
}

// handoverLease is who has the key.
type handoverLease struct {
	owner    int8 // 0 is A; -1 nobody
	fence    int8
	until    int8 // by the store's clock
	enters   bool // its owner may enter on the message
	claimed  bool
	declined bool // its owner said that it did not enter
	mark     bool // one before it did not finish, and nobody who came since was told
}

// handoverMessage tells of a handover. A fence of 0: there is none.
type handoverMessage struct {
	fence, at int8
	mark      bool
}

type handoverOwner struct {
	phase    int8 // idle, asking, holding, done, or lapsed
	tries    int8
	sent     int8 // when the Try began whose answer it waits for; -1: there is none
	answer   handoverAnswer
	late     int8 // Tries that it does not wait for any more
	unsure   bool // there was one
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
	working  bool // it began to work and did not finish, and nobody was told of that
}

// handoverAnswer is the answer to a Try; what was not carried out has none.
type handoverAnswer struct {
	is    int8 // none, saidHeld, or saidYes
	at    int8 // by the store's clock
	fence int8
	mark  bool
}

const (
	saidYes = saidReleased + 1

	renewSent    = 1
	renewCarried = 2
	renewRefused = 3

	finished   = 1
	unused     = 2
	unfinished = 3
	unclaimed  = 4

	outside = 3  // the number of the one that holds the key at first
	forever = 99 // when its lease ends
)

type handoverState struct {
	now    int8
	clock  int8 // of the store
	lease  handoverLease
	mark   bool    // of a free key
	newest int8    // fence
	queue  [3]int8 // owners' numbers and 1; 0: nobody
	missed [3]bool // owners that did not claim the key once
	enters [3]bool // owners in the queue that may enter
	o      [3]handoverOwner
	used   [5]int8 // backs, jumps, copies, twins, silent
	fence  int8    // the largest in use so far
	wrong  int8
}

var handoverWrong = []string{
	"",
	"two rely on the key at once",
	"a fence is not above those that were used before",
	"an owner did not finish, and the next is not told",
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
		wrong: func(s handoverState) string { return handoverWrong[s.wrong] },
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
		n.lease = handoverLease{owner: nobody}
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
	o, who := &s.o[j], owner(j)
	if (o.phase == idle || o.phase == asking && o.sent < 0) && o.tries < m.Tries[j] {
		n := s
		n.o[j].phase, n.o[j].sent = asking, s.now
		n.o[j].tries++
		emit(Step{who, Send, 0, int(o.tries) + 1}, n)
	}
	switch o.phase {
	case asking:
		if o.sent >= 0 {
			m.answered(s, j, emit)
		} else if until := m.enters(&s, j); s.now < until {
			n := s
			n.o[j].entered = true
			m.begin(&n, j, until, o.told.fence, o.told.mark)
			emit(Step{who, Enter, -1, int(until)}, n)
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
	o, who := &s.o[j], owner(j)
	if s.used[4] < m.Silent {
		n := s
		n.used[4]++
		p := &n.o[j]
		p.sent, p.answer, p.unsure = -1, handoverAnswer{}, true
		p.late += int8(bit(o.answer.is == 0))
		emit(Step{who, Silent, 0, int(o.tries)}, n)
	}
	if o.answer.is == 0 {
		return
	}
	n := s
	p := &n.o[j]
	p.sent, p.answer = -1, handoverAnswer{}
	if o.answer.is == saidHeld {
		p.start, p.seen = o.sent, o.answer
		emit(Step{who, Refused, -1, 0}, n)
		return
	}
	until := o.sent + m.TTL
	if s.now >= until { // it asks again, or gives up
		emit(Step{who, Overdue, 0, int(o.tries)}, n)
		return
	}
	m.begin(&n, j, until, o.answer.fence, o.answer.mark)
	emit(Step{who, Hold, -1, int(until)}, n)
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

// until is enters by what does not change with time.
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
		s.wrong = 2
	}
	s.fence = max(s.fence, fence)
	for k := range s.o {
		if s.o[k].working && !told && !m.Untold && s.wrong == 0 {
			s.wrong = 3
		}
		s.o[k].working = false
	}
	o := &s.o[j]
	*o = handoverOwner{phase: holding, tries: o.tries, sent: -1, late: o.late, unsure: o.unsure, mail: o.mail, noted: max(o.noted, fence),
		entered: o.entered, deadline: until, fence: fence, begun: -1, working: true}
}

// relies says what is wrong where another relies on the key, too.
func (m Handover) relies(s *handoverState, j int) {
	for k := range s.o {
		if k != j && s.o[k].phase == holding && s.now < s.o[k].deadline {
			s.wrong = 1
		}
	}
}

// renewal emits what a holder does to keep its lease.
func (m Handover) renewal(s handoverState, j int, emit func(Step, handoverState)) {
	o, who := &s.o[j], owner(j)
	if s.now >= o.deadline {
		return // an answer that comes later does not count
	}
	if o.renewals < m.Renewed {
		n := s
		p := &n.o[j]
		p.renewals++
		p.renew, p.begun = renewSent, s.now
		emit(Step{who, Renewing, -1, 0}, n)
	}
	if o.begun < 0 || o.renew < renewCarried {
		return
	}
	n := s
	p := &n.o[j]
	p.begun, p.renew = -1, 0
	if o.renew == renewRefused {
		p.phase, p.deadline = lapsed, 0
		emit(Step{who, Refused, -1, 0}, n)
		return
	}
	p.deadline = max(o.deadline, o.begun+m.TTL)
	m.relies(&n, j)
	emit(Step{who, Renewed, -1, int(p.deadline)}, n)
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
