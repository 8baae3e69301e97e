// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strconv"
	"strings"
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
