// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// deleteLocks deletes the keys of hasp verify by hand, again and again, until
// stop is called.
func deleteLocks(t *testing.T, server *testserver.Server) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			var keys []string
			iter := rdb.Scan(ctx, 0, "lock:hasp-verify/*/[0-9]", 100).Iterator()
			for iter.Next(ctx) {
				keys = append(keys, iter.Val())
			}
			if len(keys) > 0 {
				_ = rdb.Del(ctx, keys...).Err() // the next round tries again
			}
		}
	})
	return func() { cancel(); wg.Wait(); rdb.Close() }
}

// Locks that are deleted by hand are seen as what they lead to: two holders, and
// leases that end too early.
func TestVerifyFindsTwoHolders(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	defer deleteLocks(t, server)()
	s := newSandbox(t, "redis://"+server.Addr())
	p := s.hasp("verify", "--for", "4", "-o", "json")
	p.ends(1)
	var got struct {
		Findings []string
		Verdict  string
		Code     int
	}
	if err := json.Unmarshal([]byte(p.out.String()), &got); err != nil {
		t.Fatalf("%v in:\n%s", err, p.out.String())
	}
	if got.Verdict != "broken" || got.Code != 1 {
		t.Errorf("the verdict is %s, %d", got.Verdict, got.Code)
	}
	matches(t, strings.Join(got.Findings, "\n"),
		`^two holders of "hasp-verify/\w+/[01]": client \d+ \(pid \d+\) from [0-9:.]+ to [0-9:.]+, and client \d+ \(pid \d+\) from [0-9:.]+$`)
	matches(t, p.err.String(), `^hasp: a rule of locks was broken on the store redis://.*: BROKEN says which, .*\(seed \d+\)$`)
}

// The store goes away in the middle.
func TestVerifyStoreGone(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newSandbox(t, "redis://"+server.Addr())
	p := s.hasp("verify", "--for", "10m")
	p.says("trying")
	server.Kill()
	p.ends(69)
	matches(t, p.err.String(), `^hasp: ended early: the store redis://.* cannot be reached: .*connection refused`)
	matches(t, p.out.String(), `^errors     \d+ (wait or release|waits or releases) failed: unreachable$`)
	if strings.Contains(p.out.String(), "BROKEN") {
		t.Errorf("a store that is gone breaks no rule:\n%s", p.out.String())
	}
}

// A verify that is killed leaves no process behind, also none that it had
// stopped.
func TestVerifyKilled(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("processes are found in /proc")
	}
	s := onRedis(t)
	p := s.hasp("verify", "--for", "10m", "--clients", "4", "--ttl", "1m")
	var workers []int
	if err := eventually(func() bool {
		workers = children(t, p.cmd.Process.Pid)
		return len(workers) == 4
	}); err != nil {
		t.Fatalf("it started %v: %v", workers, err)
	}
	must(t, syscall.Kill(workers[0], syscall.SIGSTOP))
	p.signal(syscall.SIGKILL)
	for _, pid := range workers {
		if err := eventually(func() bool { return !alive(pid) }); err != nil {
			t.Errorf("worker %d lives on", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// children are the live processes that a process has started.
func children(t *testing.T, parent int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil { // it is gone
			continue
		}
		after := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		must(t, err)
		if after[1] == strconv.Itoa(parent) && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}
