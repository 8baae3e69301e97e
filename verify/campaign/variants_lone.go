// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"time"

	"github.com/hasplock/hasp/verify/broken"
)

// loneVariants are hasp on one server with a safeguard removed.
var loneVariants = []*variant{
	{name: "renewals counted from the answer", whole: broken.LateRenew, plan: slowLinks, oracle: TimelyEnd},
	{name: "leases without drift", whole: broken.NoDrift, plan: calm, oracle: TimelyEnd},
	{name: "who enters counts from when the message came", whole: broken.LateEnter, plan: slowHandoffs, oracle: TimelyEnd},
	{name: "renewals without an answer count", whole: broken.AssumeRenewed, plan: cutOff, oracle: TimelyEnd},
	{name: "a release that compares nothing", node: broken.BlindRelease, plan: impatient, oracle: Exclusion},
	{name: "no hints", whole: broken.NoHints, plan: unheard, oracle: Idle},
}

// scripted returns a schedule of some faults, of at least two seconds.
func scripted(actions ...Action) *Schedule {
	return &Schedule{Store: Redis, MaxTTL: time.Second, Keep: [nodes]Persistence{KeepNothing}, Strict: true, Long: 12,
		Actions: append(actions, noop(2*time.Second))}
}

// noop is an action without effect.
func noop(at time.Duration) Action { return Action{At: at, Kind: ResetLinks, Part: Prepare} }

func calm() *Schedule { return scripted() }

// unheard: a waiter that hears nothing asks once in a third of its TTL, and that must be long beside what a slow machine
// takes, which the oracle subtracts.
func unheard() *Schedule {
	s := scripted(noop(3 * time.Second))
	s.MaxTTL, s.Longest = 6*time.Second, 3*time.Second
	return s
}

// linkFault returns the actions of a fault of some clients' links.
func linkFault(k Kind, from, to, by time.Duration, of ...int) (all []Action) {
	for _, c := range of {
		all = append(all, Action{At: from, Kind: k, Part: Begin, Nodes: []int{0}, Client: c, By: by})
	}
	for _, c := range of {
		all = append(all, Action{At: to, Kind: k, Part: End, Nodes: []int{0}, Client: c})
	}
	return all
}

// slowLinks: round trips of 200 ms, and holds of several renewals.
func slowLinks() *Schedule {
	s := scripted(linkFault(Delay, 0, 2*time.Second, 200*time.Millisecond, 0, 1, 2, 3)...)
	s.Long = 1
	return s
}

// slowHandoffs: round trips of 100 ms, and short holds of many waiters.
func slowHandoffs() *Schedule {
	return scripted(linkFault(Delay, 0, 6*time.Second, 50*time.Millisecond, 0, 1, 2, 3)...)
}

// cutOff: holders of long leases are cut off.
func cutOff() *Schedule {
	s := scripted(linkFault(Partition, 0, 1500*time.Millisecond, 0, 0, 1, 2, 3)...)
	s.Long = 1
	return s
}

// impatient: long holds, and waiters that give up.
func impatient() *Schedule {
	s := scripted(noop(6 * time.Second))
	s.Long, s.Hasty = 3, true
	return s
}
