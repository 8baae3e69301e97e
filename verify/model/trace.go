// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strconv"
	"strings"
)

// Act is what happens in a step.
type Act string

// The acts, with the meaning of a step's Node and Value; a Node that is not
// named is -1.
const (
	// Of owners.
	Propose     Act = "propose"      // begins, and proposes the fence Value to all nodes
	Raise       Act = "raise"        // proposes the larger fence Value to all nodes in another round
	Try         Act = "try"          // the Try of round Value (1, 2) is carried out at Node, and answered
	TryAgain    Act = "again"        // the same message arrives at Node a second time
	Hold        Act = "hold"         // counts a majority: it holds the key, with the fence Value or until the time Value
	Restore     Act = "restore"      // a Try with Restore is carried out at Node
	SendRestore Act = "send-restore" // a Try with Restore is sent to Node
	Renewing    Act = "renewing"     // sends a Renew to all nodes
	Renew       Act = "renew"        // the Renew is carried out at Node
	Renewed     Act = "renewed"      // counts a majority: its lease stands, until the time Value
	Release     Act = "release"      // ends its attempt or its lease, and sends Release to all nodes
	Released    Act = "released"     // the Release is carried out at Node
	Look        Act = "look"         // sees the record of Node, and times it from here on
	Admit       Act = "admit"        // lets Node vote again
	Answer      Act = "answer"       // gets Node's answer to its request number Value
	Silent      Act = "silent"       // has no answer to its request number Value to Node, and will not get one
	Overdue     Act = "overdue"      // no longer waits for Node's answer to its request number Value
	Refused     Act = "refused"      // counts no majority
	Vanished    Act = "vanished"     // was refused, and neither asks again nor releases: its votes are withdrawn
	Send        Act = "send"         // sends its Try number Value to Node
	TryLate     Act = "late"         // a Try is carried out at Node, and its owner waits for no answer
	Message     Act = "message"      // gets the message that it was handed the key with the fence Value
	MessageCopy Act = "message-copy" // gets that message, and it will come again
	Enter       Act = "enter"        // acts on the message: it holds the key, until the time Value
	GiveBack    Act = "give-back"    // what gives back its handover, which nobody waits for, is carried out at Node

	// Of owners whose leases are attached to a session, and of their drivers.
	Attach     Act = "attach"      // what attaches its lease to session Value is carried out at Node
	AttachCopy Act = "attach-copy" // the same, and it will come again
	AttachNot  Act = "attach-not"  // it is carried out while others wait for the key: its session is prolonged, or begins
	Attached   Act = "attached"    // its driver hears that it is attached to session Value
	Marked     Act = "marked"      // hears that its lease is attached, and not extended
	Beating    Act = "beating"     // its driver sends a beat of session Value
	Beat       Act = "beat"        // a beat of its driver's session Value is carried out at Node
	Beaten     Act = "beaten"      // its driver has the answer; Value has a bit for each owner that is named
	Over       Act = "over"        // what ends its lease, which is over, is carried out at Node
	Forgotten  Act = "forgotten"   // its driver has the answer, and forgets the lease
	Detach     Act = "detach"      // somebody has the lease detached from session Value at Node

	// Of no owner.
	Tick     Act = "tick"      // time goes on to Value
	Vanish   Act = "vanish"    // what holds the key at Node ends: by expiry, release or a break
	Forget   Act = "forget"    // Node forgets the fences of this key
	Others   Act = "others"    // fences of other keys raise the floor of Node to Value
	Restart  Act = "restart"   // Node restarts with nothing
	Snapshot Act = "snapshot"  // Node saves what it has
	Reload   Act = "reload"    // Node restarts with what it saved
	Flush    Act = "flush"     // Node loses everything, and runs on
	Jump     Act = "jump"      // the wall clock of Node goes forward by Value
	Expire   Act = "expire"    // Node ends the lease of owner number Value (A is 0), which is over
	TombEnds Act = "tomb-ends" // Node forgets that owner number Value (A is 0) was released
	Access   Act = "access"    // a proposal for another key arrives
	Grant    Act = "grant"     // the key is granted with a fence larger than all before
	Ask      Act = "ask"       // a proposal for the key arrives
	Back     Act = "back"      // the wall clock goes back by Value
)

// Step is one step of a Trace.
type Step struct {
	Actor string // an owner "A", "B", "C", or "" where nobody acts
	Act   Act
	Node  int
	Value int
}

var texts = map[Act]string{
	Propose:     "WHO begins and proposes fence VALUE",
	Raise:       "WHO proposes fence VALUE in another round, with Raise",
	Try:         "node NODE carries out WHO's Try of round VALUE",
	TryAgain:    "node NODE gets WHO's Try of round VALUE a second time",
	Hold:        "WHO HOLDS (VALUE)",
	Restore:     "node NODE carries out WHO's Restore",
	SendRestore: "WHO sends node NODE a Restore",
	Renewing:    "WHO begins to renew",
	Renew:       "node NODE carries out WHO's Renew",
	Renewed:     "WHO's lease is RENEWED (VALUE)",
	Release:     "WHO is done and sends Release",
	Released:    "node NODE carries out WHO's Release",
	Look:        "WHO sees the record of node NODE",
	Admit:       "WHO admits node NODE",
	Answer:      "WHO has the answer of node NODE to its request VALUE",
	Silent:      "WHO has no answer of node NODE to its request VALUE",
	Overdue:     "WHO waits no longer for node NODE to answer its request VALUE",
	Refused:     "WHO is refused",
	Vanished:    "WHO does not come back",
	Send:        "WHO sends node NODE its Try number VALUE",
	TryLate:     "node NODE carries out a Try of WHO, which waits for no answer",
	Message:     "WHO gets the message that it was handed the key with fence VALUE",
	MessageCopy: "WHO gets the message that it was handed the key with fence VALUE, which will come again",
	Enter:       "WHO ENTERS (VALUE)",
	GiveBack:    "node NODE carries out what gives back the handover to WHO",
	Attach:      "node NODE carries out what attaches WHO's lease to session VALUE",
	AttachCopy:  "node NODE carries out what attaches WHO's lease to session VALUE, which will come again",
	AttachNot:   "node NODE carries out what attaches WHO's lease to session VALUE, which is waited for: only the session is prolonged",
	Attached:    "WHO's driver hears that its lease is ATTACHED to session VALUE",
	Marked:      "WHO hears that its lease is attached, and is not extended",
	Beating:     "WHO's driver sends a beat of session VALUE",
	Beat:        "node NODE carries out a beat of WHO's session VALUE",
	Beaten:      "WHO's driver has the answer to a beat",
	Over:        "node NODE carries out what ends WHO's lease for its driver",
	Forgotten:   "WHO's driver forgets the lease",
	Detach:      "node NODE detaches the lease from session VALUE",
	Tick:        "time VALUE",
	Vanish:      "node NODE: the key is free",
	Forget:      "node NODE forgets the fences of the key",
	Others:      "node NODE: other keys raise its floor to VALUE",
	Restart:     "node NODE restarts with nothing",
	Snapshot:    "node NODE saves a snapshot",
	Reload:      "node NODE restarts from its snapshot",
	Flush:       "node NODE is flushed",
	Jump:        "the clock of node NODE jumps forward by VALUE",
	Expire:      "node NODE ends the lease of owner VALUE, which is over",
	TombEnds:    "node NODE forgets that owner VALUE was released",
	Access:      "a proposal for another key",
	Grant:       "the key is granted",
	Ask:         "a proposal for the key",
	Back:        "the clock of node NODE goes back by VALUE",
}

// String describes a step.
func (s Step) String() string {
	w := texts[s.Act]
	if w == "" {
		return string(s.Act)
	}
	return strings.NewReplacer("WHO", s.Actor, "NODE", strconv.Itoa(s.Node), "VALUE", strconv.Itoa(s.Value)).Replace(w)
}

// Trace is a counterexample: what goes wrong without a rule.
type Trace struct {
	Name  string // of the Case
	Rule  string // the rule that was removed, or the assumption that was broken
	Wrong string // what is wrong in the end
	Model any    // Fences, Votes, Again, Ballots, Floor, Handover or Session: what was searched
	Steps []Step
}

// String describes the trace, with a line for each step.
func (t Trace) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", t.Name, t.Rule)
	for i, s := range t.Steps {
		fmt.Fprintf(&b, "%4d. %s\n", i+1, s)
	}
	fmt.Fprintf(&b, "      %s\n", t.Wrong)
	return b.String()
}

// owner returns the name of the j-th owner.
func owner(j int) string { return string(rune('A' + j)) }
