// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// redlock is hasp over all five servers.
const redlock = baseline + " 5 nodes"

var redlockPeers = []*peer{{
	name:    redlock,
	modules: []string{"github.com/hasplock/hasp", goRedis},
	config:  "hasp's quorum over five Redis, each with a node record; TTL 30 s, renewal, fences and the queue on; a go-redis client with its default options for each Redis; a Mutex for each acquisition",
	waits:   true,
	open: func(ctx context.Context, to target) (locker, error) {
		l := &redlockLocker{}
		var list []driver.Node
		for _, addr := range to.Redis {
			rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
			l.rdbs = append(l.rdbs, rdb)
			list = append(list, redisdriver.NewNode(rdb, to.TTL, nil))
		}
		var err error
		if l.locks, err = hasp.New(quorum.New(list, &quorum.Options{Names: to.Redis}), nil); err != nil {
			return nil, err
		}
		l.options = hasp.LockOptions{TTL: to.TTL}
		if err := l.locks.Operator().Admit(ctx); err != nil { // the servers are new or empty
			return nil, errors.Join(err, l.Close())
		}
		return l, nil
	},
}}

type redlockLocker struct {
	haspLocker
	rdbs []*redis.Client
}

func (l *redlockLocker) Close() error {
	errs := []error{l.locks.Close()}
	for _, rdb := range l.rdbs {
		errs = append(errs, rdb.Close())
	}
	return errors.Join(errs...)
}

// s8 is Redlock while nodes fail.
var s8 = scenario{
	name:  "s8",
	title: "Redlock over five nodes: all healthy, one that hangs, two that are down",
	about: "As S1, over five servers. After the warm-up one server is stopped (SIGSTOP), or two are killed, and a second passes before it is " +
		"measured. redsync waits for its own timeouts then; where it did not finish one pair in the time, its figures are left out.",
	metrics: []metric{
		{name: "pairs", head: "pairs/s", better: higher, main: true},
		{name: "p50", head: "p50", unit: seconds, better: lower},
		{name: "p99", head: "p99", unit: seconds, better: lower},
		{name: "client_cpu", head: "client CPU", unit: seconds, better: lower},
		{name: "server_cpu", head: "server CPU", unit: seconds, better: lower},
	},
	variants: func(bool) (vs []variant) {
		for state, name := range nodeStates {
			vs = append(vs,
				variant{"1 goroutine, " + name, 1 + statesApart*state},
				variant{"64 goroutines, " + name, 64 + statesApart*state})
		}
		return vs
	},
	field: func(_ *env, all []*peer) []*peer {
		return slices.DeleteFunc(all, func(p *peer) bool { return !strings.Contains(p.name, "5 nodes") })
	},
	run: runRedlock,
	bars: []bar{
		aheadOfRedsync("1 goroutine", 1), aheadOfRedsync("64 goroutines", 64),
		ofHealthy(hangs, "1 goroutine, one node hangs", 1, "pairs", 0.8), ofHealthy(hangs, "64 goroutines, one node hangs", 64, "pairs", 0.8),
		ofHealthy(gone, "1 goroutine, two nodes down", 1, "pairs", 0.8), ofHealthy(gone, "64 goroutines, two nodes down", 64, "pairs", 0.8),
		ofHealthy(hangs, "1 goroutine, one node hangs", 1, "p99", 2), ofHealthy(hangs, "64 goroutines, one node hangs", 64, "p99", 2),
		ofHealthy(gone, "1 goroutine, two nodes down", 1, "p99", 2), ofHealthy(gone, "64 goroutines, two nodes down", 64, "p99", 2),
	},
}

// The states of the nodes. A variant's n is the goroutines, and so much more for
// each state.
const (
	well = iota
	hangs
	gone

	statesApart = 1000
)

var nodeStates = []string{"all nodes healthy", "one node hangs", "two nodes down"}

func aheadOfRedsync(text string, n int) bar {
	return against(redlock, text+", all nodes healthy: pairs/s ahead of redsync over the same nodes", n, "pairs",
		[]string{"redsync 5 nodes", "redsync 5 nodes fail-fast"}, func(ratio float64) bool { return ratio > 1 })
}

// ofHealthy is a bar for a figure in a state over the same with all nodes healthy.
func ofHealthy(state int, text string, n int, metric string, limit float64) bar {
	says := "pairs/s at least 0.8 of those with all nodes healthy"
	if metric == "p99" {
		says = "p99 at most twice that with all nodes healthy"
	}
	return bar{text + ": " + says, func(r *scenarioResult) (string, bool, bool) {
		a, okA := r.figure(n, redlock, metric)
		b, okB := r.figure(n+statesApart*state, redlock, metric)
		if !okA || !okB || a == 0 {
			return "", false, false
		}
		reached := b/a >= limit
		if metric == "p99" {
			reached = b/a <= limit
		}
		return fmt.Sprintf("%s to %s, %.2f ×", r.write(metric, a), r.write(metric, b), b/a), reached, true
	}}
}

func runRedlock(ctx context.Context, e *env, v variant, p *peer) (f figures, err error) {
	l, err := p.open(ctx, e.target)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	c := &workers{}
	for i := range v.n % statesApart {
		c.list = append(c.list, &worker{locker: l, key: fmt.Sprintf("key/%03d", i), guard: new(guard)})
	}
	if err := c.warm(ctx, 2, 64); err != nil {
		return nil, err
	}
	state := v.n / statesApart
	switch state {
	case hangs:
		e.redis[0].Stop()
		defer e.redis[0].Cont()
	case gone:
		for _, s := range e.redis[3:] {
			s.Kill()
			defer s.Restart()
		}
	}
	if state != well {
		// The first to meet the fault detects it, and is not measured; a lock
		// that fails because of it does not fail the round.
		_ = c.warm(ctx, 1, 64)
		time.Sleep(time.Second)
	}
	var before tally
	if state == well {
		if before, err = e.tally(ctx, p); err != nil {
			return nil, err
		}
	}
	took, err := c.work(ctx, e.lasts(2*time.Second), nil)
	if err != nil {
		return nil, err
	}
	var times hist
	for _, h := range c.list {
		times.join(&h.pairs)
	}
	if times.count == 0 {
		return figures{}, nil
	}
	pairs := float64(times.count)
	f = figures{"pairs": pairs / took.Seconds(), "p50": times.quantile(0.5), "p99": times.quantile(0.99)}
	if state == well {
		used, err := e.tally(ctx, p)
		if err != nil {
			return nil, err
		}
		used = used.minus(before)
		f["client_cpu"], f["server_cpu"] = used.client.Seconds()/pairs, used.cpu.Seconds()/pairs
	}
	return f, nil
}
