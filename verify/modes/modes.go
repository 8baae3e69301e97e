// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package modes tries semaphores, LockAll, elections and read-write locks with
// many processes on one store, some of which are killed (kill -9) or stopped
// (SIGSTOP) while they hold keys or wait for them, and judges what they recorded.
//
// Every process reports each step before it goes on, by one clock: a hold is
// valid from when its client learned of it to when it began to release it, or to
// its deadline, whichever is first, and that of a killed process to its deadline
// as last known. internal/history checks what may not overlap; the rest is checked
// here: that the next holder learns of a holder's death, that every process has a turn in
// the end, and that all keys and slots are free then.
package modes

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"time"

	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/verify/engines"
)

// Kind is what the processes do.
type Kind string

// The kinds.
const (
	Semaphore Kind = "semaphore"  // all contend for the slots of one key
	LockAll   Kind = "lock-all"   // each wants several keys at once, drawn at random; some only to read
	Election  Kind = "election"   // all campaign, and observe the leader
	ReadWrite Kind = "read-write" // one in four writes, the others read; writers may downgrade
)

// Options configure a run. Kind, Store and Processes are required.
type Options struct {
	Kind       Kind
	Store      *engines.Store // no other program may use its keys
	Processes  int
	Slots      int           // of the semaphore; 0 means 5
	TTL        time.Duration // 0 means 2 s
	For        time.Duration // of faults
	Kill, Stop bool          // the faults
	Faults     int           // so many of each there are, however long that takes
	Seed       uint64        // of what is drawn; the outcome also depends on timing
	// Patience is how long it may take until all keys are acquired after the faults: 0 means
	// 2 minutes, more than any machine's delay.
	Patience time.Duration
	broken   string // a fault of the store's driver; see faults
}

// manyKeys is the number of keys of LockAll.
const manyKeys = 6

// keys returns the names of the keys that a kind uses.
func (k Kind) keys() (names []string) {
	if k != LockAll {
		return []string{string(k)}
	}
	for i := range manyKeys {
		names = append(names, fmt.Sprintf("%s/%d", k, i))
	}
	return names
}

// Outcome is the result of a run.
type Outcome struct {
	*player.Outcome
	Holding   int // processes that were killed while they held something
	Abandoned int // grants with which a client learned that a previous holder did not release the key
}

// String returns the outcome in one line.
func (o *Outcome) String() string {
	return fmt.Sprintf("%d turns in %v (%d waits cancelled, %d failed, %d lost, %d after one abandoned); %d processes killed, %d of them holders; %d stopped",
		o.Granted, o.Tried.Round(10*time.Millisecond), o.Cancelled, o.Failed, o.Expired, o.Abandoned, o.Killed, o.Holding, o.Stopped)
}

// faultRest is the least time from one fault to the next: a process that is
// killed has to be started again.
const faultRest = 100 * time.Millisecond

// Run runs the processes. The error says why it could not. A program
// that calls it calls WorkerMain first.
func Run(t interface{ Context() context.Context }, o Options) (*Outcome, error) {
	o.Slots, o.TTL, o.Patience = cmp.Or(o.Slots, 5), cmp.Or(o.TTL, 2*time.Second), cmp.Or(o.Patience, 2*time.Minute)
	w := &watcher{o: &o, ctx: t.Context(), seen: map[*player.Member]uint64{}}
	trial := &player.Trial{
		Clients: o.Processes, Keys: o.Kind.keys(), TTL: o.TTL, Seed: o.Seed,
		For: o.For, Kill: o.Kill, Stop: o.Stop, Faults: o.Faults, AtGrant: true, Rest: faultRest, Patience: o.Patience,
		Draw: o.draw, Last: true, Hear: w.hear, Hit: w.hit, Judge: w.judge,
		Client: func(int) (*exec.Cmd, player.Job) { return player.Again(workerEnv), o.job() },
	}
	out, _, err := trial.Run(nil)
	if err == nil && out.Trouble != "" {
		err = fmt.Errorf("the store is gone: %s", out.Trouble)
	}
	return &Outcome{out, w.holding, w.abandoned}, err
}

// longHold: one hold in so many is long.
const longHold = 60

// draw draws what the next turn asks for, and how long it lasts.
func (o *Options) draw(r *rand.Rand) player.Order {
	next := player.Order{Bare: true, Hold: player.Between(r, 0, 4*time.Millisecond)}
	switch n := r.IntN(longHold); {
	case n == 0: // for longer than a renewal takes
		next.Hold = player.Between(r, o.TTL/3, o.TTL*2/3)
	case n < 5:
		next.Hold = player.Between(r, 20*time.Millisecond, 80*time.Millisecond)
	}
	if r.IntN(10) == 0 { // gives up while it waits
		next.Limit = player.Between(r, time.Millisecond, 50*time.Millisecond)
	}
	for _, key := range o.Kind.keys() {
		next.Wants = append(next.Wants, player.Want{Key: key})
	}
	switch o.Kind {
	case Semaphore:
		next.Slots, next.Wants[0].Shared = o.Slots, true
	case Election:
		next.Campaign = true
	case ReadWrite:
		next.Wants[0].Shared = r.IntN(4) > 0
		next.Downgrade = !next.Wants[0].Shared && r.IntN(3) == 0
	case LockAll: // two or three keys, in any order
		r.Shuffle(len(next.Wants), func(i, j int) { next.Wants[i], next.Wants[j] = next.Wants[j], next.Wants[i] })
		next.Wants = next.Wants[:2+r.IntN(2)]
		for i := range next.Wants {
			next.Wants[i].Shared = r.IntN(4) == 0
		}
	}
	return next
}
