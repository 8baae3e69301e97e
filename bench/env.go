// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
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
	etcd  *testserver.Server // nil: none is installed
	zoo   *testserver.Server // nil: not started
	admin []*redis.Client    // over the unix socket, one for each of redis
	link  string             // what slow made
}

// newEnv starts the servers.
func newEnv(t testing.TB, quick bool) *env {
	e := &env{t: t, quick: quick, pace: 1, target: target{TTL: defaultTTL}}
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

// startZooKeeper starts one, unless it runs. What a peer has there ends with its sessions.
func (e *env) startZooKeeper() {
	if e.zoo == nil {
		e.zoo = testserver.ZooKeeper(e.t)
		e.ZooKeeper = e.zoo.Addr()
	}
}

// slow returns the target with a millisecond each way in between, and a little longer, since timers are late.
func (e *env) slow() target {
	if e.link == "" {
		l := faultproxy.New(e.t, e.Redis[0])
		l.Delay(2 * time.Millisecond)
		e.link = l.Addr()
	}
	to := e.target
	to.Redis = append([]string{e.link}, to.Redis[1:]...)
	return to
}

// lasts returns the duration of a measurement that takes d in a full run.
func (e *env) lasts(d time.Duration) time.Duration { return time.Duration(e.pace * float64(d)) }

// reset empties the servers.
func (e *env) reset(ctx context.Context) error {
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

// load is the work of servers since they started.
type load struct {
	cpu      time.Duration
	commands float64
}

// serverLoad returns the work of the peer's servers so far: their processor
// time, and the commands that they ran, including those within scripts. For etcd the
// commands are the gRPC messages that it received, for ZooKeeper the packets. The function's own commands do not
// count. A local peer has none.
func (e *env) serverLoad(ctx context.Context, p *peer) (sum load, err error) {
	switch {
	case p.local:
		return load{}, nil
	case p.etcd:
		return e.etcdLoad(ctx)
	case p.zookeeper:
		return e.zookeeperLoad(ctx)
	}
	for _, a := range e.admin {
		text, err := a.InfoMap(ctx, "cpu", "commandstats").Result()
		if err != nil {
			return sum, err
		}
		for name, value := range text["CPU"] {
			if name == "used_cpu_sys" || name == "used_cpu_user" {
				s, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return sum, err
				}
				sum.cpu += time.Duration(s * float64(time.Second))
			}
		}
		for name, value := range text["Commandstats"] {
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, err := strconv.ParseFloat(calls, 64)
			if err != nil {
				return sum, err
			}
			if name != "cmdstat_info" {
				sum.commands += n
			}
		}
	}
	return sum, nil
}

func (e *env) etcdLoad(ctx context.Context) (sum load, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.Etcd+"/metrics", nil)
	if err != nil {
		return sum, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return sum, err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ := strings.Cut(series, "{")
		if name != "process_cpu_seconds_total" && name != "grpc_server_msg_received_total" {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return sum, fmt.Errorf("etcd's metrics: %w", err)
		}
		if name == "process_cpu_seconds_total" {
			sum.cpu += time.Duration(v * float64(time.Second))
		} else {
			sum.commands += v
		}
	}
	return sum, lines.Err()
}

func (e *env) zookeeperLoad(ctx context.Context) (sum load, err error) {
	text, err := e.zoo.FourLetters(ctx, "mntr")
	if err != nil {
		return sum, err
	}
	_, after, ok := strings.Cut(text, "zk_packets_received\t")
	if !ok {
		return sum, fmt.Errorf("ZooKeeper says %q", text)
	}
	number, _, _ := strings.Cut(after, "\n")
	sum.commands, err = strconv.ParseFloat(number, 64)
	return sum, err
}

func (l load) minus(o load) load { return load{l.cpu - o.cpu, l.commands - o.commands} }
