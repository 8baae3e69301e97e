// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "slices"

// Session is a model of leases that are attached to a session: one store, one key, and drivers that prolong
// with one beat all leases that are attached. Time has no end. Messages arrive at any later time, or never; a
// lost one is the same as one that is still in flight. Whoever wants the key may be anybody, and detaches it at any
// moment. Owner A and owner C have one driver, owner B has another. The zero value of each rule is the rule;
// setting one removes it.
type Session struct {
	Owners   int
	TTL      int8    // of a lease
	Beat     int8    // of a session
	Sessions [2]int8 // how many each driver may begin
	Renewed  int8    // how often an owner extends its lease; 0: as often as it likes

	// In all: how many Tries, and how many of the messages that begin a session, arrive twice.
	Twins, Copies int8

	Blind   bool // an attached lease is extended like another
	Deaf    bool // who was detached is not heeded in the answer to a beat
	Short   bool // attaching does not prolong the session
	Endless bool // a detached lease has no end
	Early   bool // a detached lease ends before its session would have
	Receipt bool // a beat counts from when its answer came
	Reborn  bool // a beat begins the session again when it is over
	Once    bool // a beat tells of a detached owner once
	Forgets bool // a driver forgets a lease when it sends the Release
	Marked  bool // what ends a lease for a driver leaves one that is not attached
	Any     bool // a lease counts as attached whatever session its answer names
	Longer  bool // a lease is attached although it may have more left than the session

	// Two rules more, which are not needed where no message arrives twice.
	Fenced   bool // attaching compares the fence
	Straight bool // the answer that a lease was attached does not count where the lease was extended since that was asked for
}

// sessionLock is the key with its grant.
type sessionLock struct {
	owner int8 // nobody: it is free
	until int8 // forever: it is attached
	mark  int8 // the session that it is attached to, or 0
	again bool // it was granted to an owner that had released it
}

// sessionKept is what the store keeps of a session.
type sessionKept struct {
	until int8  // 0: it does not exist
	named uint8 // owners that were detached
}

type sessionOwner struct {
	phase    int8 // idle, asking, holding, or done
	sent     int8 // when its Try began
	granted  bool // its Try was carried out, and the answer is in flight
	deadline int8
	begun    int8 // when the latest renewal began
	renew    int8 // not sent, in flight, or how it was answered
	renewals int8
	attach   [2]sessionAttach // in flight
	attached bool             // its driver had the answer that it is, to the current session
	maybe    bool             // its driver sent a message that attaches it
	release  bool             // in flight
	over     int8             // its driver has a record, though the lease is over: it ends it, or waits for the answer
}

// sessionAttach is a message that attaches a lease, or the answer that it did.
type sessionAttach struct {
	to    int8 // 0: there is none
	first bool // it begins the session
	done  bool // carried out: the answer is in flight
	stale bool // the answer does not count
}

type sessionDriver struct {
	current int8 // its session, or 0
	begun   int8
	beats   [2]sessionBeat // in flight
}

type sessionBeat struct {
	to    int8  // 0: there is none
	is    int8  // not carried out, or how it was answered
	sent  int8  // when it began
	waits uint8 // owners that are renewed with it
	named uint8 // in the answer
}

const (
	renewAttached = renewRefused + 1

	beatLives = 1
	beatGone  = 2

	overSent    = 1
	overCarried = 2
)

type sessionState struct {
	now  int8
	lock sessionLock
	kept [4]sessionKept // by the number of a session, from 1
	o    [3]sessionOwner
	d    [2]sessionDriver
	used [2]int8 // twins, copies
}

func (m Session) system() system[sessionState] {
	return system[sessionState]{
		init:  []sessionState{{lock: sessionLock{owner: nobody}}},
		next:  m.next,
		canon: m.canon,
		wrong: m.wrong,
	}
}

// past is a Session whose states know what led to them.
type past struct{ Session }

type sessionPast struct {
	sessionState
	at     int8 // how much time went by from when A asked until time 0, up to 5
	silent bool // A did nothing more while its lease was attached
}

func (m past) system() system[sessionPast] {
	sys := m.Session.system()
	return system[sessionPast]{
		init: []sessionPast{{sessionState: sys.init[0]}},
		next: func(s sessionPast, emit func(Step, sessionPast)) {
			sys.next(s.sessionState, func(st Step, n sessionState) {
				silent := s.lock.mark != 0 && s.o[0].phase == holding && n.o[0].phase == done && !n.o[0].release
				to := sessionPast{n, s.at, (s.silent || silent) && st.Act != Over}
				if n.o[0].phase == idle {
					to.at = -n.now
				}
				emit(st, to)
			})
		},
		canon: func(s sessionPast) sessionPast {
			return sessionPast{sys.canon(s.sessionState), min(s.at+s.now, 5), s.silent}
		},
	}
}

// wrong says what must not be.
func (m Session) wrong(s sessionState) string {
	rely := 0
	for _, o := range s.o {
		rely += int(bit(o.phase == holding && s.now < o.deadline))
	}
	l := &s.lock
	switch {
	case rely > 1:
		return "two rely on the key at once"
	case l.owner == nobody:
	case l.mark == 0 && l.until > s.now+max(m.TTL, m.Beat):
		return "the key is held for ever, whoever asks for it"
	case l.mark != 0 && s.kept[l.mark-1].until > 0 && s.d[driverOf(int(l.owner))].current == l.mark:
		if o := &s.o[l.owner]; o.phase == done && o.over == 0 {
			return "a driver keeps a lease that it has no record of"
		}
	}
	return ""
}

// driverOf returns the number of an owner's driver.
func driverOf(j int) int { return j % 2 }

func (m Session) next(s sessionState, emit func(Step, sessionState)) {
	n := s
	n.now++
	m.settle(&n)
	emit(Step{"", Tick, -1, int(n.now)}, n)
	if s.lock.mark != 0 {
		n := s
		m.detach(&n)
		emit(Step{"", Detach, 0, int(s.lock.mark)}, n)
	}
	for j := range m.Owners {
		m.decide(s, j, emit)
		m.attaching(s, j, emit)
		m.messages(s, j, emit)
	}
	for d := range s.d {
		m.beats(s, d, emit)
	}
}

// decide emits what an owner's client does by itself, and the answers that it has.
func (m Session) decide(s sessionState, j int, emit func(Step, sessionState)) {
	o, who := &s.o[j], owner(j)
	n := s
	p := &n.o[j]
	switch {
	case o.phase == idle:
		p.phase, p.sent = asking, s.now
		emit(Step{who, Send, 0, 1}, n)
	case o.phase == asking && o.granted:
		until := o.sent + m.TTL
		if s.now >= until {
			*p = sessionOwner{phase: done}
			emit(Step{who, Overdue, 0, 1}, n)
			return
		}
		*p = sessionOwner{phase: holding, deadline: until}
		emit(Step{who, Hold, -1, int(until)}, n)
	case o.phase == holding:
		m.renewal(s, j, emit)
		m.ends(&n, j)
		p.release = true
		if m.Forgets {
			p.over = 0
		}
		emit(Step{who, Release, -1, 0}, n)
	}
}

// renewal emits what a holder does to extend a lease that does not count as attached, and what comes of it.
func (m Session) renewal(s sessionState, j int, emit func(Step, sessionState)) {
	o, who := &s.o[j], owner(j)
	if !o.attached && (m.Renewed == 0 || o.renewals < m.Renewed) {
		n := s
		p := &n.o[j]
		p.renew, p.begun = renewSent, s.now
		p.renewals += int8(bit(m.Renewed > 0))
		for i := range p.attach {
			p.attach[i].stale = p.attach[i].to != 0 && m.Straight
		}
		emit(Step{who, Renewing, -1, 0}, n)
	}
	n := s
	p := &n.o[j]
	p.renew, p.begun = 0, 0
	switch o.renew {
	case renewCarried:
		p.deadline = max(o.deadline, o.begun+m.TTL)
		m.attach(&n, j)
		emit(Step{who, Renewed, -1, int(p.deadline)}, n)
	case renewAttached: // somebody detaches it, and it is extended again
		emit(Step{who, Marked, -1, 0}, n)
	case renewRefused:
		*p = sessionOwner{phase: done, attach: p.attach}
		emit(Step{who, Refused, -1, 0}, n)
	}
}

// attach sends a message that attaches a lease, to a new session where there is none.
func (m Session) attach(s *sessionState, j int) {
	o, d := &s.o[j], &s.d[driverOf(j)]
	for i := range o.attach {
		if o.attach[i].to != 0 {
			continue
		}
		first := d.current == 0
		if first {
			if d.begun >= m.Sessions[driverOf(j)] {
				return
			}
			d.begun++
			d.current = int8(2*driverOf(j)) + d.begun
		}
		o.attach[i], o.maybe = sessionAttach{to: d.current, first: first}, true
		return
	}
}

// ends ends an owner's lease. Its driver keeps a record of it where it may be attached.
func (m Session) ends(s *sessionState, j int) {
	o := &s.o[j]
	n := sessionOwner{phase: done, attach: o.attach, over: int8(bit(o.maybe)) * overSent}
	if o.renew == renewSent {
		n.renew = renewSent
	}
	*o = n
}

// attaching emits what becomes of the messages that attach a lease.
func (m Session) attaching(s sessionState, j int, emit func(Step, sessionState)) {
	for i, a := range s.o[j].attach {
		n := s
		p := &n.o[j].attach[i]
		switch {
		case a.to == 0:
		case !a.done:
			waited := s
			m.attachNow(&n, j, p, false)
			emit(Step{owner(j), Attach, 0, int(a.to)}, n)
			if a.first && s.used[1] < m.Copies {
				n.used[1]++
				*p = a
				emit(Step{owner(j), AttachCopy, 0, int(a.to)}, n)
			}
			m.attachNow(&waited, j, &waited.o[j].attach[i], true)
			emit(Step{owner(j), AttachNot, 0, int(a.to)}, waited)
		default:
			*p = sessionAttach{}
			o, current := &n.o[j], s.d[driverOf(j)].current
			if o.phase == holding && (current == a.to || m.Any && current != 0) && !a.stale {
				o.attached = true
			}
			emit(Step{owner(j), Attached, 0, int(a.to)}, n)
		}
	}
}

// beats emits a driver's beats, and the answers to them.
func (m Session) beats(s sessionState, d int, emit func(Step, sessionState)) {
	who := owner(d)
	sent := s.d[d].current == 0 || s.d[d].beats[0].to != 0 && s.d[d].beats[1].to != 0
	for i, b := range s.d[d].beats {
		n := s
		p := &n.d[d].beats[i]
		switch {
		case b.to == 0 && !sent:
			sent = true
			*p = sessionBeat{to: s.d[d].current, sent: s.now}
			for j := d; j < len(s.o); j += len(s.d) {
				p.waits |= bit(s.o[j].attached) << j
			}
			emit(Step{who, Beating, -1, int(p.to)}, n)
		case b.to == 0:
		case b.is == 0:
			m.beat(&n, p)
			emit(Step{who, Beat, 0, int(b.to)}, n)
		default:
			*p = sessionBeat{}
			m.beaten(&n, d, b)
			emit(Step{who, Beaten, 0, int(b.named)}, n)
		}
	}
}

// beaten is what a driver does with the answer to a beat.
func (m Session) beaten(s *sessionState, d int, b sessionBeat) {
	if s.d[d].current != b.to {
		return
	}
	if b.is == beatGone {
		s.d[d].current = 0
	}
	for j := d; j < len(s.o); j += len(s.d) {
		o := &s.o[j]
		if b.is == beatGone || b.named>>j&1 != 0 && !m.Deaf {
			o.attached = false
		}
		if o.attached && b.waits>>j&1 != 0 {
			since := b.sent
			if m.Receipt {
				since = s.now
			}
			o.deadline = max(o.deadline, since+m.Beat)
		}
	}
}

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
		slices.SortFunc(beats[:], compare)
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
	slices.SortFunc(o.attach[:], compare)
}
