// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

func both(x int8) [2]int8 { return [2]int8{x, x} }

func votesCases() []Case {
	with := func(kind Kind, name, about string, m Votes) Case { return of(kind, "votes/"+name, about, m) }
	first := [2]int8{1, 0}
	return []Case{
		with(Safe, "no fault", "leases that are renewed and released", Votes{TTL: both(2), End: 5, Rounds: both(1), Releases: true}),
		with(Safe, "tombstones", "a Try after its Release is refused while the node remembers that", Votes{TTL: both(2), End: 4, Releases: true, Tombs: true}),
		with(Safe, "unequal TTLs", "one lease is longer", Votes{TTL: [2]int8{3, 2}, End: 5, Flaky: 1, Restarts: 1}),
		with(Safe, "restart", "any one node restarts with nothing", Votes{TTL: both(2), End: 6, Flaky: 3, Restarts: 1}),
		with(Safe, "restart, flush", "a node restarts and is flushed, also while it is held back; nothing is lost when floors are, but for fences",
			Votes{TTL: both(2), End: 6, Flaky: 1, Restarts: 1, Flushes: 1, NoFloor: true}),
		with(Safe, "reload", "a node restarts with an old snapshot", Votes{TTL: both(2), End: 4, Flaky: 1, Reloads: 1}),
		with(Safe, "reload, flush", "and is flushed", Votes{TTL: both(2), End: 5, Flaky: 1, Reloads: 1, Flushes: 1}).long(),
		with(Safe, "three losses", "nodes restart twice and one is flushed, in any order", Votes{TTL: both(2), End: 7, Flaky: 3, Restarts: 2, Flushes: 1}).long(),
		with(Safe, "renewal, restart", "leases that are renewed, and a restart", Votes{TTL: both(2), End: 6, Rounds: both(1), Flaky: 1, Restarts: 1}),
		with(Safe, "restore", "votes are given back after a restart, which count in the next renewal",
			Votes{TTL: both(2), End: 4, Rounds: [2]int8{2, 0}, Restores: true, Flaky: 1, Restarts: 1}),
		with(Safe, "restore, longer", "the same with a restart of any node, both renew", Votes{TTL: both(2), End: 7, Rounds: [2]int8{2, 1}, Restores: true, Flaky: 3, Restarts: 1}).long(),
		with(Safe, "restore, reload, flush", "and an old snapshot, and a flush", Votes{TTL: both(2), End: 6, Rounds: [2]int8{2, 0}, Restores: true, Flaky: 1, Reloads: 1, Flushes: 1}).long(),
		with(Safe, "restore in the same renewal", "votes given back count at once: sound, too, as no answer counts after the deadline",
			Votes{TTL: both(2), End: 6, Rounds: [2]int8{2, 1}, Restores: true, SameTime: true, Flaky: 3, Restarts: 1}).long(),
		with(Safe, "late answers", "answers count after the deadline, too: sound without Restore",
			Votes{TTL: both(3), End: 6, Rounds: [2]int8{2, 0}, Late: true, Flaky: 1, Restarts: 1}).long(),
		with(Safe, "uptime", "nodes vote by their uptime: sound as long as no clock is stepped and no node flushed", Votes{TTL: both(2), End: 6, Flaky: 1, Restarts: 1, Rule: ByUptime}),

		with(Refuted, "restarted nodes vote", "every node votes", Votes{TTL: both(2), End: 4, Flaky: 1, Restarts: 1, Rule: Always}),
		with(Refuted, "uptime, step", "nodes vote by their uptime, and a clock is stepped", Votes{TTL: both(2), End: 4, Flaky: 1, Restarts: 1, Jumps: 1, Rule: ByUptime}),
		with(Refuted, "uptime, flush", "nodes vote by their uptime, and one is flushed", Votes{TTL: both(2), End: 4, Flaky: 1, Flushes: 1, Rule: ByUptime}),
		with(Refuted, "run id, flush", "the wait is timed since a client first saw this run of the node, and the node is flushed", Votes{TTL: both(2), End: 4, Flaky: 1, Flushes: 1, Rule: ByRun}),
		with(Refuted, "record without run id", "the record does not name the run of the node, which restarts with an old snapshot", Votes{TTL: both(2), End: 4, Flaky: 1, Reloads: 1, Rule: ByMark}),
		with(Refuted, "short wait", "the wait is shorter than the longest lease", Votes{TTL: both(2), End: 4, Wait: both(1), Flaky: 1, Restarts: 1}),
		with(Refuted, "long lease", "a node grants a lease that is longer than the longest it was admitted for", Votes{TTL: [2]int8{3, 2}, Max: 2, End: 5, Flaky: 1, Restarts: 1, AnyTTL: true}),
		with(Refuted, "another longest lease", "a client admits a node by a longest lease of its own, shorter than the others'",
			Votes{TTL: [2]int8{3, 2}, Max: 3, Wait: [2]int8{3, 2}, End: 5, Flaky: 1, Restarts: 1}),
		with(Refuted, "from the receipt", "a renewed lease counts from when the answer came", Votes{TTL: both(2), End: 5, Rounds: first, Receipt: true}),
		with(Refuted, "time not subtracted", "a lease counts from when the majority was there", Votes{TTL: both(2), End: 4, Elapsed: true}),
		with(Refuted, "minority", "one node renews a lease", Votes{TTL: both(2), End: 5, Rounds: first, Minority: true}),
		with(Refuted, "blind restore", "a Restore is not compared, votes given back count at once, and after the deadline", Votes{TTL: both(3), End: 4, Rounds: first, Restores: true, SameTime: true, Late: true, Blind: true}),
		with(Refuted, "restore at once, late answers", "votes given back count in the same renewal, and answers after the deadline",
			Votes{TTL: both(3), End: 4, Rounds: first, Restores: true, SameTime: true, Late: true, Flaky: 1, Restarts: 1}).long(),
		with(Refuted, "restore, late answers", "answers count after the deadline, and a Restore of before arrives late",
			Votes{TTL: both(3), End: 4, Rounds: first, Restores: true, Late: true, Flaky: 1, Restarts: 1}).long(),
		with(Refuted, "no tombstone", "a Try is granted after its Release", Votes{TTL: both(2), End: 3, Releases: true, Tombs: true, Forgetful: true}),
		with(Limit, "clock step", "the wall clock of a node that votes is stepped forward", Votes{TTL: both(2), End: 4, Flaky: 1, Jumps: 1}),
	}
}

func againCases() []Case {
	with := func(kind Kind, name, about string, m Again) Case { return of(kind, "again/"+name, about, m) }
	return []Case{
		with(Safe, "as it should be", "votes are withdrawn up to the fences proposed so far, and the next Try raises standing fences", Again{}),
		with(Refuted, "blunt", "a vote is withdrawn whatever its fence", Again{AnyFence: true}),
		with(Refuted, "stood", "the next Try is made without Raise, and counts standing votes that are being withdrawn", Again{Stood: true}),
	}
}

// progressCases show that good things are possible at all, because a model in which
// nothing ever happens is safe, too.
func progressCases() []Case {
	with := func(kind Kind, name, about string, m Votes, good func(votesState) bool) Case {
		return Case{Name: "progress/" + name, Kind: kind, About: about, Model: m, search: func(limit int) Report {
			sys := m.system()
			sys.wrong = func(s votesState) string {
				if good(s) {
					return "reached: " + about
				}
				return ""
			}
			return search(sys, limit)
		}}
	}
	early := func(s votesState) bool { return s.o[1].phase == holding && s.o[0].phase == done && s.now < 2 }
	after := func(s votesState) bool {
		return s.used[0] == 1 && s.o[0].phase == holding && s.n[0].owner == 0 && s.n[1].owner == 0 && s.n[2].owner == nobody
	}
	rolled := func(s votesState) bool {
		for _, n := range s.n {
			if n.life != 1 || n.record != voting {
				return false
			}
		}
		return s.o[0].phase == holding && s.now < s.o[0].deadline
	}
	return []Case{
		with(Reached, "release", "B holds before A's lease would have expired", Votes{TTL: both(2), End: 2, Releases: true}, early),
		with(Blocked, "no release", "without releases it does not: releases are needed for this, and for nothing else", Votes{TTL: both(2), End: 2}, early),
		with(Reached, "readmission", "an owner holds with the vote of a node that restarted", Votes{TTL: both(2), End: 4, Flaky: 1, Restarts: 1}, after),
		with(Blocked, "no readmission in time", "but not before the wait is over", Votes{TTL: both(2), End: 1, Flaky: 1, Restarts: 1}, after),
		with(Reached, "rolling restart", "a lease outlives that every node restarts and is admitted again, as votes are given back",
			Votes{TTL: both(2), End: 6, Rounds: [2]int8{5, 0}, Restores: true, Flaky: 3, Restarts: 3, Lives: true, Alone: true}, rolled).long(),
		with(Blocked, "rolling restart without restore", "which it does not where they are not",
			Votes{TTL: both(2), End: 6, Rounds: [2]int8{5, 0}, Flaky: 3, Restarts: 3, Lives: true, Alone: true}, rolled),
	}
}
