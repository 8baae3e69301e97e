// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

var replays = []replay{
	{name: "fences/no comparison", by: "the node: the fence is too low",
		level: byMessages, clients: true, redis: true, undo: &rules{around: around(anyFence)}, stops: []string{
			"8. node 0 carries out B's Try of round 1: the fence is too low",
			"9. B HOLDS (1): it has no majority",
		}},
	{name: "fences/no floor", by: "the node: its floor at the admission is above what it forgot",
		level: byMessages, clients: true, redis: true, undo: &rules{around: around(anyFence)}, stops: []string{
			"9. node 0 carries out B's Try of round 1: the fence is too low",
			"10. B HOLDS (1): it has no majority",
		}},
	{name: "fences/minority", by: "quorum: one vote is no majority",
		level: byClients(1), undo: &rules{silenceCounts: true}, stops: []string{
			"3. A HOLDS (1): 1 of 3 nodes vote",
			"6. B HOLDS (1): it has no majority",
		}},
	{name: "fences/mixed", by: "quorum: votes for two fences are not added up",
		level: byClients(1), undo: &rules{around: around(echoed)}, stops: []string{
			"6. A HOLDS (2): 0 of 3 nodes vote",
		}},
	{name: "fences/listed twice", by: "quorum: answers from one run of one node are one vote, and an error",
		level: byClients(1), undo: &rules{around: hidden}, stops: []string{
			"4. A HOLDS (1): one server is listed twice",
		}},
	{name: "fences/echo", by: "the node: what it answered it keeps",
		level: byMessages, clients: true, redis: true, undo: &rules{around: around(echoed)}, stops: []string{
			"10. node 0 carries out B's Try of round 1: the fence is too low",
			"11. B HOLDS (2): it has no majority",
		}},
	{name: "fences/lowered", by: "the node: a standing fence and what is remembered do not fall",
		level: byMessages, clients: true, redis: true, undo: &rules{around: lowers}, stops: []string{
			"10. node 0 carries out B's Try of round 1: the fence is too low",
			"11. B HOLDS (2): it has no majority",
		}},
	{name: "fences/longest row", by: "quorum: a row is as long as the shortest of the majority",
		level: byClients(1), undo: &rules{longest: true}, stops: []string{
			"9. B HOLDS (2): with a row of 1",
		}},
	{name: "fences/row below the floor", by: "the node: a row begins above the floor",
		level: byMessages, redis: true, undo: &rules{around: around(full)}, stops: []string{
			"8. node 0 carries out B's Try of round 1: a row of 1",
			"9. B HOLDS (2): with a row of 1",
		}},
	{name: "fences/blind restore", by: "the node: a Restore below a later fence of the key is refused",
		level: byMessages, clients: true, redis: true, undo: &rules{around: around(anyRestore)}, stops: []string{
			"12. node 2 carries out A's Restore: the fence is too low",
			"13. node 2 carries out A's Renew: not held",
		}},
	{name: "fences/old answers", by: "quorum: an answer after its round is no vote",
		level: byClients(1), undo: &rules{stale: true}, stops: []string{
			"5. A HOLDS (1): 0 of 3 nodes vote",
			"11. node 1 carries out A's Renew: there is no lease",
			"14. node 2 carries out A's Renew: there is no lease",
		}},
	{name: "fences/late restore", by: "nothing: a limit, as the model says",
		level: byMessages, clients: true, redis: true, whole: "a limit"},
	{name: "votes/restarted nodes vote", by: "the node: the record is of another run",
		level: byMessages, clients: true, redis: true, undo: &rules{around: atOnce}, stops: []string{
			"8. node 0 carries out B's Try of round 1: the node does not vote",
			"9. B HOLDS (2): it has no majority",
		}},
	{name: "votes/uptime, step", by: "the node: the record is of another run",
		level: byMessages, clients: true, undo: &rules{around: byUptime}, stops: []string{
			"9. node 0 carries out B's Try of round 1: the node does not vote",
			"10. B HOLDS (2): it has no majority",
		}},
	{name: "votes/uptime, flush", by: "the node: it has no record",
		level: byMessages, clients: true, redis: true, undo: &rules{around: byUptime}, stops: []string{
			"8. node 0 carries out B's Try of round 1: the node does not vote",
			"9. B HOLDS (2): it has no majority",
		}},
	{name: "votes/run id, flush", by: "the admission: the wait belongs to the record, which is new",
		level: byMessages, clients: true, redis: true, undo: &rules{around: byUptime}, stops: []string{
			"8. A admits node 0: held back",
			"9. node 0 carries out B's Try of round 1: the node does not vote",
			"10. B HOLDS (2): it has no majority",
		}},
	{name: "votes/record without run id", by: "the node: the record names another run",
		level: byMessages, clients: true, redis: true, undo: &rules{around: atOnce}, stops: []string{
			"9. node 0 carries out B's Try of round 1: the node does not vote",
			"10. B HOLDS (2): it has no majority",
		}},
	{name: "votes/short wait", by: "the admission: the wait is longer than the longest lease",
		level: byMessages, undo: &rules{hasty: true}, stops: []string{
			"10. A admits node 0: held back",
			"11. node 0 carries out B's Try of round 1: the node does not vote",
			"12. B HOLDS (2): it has no majority",
		}},
	{name: "votes/long lease", by: "the node: the TTL is above that of its admission",
		level: byMessages, undo: &rules{admitted: 3}, stops: []string{
			"2. node 0 carries out A's Try of round 1: the TTL is too long",
			"3. node 1 carries out A's Try of round 1: the TTL is too long",
			"4. A HOLDS (3): it has no majority",
		}},
	{name: "votes/another longest lease", by: "quorum: the other nodes were admitted for a longer lease",
		level: byClients(1), undo: &rules{around: ownMaxTTL}, stops: []string{
			"10. B admits node 0: held back: others have another longest lease",
			"11. node 0 carries out B's Try of round 1: the node does not vote",
			"13. B HOLDS (4): it has no majority",
		}},
	{name: "votes/from the receipt", by: "hasp: a renewal counts from before it was sent",
		level: byClients(quick), undo: &rules{bare: true, receipt: true}, stops: []string{
			"9. A's lease is RENEWED (3): the lease ends earlier",
		}},
	{name: "votes/time not subtracted", by: "hasp: a Try counts from before it was sent, and is given up after the TTL",
		level: byClients(quick), undo: &rules{bare: true, receipt: true}, partly: []rules{{bare: true}}, stops: []string{
			"6. A HOLDS (4): it has no majority",
		}},
	{name: "votes/minority", by: "quorum: one node does not renew",
		level: byClients(quick), undo: &rules{silenceCounts: true}, stops: []string{
			"8. A's lease is RENEWED (3): it has no majority",
		}},
	{name: "votes/blind restore", by: "the node: as fences/blind restore",
		level: byMessages, undo: &rules{around: around(anyRestore), late: true, sameTime: true}, partly: []rules{{around: around(anyRestore)}, {late: true, sameTime: true}}, stops: []string{
			"16. node 2 carries out A's Restore: the fence is too low",
			"17. A's lease is RENEWED (5): the lease is over",
		}},
	{name: "votes/restore at once, late answers", by: "quorum sends no Restore before a majority renewed; hasp: the lease is lost at its deadline, whatever is answered later",
		level: byClients(quick), undo: &rules{bare: true}, stops: []string{
			"18. A sends node 0 a Restore: it was not sent",
			"20. A's lease is RENEWED (5): the lease is lost",
		}, other: []string{
			"18. A sends node 0 a Restore: it was not sent",
		}},
	{name: "votes/restore, late answers", by: "the same",
		level: byClients(quick), undo: &rules{bare: true}, stops: []string{
			"6. A sends node 0 a Restore: it was not sent",
			"21. A's lease is RENEWED (5): the lease is lost",
		}, other: []string{
			"6. A sends node 0 a Restore: it was not sent",
		}},
	{name: "votes/no tombstone", by: "the node: it remembers who was released",
		level: byMessages, redis: true, undo: &rules{around: around(noTomb)}, stops: []string{
			"4. node 0 carries out A's Try of round 1: the key is held, or the owner is gone",
		}},
	{name: "votes/clock step", by: "nothing: a limit, as the model says",
		level: byClients(1), whole: "a limit"},
	{name: "again/blunt", by: "the node: a withdrawal leaves a vote with a larger fence (`UpTo`)",
		level: byClients(1), undo: &rules{around: around(withdrawAny)}, stops: []string{
			"7. node 0 carries out A's Release: not held",
			"8. node 0 carries out B's Try of round 1: the key is held, or the owner is gone",
			"9. B HOLDS (3): it has no majority",
		}},
	{name: "again/stood", by: "quorum: a later Try raises what stands; without that, a vote that is being withdrawn is not counted",
		level: byClients(1), undo: &rules{around: around(echoed)}, partly: []rules{{noRaise: true}}, stops: []string{
			"7. A HOLDS (1): with fence 2",
			"8. node 0 carries out A's Release: not held",
			"9. node 0 carries out B's Try of round 1: the key is held, or the owner is gone",
			"10. B HOLDS (3): it has no majority",
		}, other: []string{
			"7. A HOLDS (1): with fence 2",
		}},
	{name: "floor/forgotten early", by: "the node: it remembers the key for a minute",
		level: oneNode, undo: &rules{memory: afterHalf}, stops: []string{
			"5. a proposal for the key: the fence is too low",
		}},
	{name: "floor/two numbers", by: "the node: what was granted less than 20 s ago is not covered for other keys",
		level: oneNode, undo: &rules{memory: twoNumbers}, stops: []string{
			"5. a proposal for another key: a proposal as old as the key's would still be granted",
		}},
	{name: "floor/no double turn", by: "the node: two turns when it was idle for long",
		level: oneNode, undo: &rules{memory: oneTurn}, stops: []string{
			"8. a proposal for the key: the fence is too low",
		}},
	{name: "floor/a clock that goes and comes back", by: "in memory the node: it forgets only with a turn. On Redis nothing: a limit",
		level: oneNode, undo: &rules{memory: expires}, stops: []string{
			"5. a proposal for the key: the fence is too low",
		}},
}
