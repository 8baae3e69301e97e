// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// nodes is how many Redis servers run: Redlock's five.
const nodes = 5

// env is the servers of a run, which end with the program.
type env struct {
	target
	quick bool
	// pace is the factor for the durations of a full run.
	pace float64
	// t starts servers and cleans up; a failure ends the run.
	t     testing.TB
	redis []*testserver.Server
	etcd  *testserver.Server         // nil: none is installed
	zoo   *testserver.Server         // nil: not started
	admin []*redis.Client            // over the unix socket, one for each of redis
	links map[time.Duration][]string // what slow made, by round trip
	dir   string                     // with hasp, the command
}

// newEnv starts the servers.
func newEnv(t testing.TB, quick bool) *env {
	e := &env{t: t, quick: quick, pace: 1, target: target{TTL: defaultTTL}, links: map[time.Duration][]string{}}
	if quick {
		e.pace = 0.2
	}
	for range nodes {
		// 512 clients may have several connections each.
		s := testserver.Redis(t, "--maxclients", "10000")
		a := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket()})
		t.Cleanup(func() { _ = a.Close() }) // its server ends, too
		e.redis, e.admin, e.Redis = append(e.redis, s), append(e.admin, a), append(e.Redis, s.Addr())
	}
	if _, err := exec.LookPath("etcd"); err == nil {
		e.etcd = testserver.Etcd(t)
		e.Etcd = e.etcd.Addr()
	} else {
		t.Logf("no etcd is installed: its rows are left out")
	}
	return e
}

// prepare empties the servers, and starts what the peer needs besides. What a peer has in ZooKeeper ends with its sessions.
func (e *env) prepare(ctx context.Context, p *peer) error {
	if p.on == onZooKeeper && e.zoo == nil {
		e.zoo = testserver.ZooKeeper(e.t)
		e.ZooKeeper = e.zoo.Addr()
	}
	if p.command != nil && e.dir == "" {
		if err := e.build(ctx); err != nil {
			return err
		}
	}
	for _, a := range e.admin {
		if err := a.FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	if e.etcd == nil {
		return nil
	}
	c, err := connectEtcd(e.Etcd)
	if err != nil {
		return err
	}
	defer c.Close()
	leases, err := c.Leases(ctx)
	if err != nil {
		return err
	}
	for _, l := range leases.Leases { // their keys are deleted with them
		if _, err := c.Revoke(ctx, l.ID); err != nil {
			return err
		}
	}
	_, err = c.Delete(ctx, "", clientv3.WithPrefix())
	return err
}

// slow returns the target with a network of that round trip before each Redis; 0: without.
func (e *env) slow(rtt time.Duration) target {
	if rtt == 0 {
		return e.target
	}
	if e.links[rtt] == nil {
		for _, addr := range e.Redis {
			l := faultproxy.New(e.t, addr)
			l.Hook(func(faultproxy.Chunk) bool { sleep(rtt / 2); return false }) // Delay has Go's timers, which are a millisecond late
			e.links[rtt] = append(e.links[rtt], l.Addr())
		}
	}
	to := e.target
	to.Redis = e.links[rtt]
	return to
}

// lasts returns the duration of a measurement that takes d in a full run.
func (e *env) lasts(d time.Duration) time.Duration { return time.Duration(e.pace * float64(d)) }

// meter begins to measure what this process and the peer's servers use. read returns what they used since. A peer in this process
// has no servers.
func (e *env) meter(ctx context.Context, p *peer) (read func() (figures, error), err error) {
	local := func() figures {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return figures{"client_cpu": processCPU().Seconds(), "allocs": float64(m.Mallocs), "bytes": float64(m.TotalAlloc)}
	}
	cpu, commands, err := e.serverUse(ctx, p)
	if err != nil {
		return nil, err
	}
	before := local()
	return func() (figures, error) {
		f := local()
		for name := range f {
			f[name] -= before[name]
		}
		nowCPU, nowCommands, err := e.serverUse(ctx, p)
		if p.on != inProcess {
			f["server_cpu"], f["commands"] = nowCPU-cpu, nowCommands-commands
		}
		return f, err
	}, nil
}

// serverUse returns the work of the peer's servers since they started: the seconds of a processor, and the commands that they ran,
// including those within scripts, without its own. For etcd the commands are the gRPC messages that it received, for ZooKeeper,
// which does not tell its time, the packets.
func (e *env) serverUse(ctx context.Context, p *peer) (cpu, commands float64, err error) {
	switch p.on {
	case onEtcd:
		text, err := e.etcd.Get(ctx, "/metrics")
		return sum(text, `process_cpu_seconds_total (\S+)`), sum(text, `grpc_server_msg_received_total\S* (\S+)`), err
	case onZooKeeper:
		text, err := e.zoo.FourLetters(ctx, "mntr")
		return 0, sum(text, `zk_packets_received\t(\S+)`), err
	case onRedis:
		for _, a := range e.admin {
			text, err := a.Info(ctx, "cpu", "commandstats").Result()
			if err != nil {
				return 0, 0, err
			}
			cpu += sum(text, `used_cpu_(?:sys|user):(\S+)`)
			commands += sum(text, `cmdstat_\S+:calls=(\d+)`)
			if own := sum(text, `cmdstat_info:calls=(\d+)`); own > 0 { // not in the first answer
				commands -= own
			}
		}
	}
	return cpu, commands, nil
}

// sum adds the numbers that a pattern finds at the beginnings of lines; NaN if it finds none.
func sum(text, pattern string) float64 {
	found := regexp.MustCompile(`(?m)^`+pattern).FindAllStringSubmatch(text, -1)
	if found == nil {
		return math.NaN()
	}
	all := 0.0
	for _, m := range found {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return math.NaN()
		}
		all += n
	}
	return all
}
