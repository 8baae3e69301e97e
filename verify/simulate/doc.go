// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulate runs hasp.Clients over package quorum over nodes in memory, inside a testing/synctest bubble, through schedules
// of faults, and judges what the clients saw. A minute of it takes milliseconds, so that thousands of schedules are played where a
// campaign on real servers plays a few.
//
// One schedule in six, by its seed, is of one store alone, without a quorum; its name begins with "lone". There a waiter may enter
// on the message that it was handed the key ([driver.Hint]), which a waiter of a quorum never does. The message has a delay of its
// own; it may be lost, come twice, after the lease that it tells of, or after the next one. Hints may come for no reason.
//
// A schedule is derived from a seed: the faults of nodes and clients are those of [FaultKind], what happens to messages
// is a [Network]'s. Clients' clocks are wrong, too, and with them the fences they propose.
//
// A schedule knows which assumptions of package quorum it breaks, so that each verdict is "must hold" or "may break":
//
//   - exclusion: no clock of a node that votes runs or is stepped ahead, within a lease, by more than the drift that hasp gives
//     up;
//   - the order of fences: no node forgets, or no node's clock is ever wrong by more than 3 seconds;
//   - progress: the clocks of most nodes are wrong by 3 seconds at most (those that are further apart accept no common fence), and
//     where some are not, no client's clock is more than voting.MaxFenceSkew ahead of that of a node that is then needed. After
//     the faults every client acquires the key within the wait of a node that is held back, plus the time that leases and messages
//     in flight may take;
//   - a key that a majority would grant to a waiter is free for less than a second: no clock is wrong by more than 3 seconds, and
//     no client's is more than voting.MaxFenceSkew ahead of a node's. The 2.4 seconds after a time without a majority, or with a
//     network that loses messages, do not count. Nor does a node that handed the key off to an owner that is gone, or that voted
//     for a waiter that cannot get a majority; nor, for a reader, and for a TTL, a writer before it in a queue that cannot get a
//     majority because it is cut off from a node.
//
// One store alone has no node record. So exclusion and the order of fences must hold while it forgets nothing, also over restarts,
// and its clock neither runs nor is stepped ahead, while it is up or down, by more than that drift. Progress must be made whatever
// happens; the bound for a free key holds where no answer to a client is cut off, since an owner that never hears of its grant has
// the key for its TTL.
//
// After the faults of one schedule in four the key is not used for an hour, 13 or 25 hours, 8 or 60 days, once or
// twice. Then every client must be granted it within a second, in the process that it had and in a new one, also with a
// single attempt; where clocks are so far apart that a key may be free for longer (above), in the time that a turn may take.
//
// The clients of every schedule write, read, and downgrade: two in five of their acquisitions are shared, and one writer in three
// downgrades at some point and only reads from then on. One process in three keeps its key for up to two seconds after a write
// ([hasp.LockOptions].Keep), and then takes it again without the nodes.
//
// A seed determines which faults are injected, and when, and what the network does to the n-th message of each link. It does not
// determine everything: owners are random, package quorum draws its back-off from a source that cannot be seeded, goroutines that
// are ready at one instant run in any order, and a lease also counts on the real clock of the machine. A failure shows again in
// some of twenty runs, or in few. Therefore the trace of a failed run is always kept.
//
// The first of these commands takes half an hour on two cores, and writes its table into docs/results/campaigns.md:
//
//	make simulate
//	go test ./verify/simulate -run TestSeed -seed=N -kind=mixed -v -count=20
package simulate
