// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "cmp"

func sessionCases() []Case {
	with := func(kind Kind, name, about string, m Session) Case {
		m.Owners, m.TTL = cmp.Or(m.Owners, 2), cmp.Or(m.TTL, 2)
		m.Beat = cmp.Or(m.Beat, m.TTL)
		return of(kind, "session/"+name, about, m)
	}
	one, two, each := [2]int8{1}, [2]int8{2}, [2]int8{1, 1}
	return append([]Case{
		with(Safe, "one session", "A's lease is attached to a session, is detached, and again", Session{Sessions: one}),
		with(Safe, "two sessions", "and its driver begins another", Session{Sessions: two}),
		with(Safe, "shorter session", "a session is shorter than a lease", Session{Sessions: one, TTL: 3, Beat: 2}),
		with(Safe, "longer session", "a session is longer than a lease", Session{Sessions: one, TTL: 2, Beat: 3}),
		with(Safe, "a Try twice, fences", "a Try arrives again after the Release, and what attaches a lease names its fence", Session{Sessions: one, Twins: 1, Fenced: true}),
		with(Safe, "begun twice, straight", "what begins the session arrives twice, and no lease counts as attached by a message that was sent before it was extended",
			Session{Sessions: one, Copies: 1, Straight: true}),
		with(Safe, "begun again, straight", "a beat begins the session again when it is over, and likewise", Session{Sessions: one, Reborn: true, Straight: true}),
		with(Safe, "longer", "time has smaller steps", Session{Sessions: one, TTL: 4}).long(),
		with(Safe, "each", "each has a session", Session{Sessions: each}).long(),
		with(Safe, "three owners", "A's driver has two leases", Session{Owners: 3, Sessions: one}).long(),
		with(Safe, "three owners, begun twice, straight", "three owners, and what begins the session arrives twice", Session{Owners: 3, Sessions: one, Copies: 1, Straight: true}).long(),

		with(Refuted, "extended blindly", "an attached lease is extended like another", Session{Sessions: one, Blind: true}),
		with(Refuted, "not heeded", "the answer to a beat is not heeded where it names a lease", Session{Sessions: one, Deaf: true}),
		with(Refuted, "not prolonged", "attaching does not prolong the session", Session{Sessions: one, Short: true}),
		with(Refuted, "no end", "a lease that is detached has no end", Session{Sessions: one, Endless: true}),
		with(Refuted, "early end", "a lease that is detached ends before its session would have", Session{Sessions: one, Early: true}),
		with(Refuted, "from the answer", "a beat counts from when its answer came", Session{Sessions: one, Receipt: true}),
		with(Refuted, "begun again", "a beat begins the session again when it is over", Session{Sessions: one, Reborn: true}),
		with(Refuted, "named once", "a beat tells of a detached lease once", Session{Sessions: one, Once: true}),
		with(Refuted, "forgotten", "a driver forgets a lease when it sends the Release", Session{Sessions: one, Forgets: true}),
		with(Refuted, "ended if attached", "what ends a lease for its driver leaves one that is not attached yet", Session{Sessions: one, Marked: true}),
		with(Refuted, "any session", "a lease counts as attached whatever session its answer names", Session{Sessions: two, Any: true}),
		with(Refuted, "more left", "a lease is attached although it has more left than the session", Session{Sessions: one, TTL: 3, Beat: 2, Longer: true}),
		with(Limit, "a Try twice", "a Try arrives again after the Release, and then what attaches the lease", Session{Sessions: one, Twins: 1}),
		with(Limit, "begun twice", "what begins the session arrives twice, the second time when it is over", Session{Sessions: one, Copies: 1}),
	}, sessionProgress()...)
}

// sessionPast is a state, and what led to it.
type sessionPast struct {
	sessionState
	at     int8 // how much time went by from when A asked until time 0, up to 5
	silent bool // A did nothing more while its lease was attached
}

// sessionProgress shows that beats keep leases, and that who asks for a key is granted it.
func sessionProgress() []Case {
	with := func(kind Kind, name, about string, m Session, good func(sessionPast) bool) Case {
		m.Owners, m.TTL, m.Beat, m.Renewed = 2, 2, 2, 1
		sys := m.system()
		past := system[sessionPast]{
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
			wrong: func(s sessionPast) string {
				if good(s) {
					return "reached: " + about
				}
				return ""
			},
		}
		return Case{Name: "progress/" + name, Kind: kind, About: about, Model: m, search: func(limit int) Report { return search(past, limit) }}
	}
	kept := func(s sessionPast) bool { return s.o[0].phase == holding && s.at+s.now >= 4 }
	return []Case{
		with(Reached, "kept by beats", "A, which extends its lease once, holds when that would have ended", Session{Sessions: [2]int8{1}}, kept),
		with(Blocked, "no session", "without a session it does not", Session{}, kept),
		with(Reached, "silent, detached", "A does nothing more while its lease is attached, and B, which asks for the key, holds, though the session goes on",
			Session{Sessions: [2]int8{1}}, func(s sessionPast) bool { return s.silent && s.o[1].phase == holding && s.kept[0].until > 0 }),
	}
}
