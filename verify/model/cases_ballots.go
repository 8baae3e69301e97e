// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

func ballotsCases() []Case {
	with := func(kind Kind, name, about string, m Ballots) Case { return of(kind, "ballots/"+name, about, m) }
	once, twice, fences := [3]int8{1, 1, 1}, [3]int8{2, 1, 1}, [3]int8{1, 2, 3}
	return []Case{
		with(Safe, "two writers", "two owners ask once", Ballots{Modes: "ww", Tries: once, Rounds: 2, Clocks: fences}),
		with(Safe, "a writer and a reader", "one writes, one reads", Ballots{Modes: "wr", Tries: once, Rounds: 2, Clocks: fences}),
		with(Safe, "two readers", "both read", Ballots{Modes: "rr", Tries: once, Rounds: 2, Clocks: fences}),
		with(Safe, "silent owners", "refused owners send nothing more", Ballots{Modes: "wr", Tries: once, Rounds: 2, Clocks: fences, Silent: true}),
		with(Safe, "late", "an answer comes late", Ballots{Modes: "wr", Tries: once, Rounds: 1, Clocks: fences, Late: 1}),
		with(Safe, "twice", "a message arrives twice", Ballots{Modes: "wr", Tries: once, Rounds: 1, Clocks: fences, Duplicates: 1}),
		with(Safe, "late, two rounds", "and there is a second round", Ballots{Modes: "wr", Tries: once, Rounds: 2, Clocks: fences, Late: 1}).long(),
		with(Safe, "twice, two rounds", "and there is a second round", Ballots{Modes: "wr", Tries: once, Rounds: 2, Clocks: fences, Duplicates: 1}).long(),
		with(Safe, "lost", "a request or an answer is lost, or arrives when nobody waits for it", Ballots{Modes: "wr", Tries: once, Rounds: 1, Clocks: fences, Lost: 1}).long(),
		with(Safe, "leaving", "an owner leaves in the middle of a Try", Ballots{Modes: "wr", Tries: once, Rounds: 1, Clocks: fences, Leaves: true}).long(),
		with(Safe, "asking again", "an owner asks again after it was refused", Ballots{Modes: "wr", Tries: twice, Rounds: 2, Clocks: fences}).long(),
		with(Safe, "asking again, clock behind", "whose clock is behind", Ballots{Modes: "ww", Tries: twice, Rounds: 2, Clocks: [3]int8{1, 9, 1}}).long(),
		with(Safe, "a queue", "owners keep the queue node's vote", Ballots{Modes: "ww", Tries: twice, Rounds: 2, Clocks: fences, Queue: true}).long(),
		with(Safe, "asking again, late", "and an answer is late", Ballots{Modes: "wr", Tries: twice, Rounds: 3, Clocks: fences, Late: 1}).long(),
		with(Safe, "leaving, lost", "an owner leaves in the middle of a Try, and a message is lost", Ballots{Modes: "ww", Tries: once, Rounds: 2, Clocks: fences, Leaves: true, Lost: 1}).long(),
		with(Safe, "two readers and a writer", "three owners", Ballots{Modes: "rrw", Tries: once, Rounds: 1, Clocks: fences}).long(),
		with(Safe, "two writers and a reader", "three owners", Ballots{Modes: "wwr", Tries: once, Rounds: 1, Clocks: fences}).long(),
		with(Refuted, "a reader beside a writer", "a node grants a reader beside a writer", Ballots{Modes: "wr", Tries: once, Rounds: 1, Clocks: fences, Beside: 'r'}),
		with(Refuted, "a writer beside a reader", "a node grants a writer beside a reader", Ballots{Modes: "rw", Tries: once, Rounds: 1, Clocks: fences, Beside: 'w'}),
		with(Refuted, "minority", "each owner counts one node", Ballots{Modes: "ww", Tries: once, Rounds: 1, Clocks: fences, Minority: true}),
		with(Refuted, "blunt", "a node withdraws a vote whatever its fence", Ballots{Modes: "ww", Tries: twice, Rounds: 3, Clocks: fences, AnyFence: true}),
		with(Refuted, "old answers", "an answer to an earlier round counts", Ballots{Modes: "ww", Tries: twice, Rounds: 3, Clocks: fences, Old: true, Late: 4}),
		with(Refuted, "forgotten", "the ballot is dropped between two Tries", Ballots{Modes: "ww", Tries: twice, Rounds: 3, Clocks: fences, Forgetful: true}),
		with(Refuted, "settled", "a Release says that every Try was answered", Ballots{Modes: "ww", Tries: once, Rounds: 1, Clocks: fences, Settled: true, Leaves: true, Lost: 1}),
	}
}
