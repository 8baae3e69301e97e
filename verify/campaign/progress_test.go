// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/testserver"
)

// withProcesses runs f with processes that neither report anything nor end.
func withProcesses(t *testing.T, f func(r *run)) {
	t.Helper()
	_, err := testserver.Perform(t.Context(), func(p *testserver.Program) any {
		r := &run{s: &Schedule{}, t: p, log: newJournal(noStall), patience: 100 * time.Millisecond, over: 1000}
		for i := range r.processes {
			m, err := player.Start(i, exec.Command("sleep", "1000"), func(*player.Process, player.Event) {})
			p.Must(err)
			p.Cleanup(m.Kill)
			r.processes[i] = m
		}
		f(r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func noStall() time.Duration { return 0 }

// Who never gets the lock again is found, and who gets it late.
func TestProgressIsJudged(t *testing.T) {
	withProcesses(t, func(r *run) {
		got := func(id int, at Mono) {
			r.log.add(client(id), player.Event{What: player.Granted, At: at})
		}
		got(0, r.over+1)
		got(1, r.over-1) // before the faults had ended
		got(2, r.over.Add(recoveryLimit+time.Second))
		late := strings.Join(r.recover(), "\n")
		for _, want := range []string{"client 1 never", "client 2 had the lock only", "client 3 never"} {
			if !strings.Contains(late, want) {
				t.Errorf("found %q, want %q in it", late, want)
			}
		}
		if strings.Contains(late, "client 0") {
			t.Errorf("found %q: client 0 had it in time", late)
		}
	})
}

// A client that does not end is found.
func TestHangIsFound(t *testing.T) {
	withProcesses(t, func(r *run) {
		r.processes[0].Kill()
		if hung := r.stopClients(); len(hung) != clients-1 || !strings.Contains(hung[0], "client 1 hangs") {
			t.Errorf("found %q", hung)
		}
	})
}

// An interrupted campaign ends what it started, and says so.
func TestInterrupted(t *testing.T) {
	testserver.Require(t, "redis")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rep, err := Run(ctx, Options{Seeds: []uint64{1}})
	if err == nil || len(rep.Outcomes) != 0 {
		t.Errorf("got %+v, %v", rep, err)
	}
}

// A limit that guards against a hang does not count while this process stands still.
func TestLimitAllowsForStalls(t *testing.T) {
	stalls := []time.Duration{time.Millisecond, time.Millisecond}
	r := &run{log: &journal{stalled: func() time.Duration {
		now := stalls[0]
		stalls = stalls[1:]
		return now
	}}}
	limit, stood := time.NewTimer(time.Hour), time.Duration(0)
	if !r.stoodStill(limit, &stood) {
		t.Error("the limit was not prolonged")
	}
	<-limit.C
	if r.stoodStill(limit, &stood) {
		t.Error("the limit was prolonged for nothing")
	}
}
