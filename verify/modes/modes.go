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
	"fmt"
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
	Kind      Kind
	Store     *engines.Store // no other program may use its keys
	Processes int
	Slots     int           // of the semaphore; 0 means 5
	TTL       time.Duration // 0 means 2 s
	// The run ends when it has lasted For and had this many Turns, this many processes
	// were killed and stopped, and there were turns since.
	For                 time.Duration
	Turns, Kills, Stops int
	Seed                uint64 // of what is drawn; the outcome also depends on timing
	// Patience is how long there may be no turn before that is a finding: 0 means
	// 2 minutes, more than any machine's delay.
	Patience time.Duration
	broken   string // a fault of the store's driver; see faults
}

// manyKeys is the number of keys of LockAll.
const manyKeys = 6

// keys are the names of those that a kind uses.
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
	*player.Book
	Holding   int // processes that were killed while they held something
	Abandoned int // grants whose client learned that a previous holder did not release the key
	Took      time.Duration
	Trouble   string // the error of the last turn that failed
}

// String returns the outcome in one line.
func (o *Outcome) String() string {
	return fmt.Sprintf("%d turns in %v (%d waits cancelled, %d failed, %d lost, %d after one abandoned); %d processes killed, %d of them holders; %d stopped; the last trouble: %s",
		o.Granted, o.Took.Round(10*time.Millisecond), o.Cancelled, o.Failed, o.Expired, o.Abandoned, o.Killed, o.Holding, o.Stopped, cmp.Or(o.Trouble, "none"))
}

// longHold: one hold in so many is long.
const longHold = 60

// between returns a random time.
func (r *run) between(from, to time.Duration) time.Duration {
	return from + time.Duration(r.rand.Int64N(int64(to-from)))
}

// draw draws what the next turn asks for, and how long it lasts. The last turn of a process
// waits until it is granted.
func (r *run) draw(last bool) player.Order {
	o := player.Order{Bare: true, Hold: r.between(0, 4*time.Millisecond)}
	switch n := r.rand.IntN(longHold); {
	case n == 0: // for longer than a renewal takes
		o.Hold = r.between(r.o.TTL/3, r.o.TTL*2/3)
	case n < 5:
		o.Hold = r.between(20*time.Millisecond, 80*time.Millisecond)
	}
	if !last && r.rand.IntN(10) == 0 { // gives up while it waits
		o.Limit = r.between(time.Millisecond, 50*time.Millisecond)
	}
	for _, key := range r.o.Kind.keys() {
		o.Wants = append(o.Wants, player.Want{Key: key})
	}
	switch r.o.Kind {
	case Semaphore:
		o.Slots, o.Wants[0].Shared = r.o.Slots, true
	case Election:
		o.Campaign = true
	case ReadWrite:
		o.Wants[0].Shared = r.rand.IntN(4) > 0
		o.Downgrade = !o.Wants[0].Shared && r.rand.IntN(3) == 0
	case LockAll: // two or three keys, in any order
		r.rand.Shuffle(len(o.Wants), func(i, j int) { o.Wants[i], o.Wants[j] = o.Wants[j], o.Wants[i] })
		o.Wants = o.Wants[:2+r.rand.IntN(2)]
		for i := range o.Wants {
			o.Wants[i].Shared = r.rand.IntN(4) == 0
		}
	}
	return o
}
