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
// here: that the next holder learns of a holder's death, that everybody has a turn in
// the end, and that all keys and slots are free then.
package modes

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/verify/engines"
)

// workerEnv marks a process that is a client.
const workerEnv = "HASP_MODES_WORKER"

// WorkerMain turns this process into a client when it was started as one, and
// does not return then.
func WorkerMain() {
	player.Main(workerEnv, func(in io.Reader, out io.Writer) error {
		return player.Work(in, out, func(j player.Job, observe func(hasp.Event)) (player.Locks, error) {
			return open(j, observe)
		})
	})
}

// Kind is what the processes do.
type Kind string

// The kinds.
const (
	Semaphore Kind = "semaphore"  // all contend for the slots of one key
	LockAll   Kind = "lock-all"   // each wants several keys at once, drawn at random; some only to read
	Election  Kind = "election"   // all campaign, and observe the leader
	ReadWrite Kind = "read-write" // one in four writes, the others read; writers may downgrade
)

// Kinds lists all kinds.
var Kinds = []Kind{Semaphore, LockAll, Election, ReadWrite}

// Options configure a run. Kind, Store and Processes are required.
type Options struct {
	Kind      Kind
	Store     *engines.Store // nobody else may use its keys
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
	broken   string // a fault of the store's driver; see faulty
}

// manyKeys is the number of keys of LockAll.
const manyKeys = 6

// key is the name of the only one that a kind other than LockAll uses.
func (k Kind) key() string { return string(k) }

// keys are the names of those that a kind uses.
func (k Kind) keys() (names []string) {
	if k != LockAll {
		return []string{k.key()}
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
	Most      int // holders of one key at one instant, at most
	Took      time.Duration
	Trouble   string // the error of the last turn that failed
}

// String returns the outcome in one line.
func (o *Outcome) String() string {
	trouble := ""
	if o.Trouble != "" {
		trouble = "; the last trouble: " + o.Trouble
	}
	return fmt.Sprintf("%d turns in %v (%d waits cancelled, %d failed, %d lost, %d after one abandoned, %d holders at once at most); %d processes killed, %d of them holders; %d stopped%s",
		o.Granted, o.Took.Round(10*time.Millisecond), o.Cancelled, o.Failed, o.Expired, o.Abandoned, o.Most, o.Killed, o.Holding, o.Stopped, trouble)
}

// Run runs the processes. The error says why it could not. A program
// that calls it calls WorkerMain first.
func Run(ctx context.Context, o Options) (*Outcome, error) {
	if o.Slots == 0 {
		o.Slots = 5
	}
	if o.TTL == 0 {
		o.TTL = 2 * time.Second
	}
	if o.Patience == 0 {
		o.Patience = 2 * time.Minute
	}
	r := newRun(&o, rand.New(rand.NewPCG(o.Seed, 1)))
	defer r.End()
	var end ending
	r.lost = stall.Watch(&end)
	defer end.run()
	if err := r.play(ctx); err != nil {
		return nil, err
	}
	r.last(ctx)
	return r.judge(time.Since(r.begun)), ctx.Err()
}
