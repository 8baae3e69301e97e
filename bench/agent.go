// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/pipe"
)

// s17 is clients of hasp agent that die. A variant's n is how many keys each of them holds.
var s17 = scenario{
	name: "s17",
	metrics: []metric{
		{"p50", "p50", seconds, lower, true},
		{"p99", "p99", seconds, lower, true},
		{"longest", "longest", seconds, lower, false},
	},
	variants: []variant{{"1 key", 1}, {"1,000 keys", 1000}},
	own:      agentPeers,
	rounds:   1, // of so many kills
	run:      runAgentKills,
	bars: []bar{
		within("hasp", "Redis: p99 at most 5 ms", 1, "p99", most(0.005)),
		within("hasp (stdio)", "the same of an agent on a pipe", 1, "p99", most(0.005)),
		within("hasp (SQLite)", "SQLite: p99 at most 5 ms", 1, "p99", most(0.005)),
		within("hasp (etcd)", "etcd: p99 at most 15 ms", 1, "p99", most(0.015)),
		within("hasp (ZooKeeper)", "ZooKeeper: p99 at most 15 ms", 1, "p99", most(0.015)),
		within("hasp (PostgreSQL)", "PostgreSQL: p99 at most 15 ms", 1, "p99", most(0.015)),
		within("hasp (MariaDB)", "MariaDB: p99 at most 15 ms", 1, "p99", most(0.015)),
		within("hasp", "1,000 keys of a client on Redis: all have the next holder within 50 ms", 1000, "p99", most(0.05)),
	},
}

// agentPeers are the stores of an agent. command returns its URL, and for a pipe that of the client's own.
var agentPeers = []*peer{
	agentOn("hasp", "hasp agent --listen, on Redis", onRedis, func(e *env, _ string) string { return "redis://" + e.Redis[0] }),
	agentOn("hasp (stdio)", "hasp agent --stdio, on Redis, for each client that dies; the waiters have one on a socket", onRedis, func(e *env, _ string) string { return "redis://" + e.Redis[0] }),
	agentOn("hasp (SQLite)", "hasp agent --listen, on a file in the folder for temporary files", onFile, func(_ *env, dir string) string { return "sqlite:" + dir + "/agent.db" }),
	agentOn("hasp (etcd)", "hasp agent --listen, on etcd", onEtcd, func(e *env, _ string) string { return "etcd://" + e.Etcd }),
	agentOn("hasp (ZooKeeper)", "hasp agent --listen, on ZooKeeper", onZooKeeper, func(e *env, _ string) string { return "zk://" + e.ZooKeeper + "/agent" }),
	agentOn("hasp (PostgreSQL)", "hasp agent --listen, on PostgreSQL, with its fsync", onRedis, func(e *env, _ string) string {
		return "postgres://postgres@" + testserver.Postgres(e.t, "fsync=on", "synchronous_commit=on", "full_page_writes=on").Addr() + "/postgres?sslmode=disable"
	}),
	agentOn("hasp (MariaDB)", "hasp agent --listen, on MariaDB", onRedis, func(e *env, _ string) string {
		return "mysql://root@" + testserver.MariaDB(e.t).Addr() + "/mysql"
	}),
}

func agentOn(name, config string, on store, url func(e *env, dir string) string) *peer {
	return &peer{name: name, config: config, on: on, open: openAgent, command: func(e *env, dir string) []string { return []string{url(e, dir)} }}
}

// piped is a client of an agent.
type piped struct{ *pipe.Client }

// openAgent connects to the agent of a target, or starts one of its own.
func openAgent(ctx context.Context, to target) (locker, error) {
	if len(to.Agent) == 1 {
		c, err := pipe.Dial(ctx, to.Agent[0], "bench", 0)
		return piped{c}, err
	}
	cmd := exec.Command(to.Agent[0], to.Agent[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c, err := pipe.NewClient(ctx, struct {
		io.Reader
		io.WriteCloser
	}{out, in}, "bench", 0)
	return piped{c}, err
}

func (p piped) Lock(ctx context.Context, key string) (unlock, error) {
	l, err := p.Client.Lock(ctx, pipe.LockParams{Key: key})
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return l.Release() }, nil
}

// holdManyInChild holds n keys, "n/…", until it is killed.
func holdManyInChild(l locker, key string, in *json.Decoder, say func(report) error) error {
	n, err := strconv.Atoi(filepath.Dir(key))
	if err != nil {
		return err
	}
	if err := many(n, func(i int) error {
		_, err := l.Lock(context.Background(), fmt.Sprintf("%s/%d", key, i))
		return err
	}); err != nil {
		return err
	}
	if err := say(report{}); err != nil {
		return err
	}
	return in.Decode(new(any))
}

// enough ends the kills of a store that is slow: with 1,000 keys each asks a database for thousands of durable commits.
const enough = 2 * time.Minute

func runAgentKills(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
	url := p.command(e, e.dir)[0]
	hasp := filepath.Join(e.dir, "hasp")
	to := e.target
	to.Agent = []string{"unix:" + filepath.Join(e.dir, "agent.sock")}
	agent := exec.CommandContext(ctx, hasp, "agent", "--store", url, "--listen", to.Agent[0])
	if p.name == "hasp (PostgreSQL)" || p.name == "hasp (MariaDB)" {
		if out, err := exec.CommandContext(ctx, hasp, "init", "--store", url).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("hasp init: %w\n%s", err, out)
		}
	}
	if err := agent.Start(); err != nil {
		return nil, err
	}
	defer func() { _ = agent.Process.Kill(); _ = agent.Wait() }()
	waiter, err := dialAgent(ctx, to.Agent[0])
	if err != nil {
		return nil, err
	}
	defer waiter.Kill()
	holds := to
	if p.name == "hasp (stdio)" {
		holds.Agent = []string{hasp, "agent", "--stdio", "--store", url}
	}
	kills := max(3, int(1000*e.pace)/v.n)
	if v.n > 1 {
		kills = max(1, int(10*e.pace))
	}
	var times hist
	for i, began := 0, time.Now(); i < kills && time.Since(began) < enough; i++ {
		took, err := killClient(ctx, p, holds, waiter, fmt.Sprintf("%d/%d", v.n, i), v.n)
		if err != nil {
			return nil, err
		}
		times.add(took)
	}
	return figures{"p50": times.quantile(0.5), "p99": times.quantile(0.99), "longest": times.longest.Seconds()}, nil
}

// dialAgent connects once the agent listens.
func dialAgent(ctx context.Context, addr string) (*pipe.Client, error) {
	for {
		c, err := pipe.Dial(ctx, addr, "bench", 0)
		if err == nil {
			return c, nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// killClient has a process hold n keys, waits for them all, kills it, and returns how long after that the last of them was granted.
func killClient(ctx context.Context, p *peer, to target, waiter *pipe.Client, key string, n int) (time.Duration, error) {
	holder, err := task{"hold many", p.name, to, key}.start(ctx)
	if err != nil {
		return 0, err
	}
	defer holder.Kill() // in case of an error
	type granted struct {
		*pipe.Lease
		err error
	}
	got := make(chan granted, n)
	for i := range n {
		go func() {
			l, err := waiter.Lock(ctx, pipe.LockParams{Key: fmt.Sprintf("%s/%d", key, i)})
			got <- granted{l, err}
		}()
	}
	for i := range n {
		for queued := false; !queued; {
			var k struct{ Waiters int }
			if err := waiter.Call(ctx, "show", map[string]string{"key": fmt.Sprintf("%s/%d", key, i)}, &k); err != nil {
				return 0, err
			}
			if queued = k.Waiters > 0; !queued {
				if err := pause(ctx, time.Millisecond); err != nil {
					return 0, err
				}
			}
		}
	}
	killed := time.Now()
	holder.Kill()
	all := make([]granted, n)
	for i := range all {
		all[i] = <-got
	}
	took := time.Since(killed)
	for _, l := range all { // held, they would be renewed beside the next kill
		if l.err != nil {
			return 0, l.err
		}
		if !l.Abandoned && waiter.Hello.Abandoned {
			return 0, errors.New("the next holder was not told")
		}
		if err := l.Release(); err != nil {
			return 0, err
		}
	}
	return took, nil
}
