// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// The bars of Redlock when many clients contend for one key, and when too few nodes answer.
const (
	shareBar   = 3                     // times a fair share
	stillBar   = time.Second           // without a grant
	nodeTime   = 50 * time.Millisecond // the node time-out for the default TTL
	errorBar   = nodeTime * 3 / 2      // with an allowance for the machine
	calmAfter  = 500                   // locks
	recoverBar = time.Second           // after the nodes are back
)

// fiveServers starts the nodes.
func fiveServers(t *tb) (servers []*testserver.Server) {
	for range 5 {
		servers = append(servers, testserver.Redis(t))
	}
	return servers
}

// redlock is a client over all servers, with that many connections to each.
func redlock(t *tb, servers []*testserver.Server, pool int) *hasp.Client {
	var nodes []driver.Node
	var names []string
	for _, s := range servers {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: pool, MinIdleConns: pool})
		t.Cleanup(func() { _ = rdb.Close() }) // its server goes, too
		nodes = append(nodes, redisdriver.NewNode(rdb, hasp.DefaultTTL, nil))
		names = append(names, s.Addr())
	}
	c, err := hasp.New(quorum.New(nodes, &quorum.Options{Names: names}), nil)
	t.must(err)
	return c
}

func redlocks(flags *flag.FlagSet) func(*tb) []row {
	n := flags.Int("n", 64, "how many clients want one key")
	lasting := flags.Duration("for", 30*time.Second, "how long they do")
	rounds := flags.Int("rounds", 20, "how often three of five servers are stopped")
	return func(t *tb) []row {
		servers := fiveServers(t)
		c := redlock(t, servers, 2)
		defer func() { t.must(c.Close()) }()
		t.must(c.Admit(t.ctx))
		return append(contend(t, servers, *n, *lasting), cutDown(t, servers, c, *rounds)...)
	}
}

// contend makes many clients lock one key, and release it at once.
func contend(t *tb, servers []*testserver.Server, n int, lasting time.Duration) []row {
	ctx, stop := context.WithTimeout(t.ctx, lasting)
	defer stop()
	var clients []*hasp.Client
	for range n {
		clients = append(clients, redlock(t, servers, 2))
	}
	turns := make([]int, n)
	var mu sync.Mutex
	var still time.Duration // the longest time without a grant
	failed := 0
	begun := time.Now()
	last := begun
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			m := c.Mutex("k", nil)
			for ctx.Err() == nil {
				lease, err := m.Lock(ctx)
				if err == nil {
					mu.Lock()
					now := time.Now()
					still, last = max(still, now.Sub(last)), now
					turns[i]++
					mu.Unlock()
					err = lease.Release()
				}
				if err != nil && ctx.Err() == nil {
					mu.Lock()
					if failed++; failed == 1 {
						t.Logf("the first that failed: %v", err)
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	t.must(t.err())
	took := time.Since(begun)
	still = max(still, time.Since(last)) // and to the end
	for _, c := range clients {
		t.must(c.Close())
	}
	total := 0
	for _, k := range turns {
		total += k
	}
	slices.Sort(turns)
	fair := float64(total) / float64(n)
	who := fmt.Sprintf("%d clients, one key", n)
	return []row{
		figure(who+": grants", "%.0f/s", float64(total)/took.Seconds()),
		judged(failed == 0, who+": locks that failed", "none", "%d of %d", failed, failed+total),
		judged(float64(turns[n-1]) <= shareBar*fair && turns[0] > 0, who+": turns of one client",
			fmt.Sprintf("at least one, and at most %d times a fair share", shareBar),
			"%d to %d; %.2f of %.0f", turns[0], turns[n-1], float64(turns[n-1])/fair, fair),
		judged(still < stillBar, who+": longest time without a grant", fmt.Sprintf("< %v", stillBar), "%v", still.Round(time.Millisecond)),
	}
}

// cutDown stops and resumes three servers, again and again.
func cutDown(t *tb, servers []*testserver.Server, c *hasp.Client, rounds int) []row {
	m := c.Mutex("other", nil)
	var first, later, back []time.Duration
	named := 0
	for range calmAfter { // the node time-out grows with round trips, and forgets them slowly
		lease, err := m.Lock(t.ctx)
		t.must(err)
		t.must(lease.Release())
	}
	for range rounds {
		lease, err := m.Lock(t.ctx)
		t.must(err)
		t.must(lease.Release())
		for _, s := range servers[1:4] {
			s.Stop()
		}
		refused := func(took *[]time.Duration) {
			begun := time.Now()
			_, err := m.TryLock(t.ctx)
			*took = append(*took, time.Since(begun))
			if err != nil && !slices.ContainsFunc(servers[1:4], func(s *testserver.Server) bool { return !strings.Contains(err.Error(), s.Addr()) }) {
				named++
			}
		}
		refused(&first)
		refused(&later)
		for _, s := range servers[1:4] {
			s.Cont()
		}
		begun := time.Now()
		lease, err = m.Lock(t.ctx)
		t.must(err)
		back = append(back, time.Since(begun))
		t.must(lease.Release())
	}
	for _, all := range [][]time.Duration{first, later, back} {
		slices.Sort(all)
	}
	const who = "three of five hang"
	return []row{
		judged(named == 2*rounds, who+": errors that name the three", "all", "%d of %d", named, 2*rounds),
		judged(first[rounds-1] <= errorBar, who+": the first error comes after", fmt.Sprintf("the node time-out (%v), and half as much for the machine", nodeTime),
			"%v to %v", first[0].Round(time.Millisecond/10), first[rounds-1].Round(time.Millisecond/10)),
		figure(who+": the second error comes after", "%v to %v", later[0].Round(time.Millisecond/100), later[rounds-1].Round(time.Millisecond/100)),
		judged(back[rounds-1] <= recoverBar, who+": locked again, after they go on", fmt.Sprintf("<= %v", recoverBar),
			"%v to %v", back[0].Round(time.Millisecond/10), back[rounds-1].Round(time.Millisecond/10)),
	}
}
