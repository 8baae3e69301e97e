// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "slices"

// Votes is a model of leases in time: two owners with one acquisition each, and nodes that expire leases and lose their data. Time
// is counted in steps. Messages arrive at any later time, or never; a lost message is the same as a message that is still in
// flight. The zero value of each rule is what hasp does; setting one removes it.
type Votes struct {
	TTL   [2]int8 // of the owners' leases
	Max   int8    // the longest lease that nodes grant; 0: TTL[0]
	Wait  [2]int8 // how long each owner's client times a record before it admits the node; 0: Max
	End   int8    // the last moment
	Flaky int     // how many nodes may lose their data

	Restarts, Reloads, Flushes, Jumps int8    // how often, in all
	Rounds                            [2]int8 // renewals of the owners' leases
	Restores                          bool    // holders that renew ask for votes with Restore
	Alone                             bool    // there is only A; nodes fail while it holds, and their runs are counted
	Releases                          bool    // owners release: when their attempt fails, and when their lease is over
	Tombs                             bool    // nodes remember releases, for a while

	Rule      Rule // which nodes vote
	AnyTTL    bool // nodes grant leases longer than Max
	Receipt   bool // a renewed lease counts from when the renewal was answered
	Elapsed   bool // a lease counts from when the majority was complete
	Late      bool // a renewal counts when its answers come after the deadline, too
	SameTime  bool // restored votes count in the renewal in which they were restored
	Minority  bool // one vote renews
	NoFloor   bool // what a node forgot is not covered by a floor
	Blind     bool // a Restore is not compared with the fences of the key
	Forgetful bool // a Try is granted after its Release
}

// Rule says which nodes vote.
type Rule int8

// The rules.
const (
	ByNonce  Rule = iota // nodes with a record of this run, admitted by a client that timed its nonce
	ByRun                // the same, but timed since this run of the node was first seen
	ByMark               // nodes with a record, of whatever run
	ByUptime             // nodes that report to be up for long enough
	Always               // all nodes
)

const noOwner = -1

type votesNode struct {
	owner  int8 // 0 is A; -1: none
	until  int8 // when it expires
	key    int8 // the largest fence that is remembered of the key
	top    int8 // the largest fence ever granted: a node that was admitted has a floor that is not below
	record int8 // one of the below
	nonce  int8 // of the record that waits
	life   int8
	up     int8 // since when, by its own clock
	tombs  [2]bool
	saved  votesSaved
	of     [2]votesMessages
}

// votesSaved is a snapshot.
type votesSaved struct {
	there, admitted   bool
	owner, until, key int8
}

const (
	admitted = iota
	waits
	missing
)

// Phases of an owner.
const (
	idle = iota
	asking
	holding
	done
	lapsed
)

type votesOwner struct {
	phase    int8 // idle, asking, holding, done, or lapsed
	fence    int8 // 1 is that of the first to begin
	sent     int8 // when the attempt began
	deadline int8 // of the lease
	rounds   int8
	begun    int8 // when the current renewal began; -1: there is none
	stirred  bool // another owner has held since this one did
}

// votesMessages are the messages of an owner to a node.
type votesMessages struct {
	tried    bool // the Try was carried out
	granted  bool
	renewed  int8 // in the current renewal: 1, or 2 if the vote was restored in it
	giving   int8 // a Restore is in flight: 1, or 2 if it was sent in the current renewal
	released bool // the Release was carried out
	nonce    int8 // of the record that its client times, or the life; -1: none
	seen     int8 // since when
}

type votesState struct {
	now   int8
	n     [nodes]votesNode
	o     [2]votesOwner
	used  [4]int8 // restarts, reloads, flushes, jumps
	nonce int8    // the last one
	wrong verdict
}

func (m Votes) system() system[votesState] {
	if m.Max == 0 {
		m.Max = m.TTL[0]
	}
	for j := range m.Wait {
		if m.Wait[j] == 0 {
			m.Wait[j] = m.Max
		}
	}
	var s votesState
	for i := range s.n {
		s.n[i].owner, s.n[i].up = noOwner, -m.Wait[0]
		for j := range s.o {
			s.o[j].begun = -1
			s.n[i].of[j].nonce = -1
			if m.Rule == ByRun {
				s.n[i].of[j].nonce, s.n[i].of[j].seen = 0, -m.Wait[j]
			}
		}
	}
	return system[votesState]{
		init:  []votesState{s},
		next:  m.next,
		canon: m.canon,
		wrong: func(s votesState) string { return verdicts[s.wrong] },
	}
}

func (m Votes) next(s votesState, emit func(Step, votesState)) {
	if s.now < m.End {
		n := s
		n.now++
		for i := range n.n {
			n.n[i].expire(n.now)
		}
		emit(Step{"", Tick, -1, int(n.now)}, n)
	}
	for j := range s.o {
		if j > 0 && m.TTL[0] == m.TTL[1] && m.Wait[0] == m.Wait[1] && s.o[0].phase == idle {
			continue // the owners differ only in name
		}
		if m.Alone && j > 0 {
			break
		}
		m.decide(s, j, emit)
		for i := range s.n {
			m.messages(s, j, i, emit)
			m.admission(s, j, i, emit)
		}
	}
	for i := range m.Flaky {
		m.faults(s, i, emit)
	}
}

func (n *votesNode) expire(now int8) {
	if n.owner != noOwner && n.until <= now {
		n.owner, n.until = noOwner, 0
	}
}

// votes reports whether a node grants and renews.
func (m Votes) votes(s *votesState, i int) bool {
	n := &s.n[i]
	switch m.Rule {
	case ByUptime:
		return s.now-n.up >= m.Wait[0]
	case Always:
		return true
	}
	return n.record == admitted
}

// decide emits what an owner's client does by itself.
func (m Votes) decide(s votesState, j int, emit func(Step, votesState)) {
	o, actor := &s.o[j], owner(j)
	switch o.phase {
	case idle:
		n := s
		n.o[j].phase, n.o[j].sent, n.o[j].fence = asking, s.now, max(s.o[0].fence, s.o[1].fence)+1
		emit(Step{actor, Propose, -1, int(n.o[j].fence)}, n)
	case asking:
		granted := 0
		for i := range s.n {
			granted += int(bit(s.n[i].of[j].granted))
		}
		deadline := o.sent + m.TTL[j]
		if m.Elapsed {
			deadline = s.now + m.TTL[j]
		}
		if granted >= need && s.now < deadline {
			n := s
			n.o[j].phase, n.o[j].deadline, n.o[j].sent = holding, deadline, 0
			other := &n.o[1-j]
			if other.phase == holding {
				other.stirred = true
				if s.now < other.deadline {
					n.wrong = says("both hold the key at once")
				}
			}
			for i := range n.n {
				n.n[i].of[j].granted = false
			}
			emit(Step{actor, Hold, -1, int(deadline)}, n)
		}
	case holding:
		m.renewal(s, j, emit)
	}
	if m.Releases && o.phase != idle && o.phase != done {
		n := s
		n.stop(j, done)
		emit(Step{actor, Release, -1, 0}, n)
	}
}

// stop ends an owner's part: it does not hold the key, and never will.
func (s *votesState) stop(j int, phase int8) {
	s.o[j] = votesOwner{phase: phase, fence: s.o[j].fence, begun: -1}
	for i := range s.n {
		s.n[i].of[j].granted, s.n[i].of[j].renewed = false, 0
	}
}

// renewing forgets what nodes answered in an earlier renewal.
func (s *votesState) renewing(j int) {
	for i := range s.n {
		v := &s.n[i].of[j]
		v.renewed, v.giving = 0, min(v.giving, 1)
	}
}

// renewal emits what a holder does with its lease.
func (m Votes) renewal(s votesState, j int, emit func(Step, votesState)) {
	o, actor := &s.o[j], owner(j)
	if o.rounds < m.Rounds[j] && s.now < o.deadline {
		n := s
		p := &n.o[j]
		p.begun = s.now
		p.rounds++
		n.renewing(j)
		emit(Step{actor, Renewing, -1, 0}, n)
	}
	if m.Restores && m.Rounds[j] > 0 && (s.now < o.deadline || m.Late && o.begun >= 0 && s.now < o.begun+m.TTL[j]) {
		for i, x := range s.n {
			if x.owner != int8(j) && m.votes(&s, i) && x.of[j].giving == 0 {
				n := s
				n.n[i].of[j].giving = 1 + int8(bit(o.begun >= 0))
				emit(Step{actor, SendRestore, i, 0}, n)
			}
		}
	}
	if o.begun < 0 || !m.Late && s.now >= o.deadline {
		return
	}
	votes := 0
	for _, x := range s.n {
		if v := x.of[j]; v.renewed == 1 || v.renewed == 2 && m.SameTime {
			votes++
		}
	}
	deadline := o.begun + m.TTL[j]
	if m.Receipt {
		deadline = s.now + m.TTL[j]
	}
	if s.now >= deadline || votes < need && !(m.Minority && votes > 0) {
		return
	}
	n := s
	p := &n.o[j]
	p.deadline, p.begun = max(p.deadline, deadline), -1
	n.renewing(j)
	if other := &s.o[1-j]; other.phase == holding && s.now < other.deadline {
		n.wrong = says("both hold the key at once")
	}
	if o.stirred {
		n.wrong = says("a lease was renewed although another held the key in between")
	}
	emit(Step{actor, Renewed, -1, int(p.deadline)}, n)
}

// messages emits what owner j's messages do at node i.
func (m Votes) messages(s votesState, j, i int, emit func(Step, votesState)) {
	o, x, actor := &s.o[j], &s.n[i], owner(j)
	v := x.of[j]
	if o.phase == idle {
		return
	}
	if !v.tried {
		n := s
		if m.grant(&n, j, i, o.fence > m.floor(x)) {
			if m.Releases && m.Tombs && v.released && n.n[i].tombs[j] {
				n.wrong = says("a Try that came after its Release was granted, while the node remembered the Release")
			}
			n.n[i].of[j].tried, n.n[i].of[j].granted = true, o.phase == asking
			emit(Step{actor, Try, i, 1}, n)
		}
	}
	if v.giving > 0 {
		n := s
		n.n[i].of[j].giving = 0
		if m.grant(&n, j, i, o.fence >= x.key || m.Blind) {
			if v.giving == 2 && o.begun >= 0 && v.renewed == 0 {
				n.n[i].of[j].renewed = 2
			}
			emit(Step{actor, Restore, i, 0}, n)
		}
	}
	if o.begun >= 0 && v.renewed == 0 && x.owner == int8(j) && m.votes(&s, i) {
		n := s
		n.n[i].until = max(x.until, s.now+m.TTL[j])
		n.n[i].of[j].renewed = 1
		emit(Step{actor, Renew, i, 0}, n)
	}
	if o.phase == done && !v.released {
		n := s
		n.n[i].of[j].released = true
		n.n[i].tombs[j] = m.Tombs
		if x.owner == int8(j) {
			n.n[i].owner, n.n[i].until = noOwner, 0
		}
		emit(Step{actor, Released, i, 0}, n)
	}
}

// grant carries out a Try of owner j at node i; high means that its fence is high enough.
func (m Votes) grant(s *votesState, j, i int, high bool) bool {
	n := &s.n[i]
	switch {
	case !m.votes(s, i), n.tombs[j] && !m.Forgetful, m.TTL[j] > m.Max && !m.AnyTTL:
		return false
	case n.owner == noOwner && high:
	case n.owner != int8(j):
		return false
	}
	n.owner, n.until = int8(j), max(n.until, s.now+m.TTL[j])
	n.key, n.top = max(n.key, s.o[j].fence), max(n.top, s.o[j].fence)
	return true
}

// floor is what a proposal must be above at a node that votes: what it
// remembers, and from its admission on all that it may have forgotten.
func (m Votes) floor(n *votesNode) int8 {
	if m.floors() {
		return n.top
	}
	return n.key
}

func (m Votes) floors() bool { return m.Rule == ByNonce && !m.NoFloor }

// admission emits what owner j's client does with the record of node i.
func (m Votes) admission(s votesState, j, i int, emit func(Step, votesState)) {
	x, v := &s.n[i], &s.n[i].of[j]
	if x.record == admitted || m.Rule == ByUptime || m.Rule == Always {
		return
	}
	n := s
	if x.record == missing { // the first client that looks writes a record that waits
		n.nonce++
		n.n[i].record, n.n[i].nonce = waits, n.nonce
	}
	mark := n.n[i].nonce
	if m.Rule == ByRun {
		mark = x.life
	}
	if v.nonce != mark {
		n.n[i].of[j].nonce, n.n[i].of[j].seen = mark, s.now
		emit(Step{owner(j), Look, i, 0}, n)
	} else if s.now-v.seen >= m.Wait[j] {
		n.n[i].record, n.n[i].nonce = admitted, 0
		emit(Step{owner(j), Admit, i, 0}, n)
	}
}

// faults emits the faults that node i may have.
func (m Votes) faults(s votesState, i int, emit func(Step, votesState)) {
	if m.Alone && s.o[0].phase != holding {
		return
	}
	x := s.n[i]
	empty := votesNode{owner: noOwner, record: missing, life: x.life, up: x.up, top: x.top, saved: x.saved, of: x.of}
	if s.used[0] < m.Restarts {
		n := s
		n.used[0]++
		n.n[i] = empty
		n.n[i].restarted(s.now)
		emit(Step{"", Restart, i, 0}, n)
	}
	if s.used[1] < m.Reloads && !x.saved.there {
		n := s
		n.n[i].saved = votesSaved{true, x.record == admitted, x.owner, x.until, x.key}
		emit(Step{"", Snapshot, i, 0}, n)
	}
	if s.used[1] < m.Reloads && x.saved.there {
		n := s
		n.used[1]++
		n.n[i] = empty
		y := &n.n[i]
		y.restarted(s.now)
		y.owner, y.until, y.key, y.saved = x.saved.owner, x.saved.until, x.saved.key, votesSaved{}
		if m.Rule == ByMark && x.saved.admitted {
			y.record = admitted
		}
		y.expire(s.now)
		emit(Step{"", Reload, i, 0}, n)
	}
	if s.used[2] < m.Flushes {
		n := s
		n.used[2]++
		n.n[i] = empty
		emit(Step{"", Flush, i, 0}, n)
	}
	if s.used[3] < m.Jumps {
		n := s
		n.used[3]++
		n.n[i].up -= m.Wait[0]
		if m.Rule == ByNonce { // what it holds expires early
			n.n[i].until -= m.Max
			n.n[i].expire(s.now)
		}
		emit(Step{"", Jump, i, int(m.Max)}, n)
	}
	for j := range x.tombs {
		if x.tombs[j] {
			n := s
			n.n[i].tombs[j] = false
			emit(Step{"", TombEnds, i, j}, n)
		}
	}
}

func (n *votesNode) restarted(now int8) {
	n.life++
	n.up = now
}

// canon removes what can have no effect any more, so that states that only differ in it are equal, and sorts the
// nodes that may lose their data, and the others.
func (m Votes) canon(s votesState) votesState {
	for i := range s.n {
		x := &s.n[i]
		x.up = max(x.up, s.now-m.Wait[0])
		if m.Rule != ByUptime {
			x.up = 0
		}
		if m.Rule != ByRun && !m.Alone {
			x.life = 0
		}
		if !m.floors() {
			x.top = 0
		}
		if s.used[1] >= m.Reloads {
			x.saved = votesSaved{}
		}
		forgets := !m.floors() && i < m.Flaky && (s.used[0] < m.Restarts || s.used[1] < m.Reloads || s.used[2] < m.Flushes)
		for j := range s.o {
			o, v := &s.o[j], &x.of[j]
			if m.Rule == ByRun {
				v.seen = max(v.seen, s.now-m.Wait[j])
			} else if x.record != waits || v.nonce != x.nonce {
				v.nonce, v.seen = -1, 0
			} else {
				v.nonce, v.seen = 1, max(v.seen, s.now-m.Wait[j])
			}
			if o.phase != idle && !forgets && !m.Restores && x.owner != int8(j) && m.floor(x) >= o.fence {
				v.tried = true // the Try would be refused
			}
		}
		if x.record == waits && m.Rule != ByRun {
			x.nonce = 1
		}
	}
	s.nonce = 1
	for j := range s.o {
		o := &s.o[j]
		if o.phase == asking && !m.Elapsed && s.now >= o.sent+m.TTL[j] || o.phase == holding && !m.Late && s.now >= o.deadline {
			s.stop(j, lapsed)
			s.renewing(j)
		}
	}
	slices.SortFunc(s.n[:m.Flaky], compare)
	slices.SortFunc(s.n[m.Flaky:], compare)
	return s
}
