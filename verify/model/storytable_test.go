// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model_test

// story says how the code meets a counterexample.
type story struct {
	name string // of the case
	by   string // what prevents it

	stops  []string // every step in which the code, as built, departs from it; none: it is a limit, and comes true
	undo   *undone  // with its safeguard undone it comes true
	other  []string // steps in which the code departs even then, on the way to the same end
	partly []undone // one of two safeguards undone: it does not come true

	elsewhere string // the tests of the same rule, where the player has not what prevents it
}

var stories = []story{
	{name: "fences/no comparison", by: "the node: the fence is too low",
		undo: &undone{around: around(anyFence)}, stops: []string{
			"8. node 0 carries out B's Try of round 1: the fence is too low",
			"9. B HOLDS (1): it has no majority",
		}},
	{name: "fences/no floor", by: "the node: its floor at the admission is above what it forgot",
		undo: &undone{around: around(anyFence)}, stops: []string{
			"9. node 0 carries out B's Try of round 1: the fence is too low",
			"10. B HOLDS (1): it has no majority",
		}},
	{name: "fences/minority", by: "quorum: one vote is no majority",
		undo: &undone{silence: true}, stops: []string{
			"3. A HOLDS (1): it has no majority",
			"6. B HOLDS (1): it has no majority",
		}},
	{name: "fences/mixed", by: "quorum: votes for two fences are not added up",
		undo: &undone{around: around(echoed)}, stops: []string{
			"6. A HOLDS (2): it has no majority",
		}},
	{name: "fences/listed twice", by: "quorum: answers from one run of one node are one vote, and an error",
		undo: &undone{around: hidden}, stops: []string{
			"4. A HOLDS (1): one server is listed twice",
		}},
	{name: "fences/echo", by: "the node: what it answered it keeps",
		undo: &undone{around: around(echoed)}, stops: []string{
			"10. node 0 carries out B's Try of round 1: the fence is too low",
			"11. B HOLDS (2): it has no majority",
		}},
	{name: "fences/lowered", by: "the node: a standing fence and what is remembered do not fall",
		undo: &undone{around: lowers}, stops: []string{
			"10. node 0 carries out B's Try of round 1: the fence is too low",
			"11. B HOLDS (2): it has no majority",
		}},
	{name: "fences/longest row", by: "quorum: a row is as long as the shortest of the majority",
		undo: &undone{longest: true}, stops: []string{
			"9. B HOLDS (2): with a row of 1",
		}},
	{name: "fences/row below the floor", by: "the node: a row begins above the floor",
		undo: &undone{around: around(full)}, stops: []string{
			"9. B HOLDS (2): with a row of 1",
		}},
	{name: "fences/blind restore", by: "the node: a Restore below a later fence of the key is refused",
		undo: &undone{around: around(anyRestore)}, stops: []string{
			"12. node 2 carries out A's Restore: the fence is too low",
			"13. node 2 carries out A's Renew: not held",
		}},
	{name: "fences/old answers", by: "quorum: an answer after its round is no vote",
		undo: &undone{stale: true}, stops: []string{
			"5. A HOLDS (1): it has no majority",
			"11. node 1 carries out A's Renew: there is no lease",
			"14. node 2 carries out A's Renew: there is no lease",
		}},
	{name: "fences/late restore", by: "nothing: a limit, as the model says"},
	{name: "votes/restarted nodes vote", by: "the node: the record is of another run",
		undo: &undone{around: atOnce}, stops: []string{
			"8. node 0 carries out B's Try of round 1: the node does not vote",
			"9. B HOLDS (2): it has no majority",
		}},
	{name: "votes/uptime, step", by: "the node: the record is of another run",
		undo: &undone{around: byUptime}, stops: []string{
			"9. node 0 carries out B's Try of round 1: the node does not vote",
			"10. B HOLDS (2): it has no majority",
		}},
	{name: "votes/uptime, flush", by: "the node: it has no record",
		undo: &undone{around: byUptime}, stops: []string{
			"8. node 0 carries out B's Try of round 1: the node does not vote",
			"9. B HOLDS (2): it has no majority",
		}},
	{name: "votes/run id, flush", by: "the admission: the wait belongs to the record, which is new",
		undo: &undone{around: byUptime}, stops: []string{
			"8. A admits node 0: held back",
			"9. node 0 carries out B's Try of round 1: the node does not vote",
			"10. B HOLDS (2): it has no majority",
		}},
	{name: "votes/record without run id", by: "the node: the record names another run",
		undo: &undone{around: atOnce}, stops: []string{
			"9. node 0 carries out B's Try of round 1: the node does not vote",
			"10. B HOLDS (2): it has no majority",
		}},
	{name: "votes/short wait", by: "the admission: the wait is longer than the longest lease",
		undo: &undone{hasty: true}, stops: []string{
			"10. A admits node 0: held back",
			"11. node 0 carries out B's Try of round 1: the node does not vote",
			"12. B HOLDS (2): it has no majority",
		}},
	{name: "votes/long lease", by: "the node: the TTL is above that of its admission",
		undo: &undone{admitted: 3}, stops: []string{
			"2. node 0 carries out A's Try of round 1: the TTL is too long",
			"3. node 1 carries out A's Try of round 1: the TTL is too long",
			"4. A HOLDS (3): it has no majority",
		}},
	{name: "votes/another longest lease", elsewhere: "quorum TestWaitIsThatOfTheLongestLease"},
	{name: "votes/from the receipt", by: "hasp: a renewal counts from before it was sent",
		undo: &undone{receipt: true}, stops: []string{
			"9. A's lease is RENEWED (3): the lease ends earlier",
		}},
	{name: "votes/time not subtracted", by: "hasp: a Try counts from before it was sent, and is given up after the TTL",
		undo: &undone{receipt: true}, stops: []string{
			"6. A HOLDS (4): the lease ends earlier",
		}},
	{name: "votes/minority", by: "quorum: one node does not renew",
		undo: &undone{silence: true}, stops: []string{
			"8. A's lease is RENEWED (3): it has no majority",
		}},
	{name: "votes/blind restore", by: "the node: as fences/blind restore",
		undo:   &undone{around: around(anyRestore), late: true, sameTime: true, anytime: true},
		partly: []undone{{around: around(anyRestore), anytime: true}, {late: true, sameTime: true, anytime: true}}, stops: []string{
			"11. A sends node 2 a Restore: it was not sent",
			"16. node 2 carries out A's Restore: the fence is too low",
			"17. A's lease is RENEWED (5): the lease is over",
		}},
	{name: "votes/restore at once, late answers", by: "quorum sends no Restore before a majority renewed; hasp: the lease is over at its deadline, whatever is answered later",
		undo: &undone{late: true, anytime: true, sameTime: true}, stops: []string{
			"18. A sends node 0 a Restore: it was not sent",
			"20. A's lease is RENEWED (5): the lease is over",
		}},
	{name: "votes/restore, late answers", by: "the same",
		undo: &undone{late: true, anytime: true, sameTime: true}, stops: []string{
			"6. A sends node 0 a Restore: it was not sent",
			"21. A's lease is RENEWED (5): the lease is over",
		}},
	{name: "votes/no tombstone", by: "the node: it remembers who was released",
		undo: &undone{around: around(noTomb)}, stops: []string{
			"4. node 0 carries out A's Try of round 1: the key is held, or the owner is gone",
		}},
	{name: "votes/clock step", by: "nothing: a limit, as the model says"},
	{name: "again/blunt", by: "the node: a withdrawal leaves a vote with a larger fence (`UpTo`)",
		undo: &undone{around: around(withdrawAny)}, stops: []string{
			"7. node 0 carries out A's Release: not held",
			"8. node 0 carries out B's Try of round 1: the key is held, or the owner is gone",
			"9. B HOLDS (3): it has no majority",
		}},
	{name: "again/stood", by: "quorum: a later Try raises what stands; without that, a vote that is being withdrawn is not counted",
		undo: &undone{around: around(echoed)}, partly: []undone{{noRaise: true}}, stops: []string{
			"7. A HOLDS (1): with fence 2",
			"8. node 0 carries out A's Release: not held",
			"9. node 0 carries out B's Try of round 1: the key is held, or the owner is gone",
			"10. B HOLDS (3): it has no majority",
		}, other: []string{
			"7. A HOLDS (1): with fence 2",
		}},
	{name: "floor/forgotten early", elsewhere: "memdriver TestRememberedFences"},
	{name: "floor/two numbers", elsewhere: "memdriver TestProposalsOvertake"},
	{name: "floor/no double turn", elsewhere: "memdriver TestForgottenKey"},
	{name: "floor/a clock that goes and comes back", elsewhere: "memdriver TestForgottenKey"},
}
