// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

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
	Model any    // Fences, Votes, Again, Ballots, Floor, Handover or Session
	Long  bool   // too large for the short run, at least under the race detector

	search func(limit int) Report
}

// Search looks for something wrong in at most about limit states.
func (c Case) Search(limit int) Report { return c.search(limit) }

// Replays reports whether a counterexample is to be replayed on the real code. Ballots
// runs the real code in the search itself, and replays are of several stores.
func (c Case) Replays() bool {
	switch c.Model.(type) {
	case Ballots, Handover, Session:
		return false
	}
	return c.Kind == Refuted || c.Kind == Limit
}

// Cases returns all searches.
func Cases() []Case {
	var all []Case
	all = append(all, fencesCases()...)
	all = append(all, floorCases()...)
	all = append(all, votesCases()...)
	all = append(all, againCases()...)
	all = append(all, ballotsCases()...)
	all = append(all, handoverCases()...)
	all = append(all, sessionCases()...)
	return append(all, progressCases()...)
}

// Counterexamples searches all cases that must fail and are replayed, and returns the
// traces, which takes some seconds; with long also the cases that the short run skips.
func Counterexamples(long bool) []Trace {
	var traces []Trace
	for _, c := range Cases() {
		if c.Replays() && (long || !c.Long) {
			traces = append(traces, c.trace(c.Search(1<<25)))
		}
	}
	return traces
}

func (c Case) trace(r Report) Trace { return Trace{c.Name, c.About, r.Wrong, c.Model, r.Steps} }

// of makes a Case of a model.
func of[S comparable](kind Kind, name, about string, m interface{ system() system[S] }) Case {
	return Case{Name: name, Kind: kind, About: about, Model: m, search: func(limit int) Report { return search(m.system(), limit) }}
}

func (c Case) long() Case {
	c.Long = true
	return c
}

func fencesCases() []Case {
	with := func(kind Kind, name, about string, m Fences) Case { return of(kind, "fences/"+name, about, m) }
	return []Case{
		with(Safe, "one round", "two owners, each proposes once; messages arrive twice", Fences{Owners: 2, Top: 4, Begun: true, Duplicates: 1, Votes: true}),
		with(Safe, "three owners", "three owners, each proposes once", Fences{Owners: 3, Top: 3, Votes: true}),
		with(Safe, "raise", "each owner may propose once more, with Raise; messages arrive twice", Fences{Owners: 2, Top: 4, Raises: true, Duplicates: 1, Votes: true}),
		with(Safe, "forget", "and nodes forget keys that are free: by time, or in a restart", Fences{Owners: 2, Top: 4, Raises: true, Forget: true, Votes: true}).long(),
		with(Safe, "forget, small", "the same with two numbers", Fences{Owners: 2, Top: 2, Raises: true, Forget: true, Votes: true}),
		with(Safe, "raise left out", "the second proposal is made without Raise: fences may differ, and then there is no majority", Fences{Owners: 2, Top: 3, Raises: true, NoRaise: true, Votes: true}),
		with(Safe, "rows", "each owner asks for two fences at once", Fences{Owners: 2, Top: 5, Raises: true, Block: 2, Votes: true}).long(),
		with(Safe, "rows, small", "the same without a second round", Fences{Owners: 2, Top: 5, Block: 2, Forget: true, Votes: true}),
		with(Safe, "restore", "holders ask for votes with Restore at any time; nodes forget", Fences{Owners: 2, Top: 2, Restores: true, Forget: true, Votes: true}).long(),
		with(Safe, "restore, small", "holders ask for votes with Restore at any time", Fences{Owners: 2, Top: 2, Restores: true, Votes: true}),
		with(Safe, "restore, raise", "the same with a second round", Fences{Owners: 2, Top: 2, Raises: true, Restores: true, Forget: true, Votes: true}).long(),
		with(Safe, "restore, others", "without one, and other keys raise the floors", Fences{Owners: 2, Top: 3, Restores: true, Forget: true, Others: true, Votes: true}).long(),
		with(Safe, "three owners, all", "everything at once, three owners", Fences{Owners: 3, Top: 4, Raises: true, Restores: true, Forget: true, Others: true, Votes: true}).long(),
		with(Safe, "no revival", "without Restore a lease that another's hold interrupted is never confirmed, whatever nodes forget",
			Fences{Owners: 2, Top: 3, Forget: true, Duplicates: 1, Votes: true, Revive: true}),
		with(Safe, "no revival, raise", "the same with a second round", Fences{Owners: 2, Top: 3, Raises: true, Forget: true, Duplicates: 1, Votes: true, Revive: true}).long(),
		with(Safe, "no revival with restore", "nor with Restore, as long as nodes remember the key",
			Fences{Owners: 2, Top: 3, Restores: true, Votes: true, Revive: true}),
		with(Safe, "no revival with restore, raise", "the same with a second round",
			Fences{Owners: 2, Top: 3, Raises: true, Restores: true, Duplicates: 1, Votes: true, Revive: true}).long(),

		with(Refuted, "no comparison", "a free node grants any fence", Fences{Owners: 2, Top: 2, NoCompare: true}),
		with(Refuted, "no floor", "what a node forgets is not covered by a floor", Fences{Owners: 2, Top: 2, Forget: true, NoFloor: true}),
		with(Refuted, "minority", "one vote is enough", Fences{Owners: 2, Top: 2, Minority: true}),
		with(Refuted, "mixed", "votes for different fences are counted together", Fences{Owners: 2, Top: 4, Raises: true, NoRaise: true, Mixed: true}),
		with(Refuted, "listed twice", "one owner's list names a node twice, and its vote counts twice", Fences{Owners: 2, Top: 2, Listed: true}),
		with(Refuted, "echo", "the holder is answered with what it proposes, which the node does not keep", Fences{Owners: 2, Top: 3, Raises: true, Echo: true}),
		with(Refuted, "lowered", "a standing fence becomes what is proposed, even when that is lower, and is all that is remembered",
			Fences{Owners: 2, Top: 4, Raises: true, Lower: true}),
		with(Refuted, "longest row", "a row of fences is as long as the longest that a node granted", Fences{Owners: 2, Top: 4, Block: 2, LongestRow: true}),
		with(Refuted, "row below the floor", "a row of fences may begin below the floor", Fences{Owners: 2, Top: 4, Block: 2, RowUnder: true}),
		with(Refuted, "blind restore", "a Restore is not compared with the fences of the key", Fences{Owners: 2, Top: 2, Restores: true, BlindBack: true, Revive: true}),
		with(Refuted, "old answers", "answers of a round before the latest are counted", Fences{Owners: 2, Top: 3, Raises: true, OldRounds: true, Revive: true}),
		with(Limit, "late restore", "a Restore arrives after a node forgot the key, in a restart or by time, and the lease is confirmed by one who does not know its deadline",
			Fences{Owners: 2, Top: 2, Restores: true, Forget: true, Revive: true}),
	}
}

func floorCases() []Case {
	with := func(kind Kind, name, about string, m Floor) Case { return of(kind, "floor/"+name, about, m) }
	return []Case{
		with(Safe, "a good clock", "whatever is forgotten is covered, and nothing younger than 20 s is", Floor{}),
		with(Safe, "a stepped clock", "the clock is stepped by up to 2 min either way, and fences are forgotten only when a proposal comes", Floor{Steps: 12}),
		with(Refuted, "forgotten early", "fences of a key are forgotten after 30 s", Floor{Short: true}),
		with(Refuted, "two numbers", "a rotation takes the newest number for the floor", Floor{Once: true}),
		with(Refuted, "no double turn", "one rotation only, however long nobody proposed", Floor{Never: true}),
		with(Limit, "a clock that goes and comes back", "the store itself expires what is remembered per key, while its clock is a minute ahead and nobody proposes",
			Floor{Steps: 6, Eager: true}),
	}
}
