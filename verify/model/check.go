// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package model searches small models of Redlock as hasp builds it for states that must not be, breadth first: every order of
// messages, losses, expiries, restarts and admissions among a few nodes and owners. The algorithm as built is searched until
// nothing is left or a limit is reached; each rule is also removed, and then the search must find a counterexample.
//
// README.md says what is modelled, and proves in words what the search cannot: the same for any number of nodes and owners.
package model

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// Act is what happens in a step, as a sentence: ACTOR is its actor.
type Act string

// The acts.
const (
	// Of owners.
	Propose     Act = "ACTOR begins and proposes fence VALUE"
	Raise       Act = "ACTOR proposes fence VALUE in another round, with Raise"
	Try         Act = "node NODE carries out ACTOR's Try of round VALUE"
	TryAgain    Act = "node NODE gets ACTOR's Try of round VALUE a second time"
	Hold        Act = "ACTOR HOLDS (VALUE)" // by a majority: with the fence VALUE, or until the time VALUE
	Restore     Act = "node NODE carries out ACTOR's Restore"
	SendRestore Act = "ACTOR sends node NODE a Restore"
	Renewing    Act = "ACTOR begins to renew"
	Renew       Act = "node NODE carries out ACTOR's Renew"
	Renewed     Act = "ACTOR's lease is RENEWED (VALUE)" // by a majority, until the time VALUE
	Release     Act = "ACTOR is done and sends Release"
	Released    Act = "node NODE carries out ACTOR's Release"
	Look        Act = "ACTOR sees the record of node NODE" // and times it from here on
	Admit       Act = "ACTOR admits node NODE"
	Answer      Act = "ACTOR has the answer of node NODE to its request VALUE"
	Silent      Act = "ACTOR has no answer of node NODE to its request VALUE"
	Overdue     Act = "ACTOR waits no longer for node NODE to answer its request VALUE"
	Refused     Act = "ACTOR is refused"
	Vanished    Act = "ACTOR does not come back" // was refused, and neither asks again nor releases: its votes are withdrawn
	Send        Act = "ACTOR sends node NODE its Try number VALUE"
	TryLate     Act = "node NODE carries out a Try of ACTOR, which waits for no answer"
	Message     Act = "ACTOR gets the message that it was handed the key with fence VALUE"
	MessageCopy Act = "ACTOR gets the message that it was handed the key with fence VALUE, which will come again"
	Enter       Act = "ACTOR ENTERS (VALUE)" // acts on the message: it holds the key, until the time VALUE
	GiveBack    Act = "node NODE carries out what gives back the handover to ACTOR"

	// Of no owner.
	Tick     Act = "time VALUE"
	Vanish   Act = "node NODE: the key is free" // by expiry, release or a break
	Forget   Act = "node NODE forgets the fences of the key"
	Others   Act = "node NODE: other keys raise its floor to VALUE"
	Restart  Act = "node NODE restarts with nothing"
	Snapshot Act = "node NODE saves a snapshot"
	Reload   Act = "node NODE restarts from its snapshot"
	Flush    Act = "node NODE is flushed"
	Jump     Act = "the clock of node NODE jumps forward by VALUE"
	Expire   Act = "node NODE ends the lease of owner VALUE, which is over" // A is 0
	TombEnds Act = "node NODE forgets that owner VALUE was released"        // A is 0
	Access   Act = "a proposal for another key"
	Grant    Act = "the key is granted" // with a fence larger than all before
	Ask      Act = "a proposal for the key"
	Back     Act = "the clock of node NODE goes back by VALUE"
)

// Step is one step of a counterexample. A node that is not named is -1.
type Step struct {
	Actor string // an owner "A", "B", "C", or "" where no owner acts
	Act   Act
	Node  int
	Value int
}

func (s Step) String() string {
	return strings.NewReplacer("ACTOR", s.Actor, "NODE", strconv.Itoa(s.Node), "VALUE", strconv.Itoa(s.Value)).Replace(string(s.Act))
}

// owner returns the name of the j-th owner.
func owner(j int) string { return string(rune('A' + j)) }

// system is a transition system with states of type S.
type system[S comparable] struct {
	init []S
	// next emits every state that may follow s, with the step that leads there.
	// It is deterministic: the same calls in the same order each time.
	next func(s S, emit func(Step, S))
	// canon returns one state for all that differ only in names; nil: none do.
	canon func(S) S
	// wrong says what is wrong with a state, or "".
	wrong func(S) string
}

// verdict is what is wrong with a state, by its number among verdicts, since states are small; 0: nothing.
type verdict int8

var verdicts = []string{""}

func says(text string) verdict {
	if !slices.Contains(verdicts, text) {
		verdicts = append(verdicts, text)
	}
	return verdict(slices.Index(verdicts, text))
}

// Report is the outcome of a search.
type Report struct {
	States int    // states found; those that differ only in node names count once
	Depth  int    // steps to the farthest of them
	Capped bool   // the search stopped at its limit: nothing is known about what lies beyond
	Wrong  string // what is wrong with the state that Steps lead to; "" if nothing was found
	Steps  []Step // a shortest way there
}

// String lists the steps, and what is wrong in the end.
func (r Report) String() string {
	var b strings.Builder
	for i, s := range r.Steps {
		fmt.Fprintf(&b, "%4d. %s\n", i+1, s)
	}
	return b.String() + "      " + r.Wrong
}

// search visits what can be reached, nearest first, until something is wrong, nothing is left, or limit states were found.
func search[S comparable](sys system[S], limit int) Report {
	if sys.canon == nil {
		sys.canon = func(s S) S { return s }
	}
	v := visited[S]{sys: sys, seen: map[S]struct{}{}}
	for i, s := range sys.init {
		v.add(s, -1, i)
	}
	capped := false
	for depth := 0; ; depth++ {
		level, first := v.fresh, len(v.from)-len(v.fresh)
		v.fresh = nil
		r := Report{States: len(v.from), Depth: depth, Capped: capped}
		for i, s := range level {
			if r.Wrong = sys.wrong(s); r.Wrong != "" {
				r.Steps = v.steps(first + i)
				return r
			}
		}
		if capped {
			return r
		}
		for i, s := range level {
			n := 0
			sys.next(s, func(_ Step, to S) {
				v.add(to, first+i, n)
				n++
			})
			if capped = len(v.from) >= limit; capped {
				break // the states that were found are judged, but what follows them is not known
			}
		}
		if len(v.fresh) == 0 && !capped {
			return r
		}
	}
}

// visited is the states found so far, numbered in the order of finding.
type visited[S comparable] struct {
	sys   system[S]
	seen  map[S]struct{}
	fresh []S    // the newest ones, to be looked at
	from  []edge // by number
}

// edge says how a state was found: as the by-th that may follow state prev, or
// as an initial one (prev is -1). Steps themselves would take too much memory.
type edge struct {
	prev int32
	by   uint16
}

func (v *visited[S]) add(s S, prev, by int) {
	s = v.sys.canon(s)
	if _, ok := v.seen[s]; ok {
		return
	}
	v.seen[s] = struct{}{}
	v.fresh = append(v.fresh, s)
	v.from = append(v.from, edge{int32(prev), uint16(by)})
}

// steps returns the way to a state. A canonical state may number its nodes differently from the state before it, so the way is
// walked once more with the numbers of the first state.
func (v *visited[S]) steps(id int) []Step {
	var way []edge
	for ; id >= 0; id = int(v.from[id].prev) {
		way = append(way, v.from[id])
	}
	slices.Reverse(way)
	named := v.sys.init[way[0].by]
	at := v.sys.canon(named)
	var steps []Step
	for _, e := range way[1:] {
		at = v.follow(at, int(e.by))
		step, to, found := Step{}, named, false
		v.sys.next(named, func(st Step, s S) {
			if !found && v.sys.canon(s) == at {
				step, to, found = st, s, true
			}
		})
		if !found {
			panic("model: canon maps states together that go on differently")
		}
		steps, named = append(steps, step), to
	}
	return steps
}

// follow returns the by-th canonical state that may follow s.
func (v *visited[S]) follow(s S, by int) S {
	n, found := 0, s
	v.sys.next(s, func(_ Step, to S) {
		if n == by {
			found = v.sys.canon(to)
		}
		n++
	})
	return found
}

// walk follows n steps from the initial states, and says what is wrong then. It is fast: so a counterexample that was
// found earlier is confirmed.
func walk[S comparable](sys system[S], n int, is func(k int, s Step) bool) (r Report) {
	at := sys.init
	for k := range n {
		to, steps := map[S]bool{}, map[Step]bool{}
		for _, s := range at {
			sys.next(s, func(by Step, n S) {
				if is(k, by) {
					to[n], steps[by] = true, true
				}
			})
		}
		at = slices.Collect(maps.Keys(to))
		if len(steps) != 1 {
			return Report{} // no such step, or several
		}
		for by := range steps {
			r.Steps = append(r.Steps, by)
		}
	}
	for _, s := range at {
		r.Wrong = cmp.Or(r.Wrong, sys.wrong(s))
	}
	return r
}

// compare orders states, or parts of them: values of bytes alone, without a pointer or a gap.
func compare[T any](a, b T) int { return bytes.Compare(raw(&a), raw(&b)) }

func raw[T any](x *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(x)), unsafe.Sizeof(*x)) }
