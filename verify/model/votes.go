// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

// Votes is a model of leases in time: two owners with one acquisition each, and
// nodes that expire leases and lose their data. Time is counted in steps. Messages
// arrive at any later time, or never; a lost message is the same as one that is still
// in flight. The zero value of each rule is what hasp does; setting one removes it.
type Votes struct {
	TTL   [2]int8 // of the owners' leases
	Max   int8    // the longest lease that nodes grant; 0: TTL[0]
	Wait  [2]int8 // how long each owner's client times a record before it admits the node; 0: Max
	End   int8    // the last moment
	Flaky int     // how many nodes may lose their data

	Restarts, Reloads, Flushes, Jumps int8    // how often, in all
	Rounds                            [2]int8 // renewals of the owners' leases
	Restores                          bool    // holders that renew ask for votes with Restore
	Duplicates                        int8    // Try messages that arrive twice
	Alone                             bool    // there is only A
	Lives                             bool    // the runs of nodes are counted, for searches that need it
	Releases                          bool    // owners release: when their attempt fails, and when their lease is over
	Tombs                             bool    // nodes remember releases, for a while

	Rule         Rule // which nodes vote
	AnyTTL       bool // nodes grant leases longer than Max
	Receipt      bool // a renewed lease counts from when the renewal was answered
	Elapsed      bool // a lease counts from when the majority was complete
	Late         bool // a renewal counts when its answers come after the deadline, too
	SameTime     bool // restored votes count in the renewal in which they were restored
	Minority     bool // one vote renews
	NoFloor      bool // what a node forgot is not covered by a floor
	Blind        bool // a Restore is not compared with the fences of the key
	Forgetful    bool // a Try is granted after its Release
	WaitingRenew bool // held back nodes renew their leases
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

const nobody = -1

type votesNode struct {
	owner  int8 // 0 is A; -1 nobody
	until  int8 // when it expires
	key    int8 // the largest fence that is remembered of the key
	top    int8 // the largest fence ever granted: a node that was admitted has a floor that is not below
	record int8 // one of the below
	nonce  int8 // of the record that waits
	life   int8
	up     int8 // since when, by its own clock
	tombs  [2]bool
	saved  votesSaved
}

// votesSaved is a snapshot.
type votesSaved struct {
	there, admitted   bool
	owner, until, key int8
}

const (
	voting = iota
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
	votes    [nodes]ofVote
	stirred  bool // another owner has held since this one did
}

// ofVote is the state of an owner's messages to one node.
type ofVote struct {
	tries    int8 // how often the Try was carried out
	granted  bool
	renewed  int8 // in the current renewal: 1, or 2 if the vote was restored in it
	giving   int8 // a Restore is in flight: 1, or 2 if it was sent in the current renewal
	released bool // the Release was carried out
	nonce    int8 // of the record that its client times, or the life; -1: none
	seen     int8 // since when
}

type votesState struct {
	now        int8
	n          [nodes]votesNode
	o          [2]votesOwner
	used       [4]int8 // restarts, reloads, flushes, jumps
	duplicates int8
	nonce      int8 // the last one
	wrong      int8
}

var votesWrong = []string{
	"",
	"both hold the key at once",
	"a lease was renewed although another held the key in between",
	"a Try that came after its Release was granted, while the node remembered the Release",
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
		s.n[i].owner, s.n[i].up = nobody, -m.Wait[0]
		for j := range s.o {
			s.o[j].begun = -1
			s.o[j].votes[i].nonce = -1
			if m.Rule == ByRun {
				s.o[j].votes[i].nonce, s.o[j].votes[i].seen = 0, -m.Wait[j]
			}
		}
	}
	return system[votesState]{
		init:  []votesState{s},
		next:  m.next,
		canon: m.canon,
		wrong: func(s votesState) string { return votesWrong[s.wrong] },
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
	if n.owner != nobody && n.until <= now {
		n.owner, n.until = nobody, 0
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
	return n.record == voting
}

// decide emits what an owner's client does by itself.
func (m Votes) decide(s votesState, j int, emit func(Step, votesState)) {
	o, who := &s.o[j], owner(j)
	switch o.phase {
	case idle:
		n := s
		n.o[j].phase, n.o[j].sent, n.o[j].fence = asking, s.now, max(s.o[0].fence, s.o[1].fence)+1
		emit(Step{who, Propose, -1, int(n.o[j].fence)}, n)
	case asking:
		granted := 0
		for _, v := range o.votes {
			granted += int(bit(v.granted))
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
					n.wrong = 1
				}
			}
			for i := range n.o[j].votes {
				n.o[j].votes[i].granted = false
			}
			emit(Step{who, Hold, -1, int(deadline)}, n)
		}
	case holding:
		m.renewal(s, j, emit)
	}
	if m.Releases && o.phase != idle && o.phase != done {
		n := s
		n.o[j].stop(done)
		emit(Step{who, Release, -1, 0}, n)
	}
}

// stop makes an owner one that neither holds nor ever will.
func (o *votesOwner) stop(phase int8) {
	*o = votesOwner{phase: phase, fence: o.fence, begun: -1, votes: o.votes}
	for i := range o.votes {
		o.votes[i].granted, o.votes[i].renewed = false, 0
	}
}

// renewal emits what a holder does with its lease.
func (m Votes) renewal(s votesState, j int, emit func(Step, votesState)) {
	o, who := &s.o[j], owner(j)
	if o.rounds < m.Rounds[j] && s.now < o.deadline {
		n := s
		p := &n.o[j]
		p.begun = s.now
		p.rounds++
		for i := range p.votes {
			v := &p.votes[i]
			v.renewed, v.giving = 0, min(v.giving, 1)
		}
		emit(Step{who, Renewing, -1, 0}, n)
	}
	if m.Restores && m.Rounds[j] > 0 && (s.now < o.deadline || m.Late && o.begun >= 0 && s.now < o.begun+m.TTL[j]) {
		for i := range s.n {
			if s.n[i].owner != int8(j) && m.votes(&s, i) && o.votes[i].giving == 0 {
				n := s
				n.o[j].votes[i].giving = 1 + int8(bit(o.begun >= 0))
				emit(Step{who, SendRestore, i, 0}, n)
			}
		}
	}
	if o.begun < 0 || !m.Late && s.now >= o.deadline {
		return
	}
	votes := 0
	for _, v := range o.votes {
		if v.renewed == 1 || v.renewed == 2 && m.SameTime {
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
	for i := range p.votes {
		v := &p.votes[i]
		v.renewed, v.giving = 0, min(v.giving, 1)
	}
	if other := &s.o[1-j]; other.phase == holding && s.now < other.deadline {
		n.wrong = 1
	}
	if o.stirred {
		n.wrong = 2
	}
	emit(Step{who, Renewed, -1, int(p.deadline)}, n)
}
