// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/testserver"
)

// singleTTL is longer than any scenario takes, also on a busy machine. The other limits
// follow from it: those of a slow node, and of the second client, which is not granted
// the lock in some scenarios.
const (
	singleTTL     = 40 * time.Second
	singleTimeout = time.Second
	singleLimit   = 8 * time.Second
)

// Single is the effect of one fault of one node: a client holds the lock on nodes
// 0, 1 and 2, and reaches no others; node 2 has a fault; and a client that reaches
// only 2, 3 and 4 tries to acquire the same lock.
type Single struct {
	Library string `json:"library"`
	Fault   Kind   `json:"fault"`  // empty: none
	Two     bool   `json:"two"`    // both hold the lock at once
	Caught  bool   `json:"caught"` // the register refused the first client's write after the second one's
	Why     string `json:"why"`    // why the second client was refused
}

// Singles are the faults of SideBySide; the empty one is no fault.
var Singles = []Kind{"", ClockForward, RestartEmpty, Flush}

// SideBySide compares the effects of single faults on redsync and on hasp.
// Where clocks cannot be faked, that row is left out.
func SideBySide(ctx context.Context) ([]Single, error) {
	var rows []Single
	for _, fault := range Singles {
		if fault == ClockForward && testserver.CanStepClocks() != nil {
			continue
		}
		rows = append(rows, Single{Library: "redsync", Fault: fault}, Single{Library: "hasp", Fault: fault})
	}
	errs := make([]error, len(rows))
	var wg sync.WaitGroup
	for i, r := range rows {
		wg.Go(func() {
			rows[i], errs[i] = testserver.Perform(ctx, func(t *testserver.Program) Single { return single(t, r.Library, r.Fault) })
		})
	}
	wg.Wait()
	return rows, errors.Join(errs...)
}

func single(t *testserver.Program, library string, fault Kind) Single {
	r := &run{t: t, library: library, s: &Schedule{Store: Redlock, MaxTTL: singleTTL}}
	for range nodes {
		r.nodes = append(r.nodes, newNode(t, KeepNothing, fault == ClockForward, nil))
	}
	r.servers = redises(r.nodes)
	t.Must(r.admit())
	for _, i := range []int{0, 1} {
		r.nodes[i].links[1].Refuse()
		r.nodes[4-i].links[0].Refuse()
	}
	var both [2]player.Locks
	for i := range both {
		var err error
		both[i], err = open(r.job(i, singleTimeout), nil)
		t.Must(err)
		defer func() { _ = both[i].Close() }() // a client without its nodes cannot release
	}
	lock := func(i int, limit time.Duration) (player.Lease, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		h, err := player.Acquire(ctx, both[i], &player.Order{Wants: []player.Want{{Key: "k"}}}, singleTTL)
		if err != nil {
			return nil, err
		}
		return h.Leases[0], nil
	}
	first, err := lock(0, hangLimit)
	t.Must(err)
	book := player.NewBook()
	uses := func(l player.Lease, what player.What, value int) *player.Order {
		return book.Add(&player.Member{}, &player.Event{What: what, Key: "k", Fence: l.Fence(), Value: value})
	}
	read1 := uses(first, player.Read, 0)

	switch fault {
	case ClockForward:
		r.nodes[2].clock.Step(time.Minute)
	case "":
	default:
		a := Action{Kind: fault, Part: Begin}
		r.nodes[2].play(a)
		a.Part = End
		r.nodes[2].play(a)
	}
	got := Single{Library: library, Fault: fault}
	limit := singleLimit
	if fault == ClockForward || library == "redsync" && fault != "" {
		limit = hangLimit // it is granted, on a busy machine late
	}
	second, err := lock(1, limit)
	if err != nil {
		got.Why = err.Error()
		return got
	}
	stands := func() bool { return time.Now().Before(first.Deadline()) }
	got.Two = stands()
	read2 := uses(second, player.Read, 0)
	uses(second, player.Write, read2.Value)
	got.Caught = uses(first, player.Write, read1.Value).Refused
	if !stands() {
		t.Must(errors.New("the scenario took longer than the lease"))
	}
	return got
}

// singlesMarkdown writes the table of SideBySide.
func singlesMarkdown(w io.Writer, rows []Single) {
	fmt.Fprintln(w, "| fault of the one node that both clients reach | library | two holders | the stale write |\n|---|---|---|---|")
	for _, r := range rows {
		fault, two, stale := string(r.Fault), "no", "-"
		if fault == "" {
			fault = "none"
		}
		if r.Two {
			two, stale = "**yes**", "accepted: there is no fence"
		}
		if r.Caught {
			stale = "refused, by its fence"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", fault, r.Library, two, stale)
	}
	fmt.Fprintln(w)
}
