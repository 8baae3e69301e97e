// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulate runs hasp.Clients over package quorum over nodes in memory,
// inside a testing/synctest bubble, through schedules of faults, and judges what
// the clients saw. A minute of it takes milliseconds, so that thousands of
// schedules are played where a campaign on real servers plays a few.
//
// What goes wrong, each by a schedule that follows from a seed:
//
//   - messages, requests and answers apart, are late, lost, overtaken, or arrive
//     twice, also when their caller has long given up; links are cut one way;
//   - nodes restart with nothing, with what they saved some time ago or a moment
//     ago, or with everything; they are flushed, also while they are held back;
//     they stand still and go on;
//   - wall clocks of nodes are wrong, are stepped, and run fast or slow; those of
//     clients are wrong, and with them the fences they propose;
//   - clients stand still for longer than their leases last, and end without a
//     word.
//
// A schedule knows which assumptions of package quorum it breaks, so that each
// verdict is "must hold" or "may break":
//
//   - exclusion: no clock of a node that votes runs or is stepped ahead, within a
//     lease, by more than the drift that hasp gives up;
//   - the order of fences: no node forgets, or no node's clock is ever wrong by
//     more than 3 seconds;
//   - progress: the clocks of most nodes are wrong by 3 seconds at most (those that
//     are further apart accept no common fence), and where some are not, no
//     client's clock is ahead by more than driver.MaxFenceSkew of a node's that is then needed.
//     After the faults every client gets its turn within the wait of a node that
//     is held back and what leases, and messages that are under way, may take beside it;
//   - a key that a majority would grant to a waiter is free for less than a second:
//     no clock is wrong by more than 3 seconds, and no client's is ahead by more than
//     driver.MaxFenceSkew of a node's. 2.4 seconds after a time without a majority, or with
//     a network that loses messages, do not count; nor does a node that handed the
//     key to a place whose owner is gone, or that voted for a waiter which is itself
//     kept from a majority.
//
// The clients of every schedule write, read, and downgrade: two in five of their
// turns share the key to read, and one in three writers only reads from some
// moment on.
//
// What is checked: two clients that may rely on the key by their own clocks at
// one instant, unless both only read; a fence that is not above the fence of a
// hold that was granted before the request was sent (of two that only read, any
// order will do); one fence for two; a register that compares fences and refuses a
// holder whose lease is valid; a turn that does not come; a waiter that could have
// the key, and does not; and what is left when every client was closed, since a
// bubble does not end before its last goroutine.
//
// A seed says which faults are made, and when, and what the network does to the
// n-th message of each link. It does not say all: owners are random, package
// quorum draws its back-off from a source that nobody can seed, goroutines that
// are ready at one instant run in any order, and a lease also counts on the real
// clock of the machine. Played twice, one seed in about forty gives the same
// holds to the nanosecond; a failure shows again in some of twenty replays, or in
// few. Therefore the trace of a run that failed is kept, always.
//
// The first of these takes half an hour on two cores, and writes its table into
// docs/evidence.md:
//
//	make simulate
//	go test ./verify/simulate -run TestSeed -seed=N -kind=mixed -v -count=20
package simulate
