// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"
)

// Kind says what a search of a Case must show.
type Kind int

// The kinds.
const (
	Safe    Kind = iota // as hasp is built: nothing may be found
	Refuted             // one rule is removed: a counterexample must be found
	Limit               // an assumption is broken, and hasp promises nothing: likewise
	Reached             // something good must be possible: the search finds it like a violation
	Blocked             // something is impossible: nothing may be found
)

// Case is one search.
type Case struct {
	Name  string
	Kind  Kind
	About string // what is special in it: the rule that is removed, or the faults
	Model any    // Fences, Votes, Ballots, Floor or Handover
	Long  bool   // too large for the short run, at least under the race detector

	// Search looks for something wrong in at most about limit states.
	Search func(limit int) Report
	// Walk follows n steps from the beginning; is knows each.
	Walk func(n int, is func(k int, s Step) bool) Report
}

// Replays reports whether a counterexample is to be replayed on the real code. Ballots
// runs the real code in the search itself, and replays are of several stores.
func (c Case) Replays() bool {
	switch c.Model.(type) {
	case Ballots, Handover:
		return false
	}
	return c.Kind == Refuted || c.Kind == Limit
}

// Cases returns all searches.
func Cases() []Case {
	return slices.Concat(fencesCases(), floorCases(), votesCases(), ballotsCases(),
		handoverCases(), handoverProgress(), progressCases())
}

// of makes a Case of a model; good says what is to be reached, in place of what is wrong.
func of[S comparable](kind Kind, name, about string, m interface{ system() system[S] }, good ...func(S) bool) Case {
	system := func() system[S] {
		sys := m.system()
		for _, reached := range good {
			sys.wrong = func(s S) string {
				if reached(s) {
					return "reached: " + about
				}
				return ""
			}
		}
		return sys
	}
	return Case{
		Name: name, Kind: kind, About: about, Model: m,
		Search: func(limit int) Report { return search(system(), limit) },
		Walk:   func(n int, is func(k int, s Step) bool) Report { return walk(system(), n, is) },
	}
}

func (c Case) long() Case {
	c.Long = true
	return c
}

func fencesCases() []Case {
	return []Case{
		of(Safe, "fences/one round", "two owners, each proposes once; messages arrive twice", Fences{Owners: 2, Top: 4, Begun: true, Duplicates: 1, Votes: true}),
		of(Safe, "fences/three owners", "three owners, each proposes once", Fences{Owners: 3, Top: 3, Votes: true}),
		of(Safe, "fences/raise", "each owner may propose once more, with Raise; messages arrive twice", Fences{Owners: 2, Top: 4, Raises: true, Duplicates: 1, Votes: true}),
		of(Safe, "fences/forget", "and nodes forget keys that are free: by time, or in a restart", Fences{Owners: 2, Top: 4, Raises: true, Forget: true, Votes: true}).long(),
		of(Safe, "fences/forget, small", "the same with two numbers", Fences{Owners: 2, Top: 2, Raises: true, Forget: true, Votes: true}),
		of(Safe, "fences/raise left out", "the second proposal is made without Raise: fences may differ, and then there is no majority", Fences{Owners: 2, Top: 3, Raises: true, NoRaise: true, Votes: true}),
		of(Safe, "fences/rows", "each owner asks for two fences at once", Fences{Owners: 2, Top: 5, Raises: true, Block: 2, Votes: true}).long(),
		of(Safe, "fences/rows, small", "the same without a second round", Fences{Owners: 2, Top: 5, Block: 2, Forget: true, Votes: true}),
		of(Safe, "fences/restore", "holders ask for votes with Restore at any time; nodes forget", Fences{Owners: 2, Top: 2, Restores: true, Forget: true, Votes: true}).long(),
		of(Safe, "fences/restore, small", "holders ask for votes with Restore at any time", Fences{Owners: 2, Top: 2, Restores: true, Votes: true}),
		of(Safe, "fences/restore, raise", "the same with a second round", Fences{Owners: 2, Top: 2, Raises: true, Restores: true, Forget: true, Votes: true}).long(),
		of(Safe, "fences/restore, others", "without one, and other keys raise the floors", Fences{Owners: 2, Top: 3, Restores: true, Forget: true, Others: true, Votes: true}).long(),
		of(Safe, "fences/three owners, all", "everything at once, three owners", Fences{Owners: 3, Top: 4, Raises: true, Restores: true, Forget: true, Others: true, Votes: true}).long(),
		of(Safe, "fences/no revival", "without Restore a lease that another's hold interrupted is never confirmed, whatever nodes forget",
			Fences{Owners: 2, Top: 3, Forget: true, Duplicates: 1, Votes: true, Revive: true}),
		of(Safe, "fences/no revival, raise", "the same with a second round", Fences{Owners: 2, Top: 3, Raises: true, Forget: true, Duplicates: 1, Votes: true, Revive: true}).long(),
		of(Safe, "fences/no revival with restore", "nor with Restore, as long as nodes remember the key",
			Fences{Owners: 2, Top: 3, Restores: true, Votes: true, Revive: true}),
		of(Safe, "fences/no revival with restore, raise", "the same with a second round",
			Fences{Owners: 2, Top: 3, Raises: true, Restores: true, Duplicates: 1, Votes: true, Revive: true}).long(),

		of(Safe, "again/as it should be", "votes are withdrawn up to the fences proposed so far, and the next Try raises standing fences",
			Fences{Owners: 2, Top: 4, Raises: true, Withdraws: true}),
		of(Refuted, "again/blunt", "a vote is withdrawn whatever its fence", Fences{Owners: 2, Top: 3, Raises: true, Withdraws: true, AnyFence: true}),
		of(Refuted, "again/stood", "the next Try is made without Raise, and counts standing votes that are being withdrawn",
			Fences{Owners: 2, Top: 3, Raises: true, Withdraws: true, NoRaise: true}),

		of(Refuted, "fences/no comparison", "a free node grants any fence", Fences{Owners: 2, Top: 2, NoCompare: true}),
		of(Refuted, "fences/no floor", "what a node forgets is not covered by a floor", Fences{Owners: 2, Top: 2, Forget: true, NoFloor: true}),
		of(Refuted, "fences/minority", "one vote is enough", Fences{Owners: 2, Top: 2, Minority: true}),
		of(Refuted, "fences/mixed", "votes for different fences are counted together", Fences{Owners: 2, Top: 4, Raises: true, NoRaise: true, Mixed: true}),
		of(Refuted, "fences/listed twice", "one owner's list names a node twice, and its vote counts twice", Fences{Owners: 2, Top: 2, Listed: true}),
		of(Refuted, "fences/echo", "the holder is answered with what it proposes, which the node does not keep", Fences{Owners: 2, Top: 3, Raises: true, Echo: true}),
		of(Refuted, "fences/lowered", "a standing fence becomes what is proposed, even when that is lower, and is all that is remembered",
			Fences{Owners: 2, Top: 4, Raises: true, Lower: true}),
		of(Refuted, "fences/longest row", "a row of fences is as long as the longest that a node granted", Fences{Owners: 2, Top: 4, Block: 2, LongestRow: true}),
		of(Refuted, "fences/row below the floor", "a row of fences may begin below the floor", Fences{Owners: 2, Top: 4, Block: 2, RowUnder: true}),
		of(Refuted, "fences/blind restore", "a Restore is not compared with the fences of the key", Fences{Owners: 2, Top: 2, Restores: true, BlindBack: true, Revive: true}),
		of(Refuted, "fences/old answers", "answers of a round before the latest are counted", Fences{Owners: 2, Top: 3, Raises: true, OldRounds: true, Revive: true}),
		of(Limit, "fences/late restore", "a Restore arrives after a node forgot the key, in a restart or by time, and the lease is confirmed by an owner that does not know its deadline",
			Fences{Owners: 2, Top: 2, Restores: true, Forget: true, Revive: true}),
	}
}

func floorCases() []Case {
	return []Case{
		of(Safe, "floor/a good clock", "whatever is forgotten is covered, and nothing younger than 20 s is", Floor{}),
		of(Safe, "floor/a stepped clock", "the clock is stepped by up to 2 min either way, and fences are forgotten only when a proposal comes", Floor{Steps: 12}),
		of(Refuted, "floor/forgotten early", "fences of a key are forgotten after 30 s", Floor{Short: true}),
		of(Refuted, "floor/two numbers", "a rotation takes the newest number for the floor", Floor{Once: true}),
		of(Refuted, "floor/no double turn", "one rotation only, however long no owner proposed", Floor{Never: true}),
		of(Limit, "floor/a clock that goes and comes back", "the store itself expires what is remembered per key, while its clock is a minute ahead and no owner proposes",
			Floor{Steps: 6, Eager: true}),
	}
}

func both(x int8) [2]int8 { return [2]int8{x, x} }

func votesCases() []Case {
	first := [2]int8{1, 0}
	return []Case{
		of(Safe, "votes/no fault", "leases that are renewed and released", Votes{TTL: both(2), End: 5, Rounds: both(1), Releases: true}),
		of(Safe, "votes/tombstones", "a Try after its Release is refused while the node remembers that", Votes{TTL: both(2), End: 4, Releases: true, Tombs: true}),
		of(Safe, "votes/unequal TTLs", "one lease is longer", Votes{TTL: [2]int8{3, 2}, End: 5, Flaky: 1, Restarts: 1}),
		of(Safe, "votes/restart", "any one node restarts with nothing", Votes{TTL: both(2), End: 6, Flaky: 3, Restarts: 1}),
		of(Safe, "votes/restart, flush", "a node restarts and is flushed, also while it is held back; nothing is lost when floors are, but for fences",
			Votes{TTL: both(2), End: 6, Flaky: 1, Restarts: 1, Flushes: 1, NoFloor: true}),
		of(Safe, "votes/reload", "a node restarts with an old snapshot", Votes{TTL: both(2), End: 4, Flaky: 1, Reloads: 1}),
		of(Safe, "votes/reload, flush", "and is flushed", Votes{TTL: both(2), End: 5, Flaky: 1, Reloads: 1, Flushes: 1}).long(),
		of(Safe, "votes/three losses", "nodes restart twice and one is flushed, in any order", Votes{TTL: both(2), End: 7, Flaky: 3, Restarts: 2, Flushes: 1}).long(),
		of(Safe, "votes/renewal, restart", "leases that are renewed, and a restart", Votes{TTL: both(2), End: 6, Rounds: both(1), Flaky: 1, Restarts: 1}),
		of(Safe, "votes/restore", "votes are given back after a restart, which count in the next renewal",
			Votes{TTL: both(2), End: 4, Rounds: [2]int8{2, 0}, Restores: true, Flaky: 1, Restarts: 1}),
		of(Safe, "votes/restore, longer", "the same with a restart of any node, both renew", Votes{TTL: both(2), End: 7, Rounds: [2]int8{2, 1}, Restores: true, Flaky: 3, Restarts: 1}).long(),
		of(Safe, "votes/restore, reload, flush", "and an old snapshot, and a flush", Votes{TTL: both(2), End: 6, Rounds: [2]int8{2, 0}, Restores: true, Flaky: 1, Reloads: 1, Flushes: 1}).long(),
		of(Safe, "votes/restore in the same renewal", "votes given back count at once: sound, too, as no answer counts after the deadline",
			Votes{TTL: both(2), End: 6, Rounds: [2]int8{2, 1}, Restores: true, SameTime: true, Flaky: 3, Restarts: 1}).long(),
		of(Safe, "votes/late answers", "answers count after the deadline, too: sound without Restore",
			Votes{TTL: both(3), End: 6, Rounds: [2]int8{2, 0}, Late: true, Flaky: 1, Restarts: 1}).long(),
		of(Safe, "votes/uptime", "nodes vote by their uptime: sound as long as no clock is stepped and no node flushed", Votes{TTL: both(2), End: 6, Flaky: 1, Restarts: 1, Rule: ByUptime}),

		of(Refuted, "votes/restarted nodes vote", "every node votes", Votes{TTL: both(2), End: 4, Flaky: 1, Restarts: 1, Rule: Always}),
		of(Refuted, "votes/uptime, step", "nodes vote by their uptime, and a clock is stepped", Votes{TTL: both(2), End: 4, Flaky: 1, Restarts: 1, Jumps: 1, Rule: ByUptime}),
		of(Refuted, "votes/uptime, flush", "nodes vote by their uptime, and one is flushed", Votes{TTL: both(2), End: 4, Flaky: 1, Flushes: 1, Rule: ByUptime}),
		of(Refuted, "votes/run id, flush", "the wait is timed since a client first saw this run of the node, and the node is flushed", Votes{TTL: both(2), End: 4, Flaky: 1, Flushes: 1, Rule: ByRun}),
		of(Refuted, "votes/record without run id", "the record does not name the run of the node, which restarts with an old snapshot", Votes{TTL: both(2), End: 4, Flaky: 1, Reloads: 1, Rule: ByMark}),
		of(Refuted, "votes/short wait", "the wait is shorter than the longest lease", Votes{TTL: both(2), End: 4, Wait: both(1), Flaky: 1, Restarts: 1}),
		of(Refuted, "votes/long lease", "a node grants a lease that is longer than the longest it was admitted for", Votes{TTL: [2]int8{3, 2}, Max: 2, End: 5, Flaky: 1, Restarts: 1, AnyTTL: true}),
		of(Refuted, "votes/another longest lease", "a client admits a node by a longest lease of its own, shorter than the others'",
			Votes{TTL: [2]int8{3, 2}, Max: 3, Wait: [2]int8{3, 2}, End: 5, Flaky: 1, Restarts: 1}),
		of(Refuted, "votes/from the receipt", "a renewed lease counts from when the answer came", Votes{TTL: both(2), End: 5, Rounds: first, Receipt: true}),
		of(Refuted, "votes/time not subtracted", "a lease counts from when the majority was there", Votes{TTL: both(2), End: 4, Elapsed: true}),
		of(Refuted, "votes/minority", "one node renews a lease", Votes{TTL: both(2), End: 5, Rounds: first, Minority: true}),
		of(Refuted, "votes/blind restore", "a Restore is not compared, votes given back count at once, and after the deadline", Votes{TTL: both(3), End: 4, Rounds: first, Restores: true, SameTime: true, Late: true, Blind: true}),
		of(Refuted, "votes/restore at once, late answers", "votes given back count in the same renewal, and answers after the deadline",
			Votes{TTL: both(3), End: 4, Rounds: first, Restores: true, SameTime: true, Late: true, Flaky: 1, Restarts: 1}).long(),
		of(Refuted, "votes/restore, late answers", "answers count after the deadline, and a Restore of before arrives late",
			Votes{TTL: both(3), End: 4, Rounds: first, Restores: true, Late: true, Flaky: 1, Restarts: 1}).long(),
		of(Refuted, "votes/no tombstone", "a Try is granted after its Release", Votes{TTL: both(2), End: 3, Releases: true, Tombs: true, Forgetful: true}),
		of(Limit, "votes/clock step", "the wall clock of a node that votes is stepped forward", Votes{TTL: both(2), End: 4, Flaky: 1, Jumps: 1}),
	}
}

func ballotsCases() []Case {
	once, twice, fences := [3]int8{1, 1, 1}, [3]int8{2, 1, 1}, [3]int8{1, 2, 3}
	return []Case{
		of(Safe, "ballots/two writers", "two owners ask once", Ballots{Modes: "ww", Tries: once, Rounds: 2, Clocks: fences}),
		of(Safe, "ballots/a writer and a reader", "one writes, one reads", Ballots{Modes: "wr", Tries: once, Rounds: 2, Clocks: fences}),
		of(Safe, "ballots/two readers", "both read", Ballots{Modes: "rr", Tries: once, Rounds: 2, Clocks: fences}),
		of(Safe, "ballots/silent owners", "refused owners send nothing more", Ballots{Modes: "wr", Tries: once, Rounds: 2, Clocks: fences, Silent: true}),
		of(Safe, "ballots/late", "an answer comes late", Ballots{Modes: "wr", Tries: once, Rounds: 1, Clocks: fences, Late: 1}),
		of(Safe, "ballots/twice", "a message arrives twice", Ballots{Modes: "wr", Tries: once, Rounds: 1, Clocks: fences, Duplicates: 1}),
		of(Safe, "ballots/late, two rounds", "and there is a second round", Ballots{Modes: "wr", Tries: once, Rounds: 2, Clocks: fences, Late: 1}).long(),
		of(Safe, "ballots/twice, two rounds", "and there is a second round", Ballots{Modes: "wr", Tries: once, Rounds: 2, Clocks: fences, Duplicates: 1}).long(),
		of(Safe, "ballots/lost", "a request or an answer is lost, or arrives when no owner waits for it", Ballots{Modes: "wr", Tries: once, Rounds: 1, Clocks: fences, Lost: 1}).long(),
		of(Safe, "ballots/leaving", "an owner leaves in the middle of a Try", Ballots{Modes: "wr", Tries: once, Rounds: 1, Clocks: fences, Leaves: true}).long(),
		of(Safe, "ballots/asking again", "an owner asks again after it was refused", Ballots{Modes: "wr", Tries: twice, Rounds: 2, Clocks: fences}).long(),
		of(Safe, "ballots/asking again, clock behind", "whose clock is behind", Ballots{Modes: "ww", Tries: twice, Rounds: 2, Clocks: [3]int8{1, 9, 1}}).long(),
		of(Safe, "ballots/a queue", "owners keep the queue node's vote", Ballots{Modes: "ww", Tries: twice, Rounds: 2, Clocks: fences, Queue: true}).long(),
		of(Safe, "ballots/asking again, late", "and an answer is late", Ballots{Modes: "wr", Tries: twice, Rounds: 3, Clocks: fences, Late: 1}).long(),
		of(Safe, "ballots/leaving, lost", "an owner leaves in the middle of a Try, and a message is lost", Ballots{Modes: "ww", Tries: once, Rounds: 2, Clocks: fences, Leaves: true, Lost: 1}).long(),
		of(Safe, "ballots/two readers and a writer", "three owners", Ballots{Modes: "rrw", Tries: once, Rounds: 1, Clocks: fences}).long(),
		of(Safe, "ballots/two writers and a reader", "three owners", Ballots{Modes: "wwr", Tries: once, Rounds: 1, Clocks: fences}).long(),
		of(Refuted, "ballots/a reader beside a writer", "a node grants a reader beside a writer", Ballots{Modes: "wr", Tries: once, Rounds: 1, Clocks: fences, Beside: 'r'}),
		of(Refuted, "ballots/a writer beside a reader", "a node grants a writer beside a reader", Ballots{Modes: "rw", Tries: once, Rounds: 1, Clocks: fences, Beside: 'w'}),
		of(Refuted, "ballots/minority", "each owner counts one node", Ballots{Modes: "ww", Tries: once, Rounds: 1, Clocks: fences, Minority: true}),
		of(Refuted, "ballots/blunt", "a node withdraws a vote whatever its fence", Ballots{Modes: "ww", Tries: twice, Rounds: 3, Clocks: fences, AnyFence: true}),
		of(Refuted, "ballots/old answers", "an answer to an earlier round counts", Ballots{Modes: "ww", Tries: twice, Rounds: 3, Clocks: fences, Old: true, Late: 4}),
		of(Refuted, "ballots/forgotten", "the ballot is dropped between two Tries", Ballots{Modes: "ww", Tries: twice, Rounds: 3, Clocks: fences, Forgetful: true}),
		of(Refuted, "ballots/settled", "a Release says that every Try was answered", Ballots{Modes: "ww", Tries: once, Rounds: 1, Clocks: fences, Settled: true, Leaves: true, Lost: 1}),
	}
}

func handoverCases() []Case {
	with := func(kind Kind, name, about string, m Handover) Case {
		m.Owners, m.TTL, m.Claim, m.End = cmp.Or(m.Owners, 2), cmp.Or(m.TTL, 2), cmp.Or(m.Claim, 1), cmp.Or(m.End, 3)
		return of(kind, "handover/"+name, about, m)
	}
	once, twice := [3]int8{1, 1, 1}, [3]int8{2, 1}
	return []Case{
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
		with(Refuted, "given back", "a copy of the message finds no waiter, and gives back what its owner entered on", Handover{Tries: once, Copies: 1, Unread: true}),
		with(Refuted, "given back at the end", "the same, and it overtakes the release of a holder that did not finish", Handover{Tries: once, Copies: 1, Fails: true, Drops: true}),
		with(Refuted, "no answer, entered", "an owner enters although a Try of its own had no answer, which says then that it did not", Handover{Tries: twice, End: 2, Silent: 1, Unsure: true}),
		with(Refuted, "entering again", "a place that came back may enter again: the release of what it had before takes away the mark of another",
			Handover{Owners: 3, Tries: once, End: 2, Again: true}).long(),
		with(Refuted, "no mark", "a handover that expires leaves no mark", Handover{Tries: once, NoMark: true}),
		with(Limit, "a Try twice", "a Try of an owner that entered arrives a second time, and says that it did not", Handover{Tries: once, Twins: 1}),
		with(Limit, "clock forward", "the store's clock is set forward", Handover{Tries: once, Jumps: 1}),
	}
}

// handoverProgress shows that owners enter at all.
func handoverProgress() []Case {
	once := Handover{Owners: 2, TTL: 2, Claim: 1, Tries: [3]int8{1, 1}}
	mute, claims, again := once, once, once
	mute.Mute = true
	claims.Renewed, claims.End = 1, 2
	again.Tries, again.End = [3]int8{2, 1}, 2
	left := func(s handoverState) bool {
		return s.o[0].phase == done && s.o[0].entered && s.o[1].phase == holding && s.o[1].entered
	}
	return []Case{
		of(Reached, "progress/entering", "A enters and releases, and B enters before A's lease would have expired", once, left),
		of(Blocked, "progress/no message", "without messages they do not", mute, left),
		of(Reached, "progress/claiming", "A enters, claims, and holds when what it was handed would be over", claims, func(s handoverState) bool {
			return s.o[0].phase == holding && s.o[0].entered && s.now > 0 && s.now < s.o[0].deadline
		}),
		of(Reached, "progress/entering later", "A does not claim the key in time, B enters and releases, and A asks again and enters", again, func(s handoverState) bool {
			return s.o[1].phase == done && s.o[1].entered && s.o[0].phase == holding && s.o[0].entered && s.o[0].fence == 4
		}),
	}
}

// progressCases show that good things are possible at all, because a model in which nothing ever happens is safe, too.
func progressCases() []Case {
	early := func(s votesState) bool { return s.o[1].phase == holding && s.o[0].phase == done && s.now < 2 }
	after := func(s votesState) bool {
		return s.used[0] == 1 && s.o[0].phase == holding && s.n[0].owner == 0 && s.n[1].owner == 0 && s.n[2].owner == noOwner
	}
	rolled := func(s votesState) bool {
		for _, n := range s.n {
			if n.life != 1 || n.record != admitted {
				return false
			}
		}
		return s.o[0].phase == holding && s.now < s.o[0].deadline
	}
	return []Case{
		of(Reached, "progress/release", "B holds before A's lease would have expired", Votes{TTL: both(2), End: 2, Releases: true}, early),
		of(Blocked, "progress/no release", "without releases it does not: releases are needed for this, and for nothing else", Votes{TTL: both(2), End: 2}, early),
		of(Reached, "progress/readmission", "an owner holds with the vote of a node that restarted", Votes{TTL: both(2), End: 4, Flaky: 1, Restarts: 1}, after),
		of(Blocked, "progress/no readmission in time", "but not before the wait is over", Votes{TTL: both(2), End: 1, Flaky: 1, Restarts: 1}, after),
		of(Reached, "progress/rolling restart", "a lease outlives that every node restarts and is admitted again, as votes are given back",
			Votes{TTL: both(2), End: 6, Rounds: [2]int8{5, 0}, Restores: true, Flaky: 3, Restarts: 3, Alone: true}, rolled).long(),
		of(Blocked, "progress/rolling restart without restore", "which it does not where they are not",
			Votes{TTL: both(2), End: 6, Rounds: [2]int8{5, 0}, Flaky: 3, Restarts: 3, Alone: true}, rolled),
	}
}
