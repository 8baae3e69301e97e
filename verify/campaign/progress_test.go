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
		r := &run{s: &Schedule{}, t: p, patience: 100 * time.Millisecond, over: 1000}
		r.open(func(int) (*exec.Cmd, player.Job) { return exec.Command("sleep", "1000"), player.Job{} })
		f(r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A client that never gets the lock again is found, and a client that gets it late.
func TestProgressIsJudged(t *testing.T) {
	withProcesses(t, func(r *run) {
		got := func(id int, at Mono) {
			r.stage.Do(func() { r.hear(nil, r.stage.All[id], &player.Event{What: player.Granted, At: at}) })
		}
		got(0, r.over+1)
		got(1, r.over-1) // before the faults had ended
		got(2, r.over.Add(recoveryLimit+time.Second))
		late := strings.Join(r.recover(), "\n")
		for _, want := range []string{"client 2 never", "client 3 had the lock only", "client 4 never"} {
			if !strings.Contains(late, want) {
				t.Errorf("found %q, want %q in it", late, want)
			}
		}
		if strings.Contains(late, "client 1") {
			t.Errorf("found %q: client 1 had it in time", late)
		}
	})
}

// A client that does not end is found.
func TestHangIsFound(t *testing.T) {
	withProcesses(t, func(r *run) {
		r.injectClient(Action{Kind: ClientKill, Part: Begin})
		r.stage.Await(time.Minute, func() bool { return r.stage.All[0].Left })
		if hung := r.stopClients(); len(hung) != clients-1 || !strings.Contains(hung[0], "client 2 hangs") {
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
