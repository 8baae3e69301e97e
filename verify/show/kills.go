// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// kill says which command of a round is killed, and when.
type kill struct {
	victim  int
	holding bool          // count from when its job began, not from the start of the round
	after   time.Duration // counted from there
}

func (k kill) String() string {
	from := "the start of the round"
	if k.holding {
		from = "the start of its job"
	}
	return fmt.Sprintf("hasp of line %d killed %v after %s", k.victim, k.after.Round(100*time.Microsecond), from)
}

// kills runs rounds of 20 lines, in each of which one hasp is killed: alternately at
// any moment of the round, and while it holds the key.
func (w *work) kills(random *rand.Rand) []row {
	exact, unwritten := 0, 0
	var longest time.Duration
	for r := range rounds {
		k := kill{victim: random.IntN(perRound), holding: r%2 == 1}
		span := perRound * w.perLine // about as long as a round takes
		if k.holding {
			span = jobTime
		}
		k.after = time.Duration(random.Int64N(int64(span)))
		lines, gap, err := w.round(r, k)
		if err != nil {
			w.t.Errorf("%s: round %d, %v: %w", w.store.kind, r, k, err)
			continue
		}
		exact++
		longest = max(longest, gap)
		outcome := "its line is written"
		if _, written := lines[strconv.Itoa(k.victim)]; !written {
			unwritten++
			outcome = "its line is missing"
		}
		w.t.Logf("round %2d: %v; %s; longest time between two lines %v", r, k, outcome, gap.Round(time.Millisecond))
	}
	return []row{
		judged(exact == rounds, fmt.Sprintf("%s: rounds of %d lines with one `hasp` killed by -9: only its own line may be missing", w.store.kind, perRound),
			strconv.Itoa(rounds), "%d; it was killed before it wrote in %d", exact, unwritten),
		judged(longest <= killTTL+slowMachine, w.store.kind+": … the longest time between two lines",
			fmt.Sprintf("the TTL of %v, + %v", killTTL, slowMachine), "%v", longest.Round(time.Millisecond)),
	}
}

// round starts 20 commands at once and kills one of them, and adds a line once
// they have ended. It returns the lines in the file, and the longest time
// without a new one.
func (w *work) round(r int, k kill) (map[string]entry, time.Duration, error) {
	file := w.file("kill-" + strconv.Itoa(r))
	var wg sync.WaitGroup
	errs, start := make([]error, perRound), time.Now()
	for i := range perRound {
		cmd := w.command(killTTL, file, strconv.Itoa(i), true)
		began := func() {}
		if i == k.victim && k.holding {
			out, err := cmd.StdoutPipe()
			if err != nil {
				return nil, 0, err
			}
			began = func() { _, _ = out.Read(make([]byte, 1)) } // it fails when the command ended: then there is no job
		}
		if err := cmd.Start(); err != nil {
			return nil, 0, err
		}
		wg.Go(func() {
			if i == k.victim {
				began()
				time.Sleep(k.after)
				_ = cmd.Process.Kill() // fails when it has ended
			}
			errs[i] = cmd.Wait()
		})
	}
	wg.Wait()
	last := w.command(killTTL, file, "last", true) // waits for the killed one, if all others came before it
	if err := last.Run(); err != nil {
		return nil, 0, fmt.Errorf("the line after all others: %w", err)
	}
	lines, err := read(file)
	if err != nil {
		return lines, 0, err
	}
	gap, err := w.missing(start, lines, errs, k.victim)
	return lines, gap, err
}

// missing checks the rule of a round: all commands but the killed one succeeded and
// wrote their line, and the killed one's line may be missing.
func (w *work) missing(start time.Time, lines map[string]entry, errs []error, victim int) (gap time.Duration, err error) {
	for i, err := range errs {
		killed := i == victim && wasKilled(err)
		if err != nil && !killed {
			return 0, fmt.Errorf("line %d: %w", i, err)
		}
		if _, written := lines[strconv.Itoa(i)]; !written && !killed {
			return 0, fmt.Errorf("line %d is lost, and its hasp was not killed", i)
		}
	}
	at := []time.Time{start} // the first to hold the key may be the one
	for _, l := range lines {
		at = append(at, l.at)
	}
	slices.SortFunc(at, time.Time.Compare)
	for i := 1; i < len(at); i++ {
		gap = max(gap, at[i].Sub(at[i-1]))
	}
	return gap, nil
}

// wasKilled reports whether a command was ended by SIGKILL.
func wasKilled(err error) bool {
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
