// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "cmp"

func handoverCases() []Case {
	with := func(kind Kind, name, about string, m Handover) Case {
		m.Owners, m.TTL, m.Claim, m.End = cmp.Or(m.Owners, 2), cmp.Or(m.TTL, 2), cmp.Or(m.Claim, 1), cmp.Or(m.End, 3)
		return of(kind, "handover/"+name, about, m)
	}
	once, twice := [3]int8{1, 1, 1}, [3]int8{2, 1}
	return append([]Case{
		with(Safe, "two owners", "owners enter, claim and release", Handover{Tries: once, Renewed: 1, End: 4}),
		with(Safe, "asking again", "one asks again, also when its handover was not claimed", Handover{Tries: twice}),
		with(Safe, "unfinished", "owners also release what they did not finish", Handover{Tries: once, Renewed: 1, Fails: true}),
		with(Safe, "clock back", "the store's clock is set back", Handover{Tries: once, Backs: 1}),
		with(Safe, "copies", "a message arrives twice", Handover{Tries: once, Copies: 1, Fails: true}),
		with(Safe, "no answer", "a Try has no answer, and is carried out late", Handover{Tries: once, Silent: 1}),
		with(Safe, "Tries twice", "a Try arrives twice: never two owners", Handover{Tries: once, Twins: 1, Untold: true}),
		with(Safe, "longer", "leases are longer", Handover{Tries: once, TTL: 4, Claim: 2, End: 5}),
		with(Safe, "asking again, claims", "one asks again, and they claim", Handover{Tries: twice, Renewed: 1, Fails: true}).long(),
		with(Safe, "asking again, clock back", "and the store's clock is set back", Handover{Tries: twice, Backs: 2}).long(),
		with(Safe, "asking again, no answer", "and a Try has no answer", Handover{Tries: twice, Renewed: 1, Silent: 1}).long(),
		with(Safe, "both ask again", "both ask again", Handover{Tries: [3]int8{2, 2}}).long(),
		with(Safe, "longer, claims", "leases are longer, one asks again, and they claim", Handover{Tries: twice, Renewed: 1, TTL: 4, Claim: 2, End: 6}).long(),
		with(Safe, "all", "the store's clock is set back, a message arrives twice, and a Try has no answer",
			Handover{Tries: twice, Renewed: 1, Backs: 1, Copies: 1, Silent: 1, Fails: true}).long(),
		with(Safe, "three owners", "three owners", Handover{Owners: 3, Tries: once, Renewed: 1}).long(),
		with(Safe, "marks aside", "the rules that are for the mark alone are left out: never two owners",
			Handover{Tries: twice, Renewed: 1, Copies: 1, Silent: 1, Fails: true, Unsure: true, Again: true, Drops: true, NoMark: true, Untold: true}).long(),
		with(Safe, "marks aside, clock back", "and the store's clock is set back",
			Handover{Tries: twice, Backs: 1, Silent: 1, Unsure: true, Again: true, Drops: true, NoMark: true, Untold: true}).long(),

		with(Refuted, "from the receipt", "the lease counts from when the message came", Handover{Tries: once, Receipt: true}),
		with(Refuted, "any fence", "the fence of the refusal is not compared, and the store's clock is set back", Handover{Tries: twice, End: 2, Backs: 1, AnyFence: true}),
		with(Refuted, "given back", "a copy of the message finds nobody waiting, and gives back what its owner entered on", Handover{Tries: once, Copies: 1, Unread: true}),
		with(Refuted, "given back at the end", "the same, and it overtakes the release of one that did not finish", Handover{Tries: once, Copies: 1, Fails: true, Drops: true}),
		with(Refuted, "no answer, entered", "an owner enters although a Try of its own had no answer, which says then that it did not", Handover{Tries: twice, End: 2, Silent: 1, Unsure: true}),
		with(Refuted, "entering again", "a place that came back may enter again: the release of what it had before takes away the mark of another",
			Handover{Owners: 3, Tries: once, End: 2, Again: true}).long(),
		with(Refuted, "no mark", "a handover that expires leaves no mark", Handover{Tries: once, NoMark: true}),
		with(Limit, "a Try twice", "a Try of one that entered arrives a second time, and says that it did not", Handover{Tries: once, Twins: 1}),
		with(Limit, "clock forward", "the store's clock is set forward", Handover{Tries: once, Jumps: 1}),
	}, handoverProgress()...)
}

// handoverProgress shows that owners enter at all.
func handoverProgress() []Case {
	with := func(kind Kind, name, about string, m Handover, good func(handoverState) bool) Case {
		return Case{Name: "progress/" + name, Kind: kind, About: about, Model: m, search: func(limit int) Report {
			sys := m.system()
			sys.wrong = func(s handoverState) string {
				if good(s) {
					return "reached: " + about
				}
				return ""
			}
			return search(sys, limit)
		}}
	}
	once := Handover{Owners: 2, TTL: 2, Claim: 1, Tries: [3]int8{1, 1}}
	mute, claims, again := once, once, once
	mute.Mute = true
	claims.Renewed, claims.End = 1, 2
	again.Tries, again.End = [3]int8{2, 1}, 2
	left := func(s handoverState) bool {
		return s.o[0].phase == done && s.o[0].entered && s.o[1].phase == holding && s.o[1].entered
	}
	return []Case{
		with(Reached, "entering", "A enters and releases, and B enters before A's lease would have expired", once, left),
		with(Blocked, "no message", "without messages they do not", mute, left),
		with(Reached, "claiming", "A enters, claims, and holds when what it was handed would be over", claims, func(s handoverState) bool {
			return s.o[0].phase == holding && s.o[0].entered && s.now > 0 && s.now < s.o[0].deadline
		}),
		with(Reached, "entering later", "A does not claim the key in time, B enters and releases, and A asks again and enters", again, func(s handoverState) bool {
			return s.o[1].phase == done && s.o[1].entered && s.o[0].phase == holding && s.o[0].entered && s.o[0].fence == 4
		}),
	}
}
