// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// memoryBar is what a lease without a derived context may take, in bytes.
const memoryBar = 1024

func leases(flags *flag.FlagSet) func(*testserver.Program) []row {
	n := flags.Int("n", 100_000, "how many leases are held")
	ttl := flags.Duration("ttl", hasp.DefaultTTL, "their TTL; they are held for three of it")
	return func(t *testserver.Program) []row {
		s := testserver.Redis(t)
		p := &pile{t: t, n: *n, ttl: *ttl, rdb: redis.NewClient(&redis.Options{Addr: s.Addr()})}
		t.Cleanup(func() { _ = p.rdb.Close() }) // its server goes, too
		var err error
		p.locks, err = hasp.New(redisdriver.New(p.rdb, nil), &hasp.Options{Observe: p.observe})
		t.Must(err)
		rows := []row{p.acquire()}
		rows = append(rows, p.renew()...)
		rows = append(rows, p.contexts())
		return append(rows, p.close())
	}
}

// pile is many leases of one client.
type pile struct {
	t      *testserver.Program
	n      int
	ttl    time.Duration
	rdb    *redis.Client
	locks  *hasp.Client
	leases []*hasp.Lease

	lost, renewed, failed atomic.Int64
}

func (p *pile) observe(e hasp.Event) {
	switch e.Kind {
	case hasp.EventLost:
		p.lost.Add(1)
	case hasp.EventRenewed:
		p.renewed.Add(1)
	case hasp.EventRenewFailed:
		p.failed.Add(1)
	}
}

// acquire fills the pile, and measures the memory.
func (p *pile) acquire() row {
	p.leases = make([]*hasp.Lease, p.n)
	warm, err := p.locks.Mutex("warm", nil).Lock(p.t.Context())
	p.t.Must(err)
	p.t.Must(warm.Release())
	before, start := heap(), time.Now()
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 256 {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < p.n; i = next.Add(1) - 1 {
				l, err := p.locks.Mutex("lease/"+strconv.Itoa(int(i)), &hasp.LockOptions{TTL: p.ttl}).Lock(p.t.Context())
				if err != nil {
					p.t.Errorf("lease %d: %w", i, err)
					return
				}
				p.leases[i] = l
			}
		})
	}
	wg.Wait()
	p.t.Must(p.t.Err())
	took := time.Since(start)
	p.t.Logf("%d leases acquired in %v, %.0f/s", p.n, took.Round(time.Millisecond), float64(p.n)/took.Seconds())
	each := float64(heap()-before) / float64(p.n)
	return judged(each < memoryBar, "memory of a lease without a derived context (heap in use after GC)",
		fmt.Sprintf("< %d B", memoryBar), "%.0f B", each)
}

// heap returns the bytes of live objects on the heap.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // frees what the first one finalized
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// renew holds the pile for three TTLs.
func (p *pile) renew() []row {
	const ttls = 3
	p.renewed.Store(0)
	server, client, start := p.serverCPU(), ownCPU(), time.Now()
	select {
	case <-time.After(ttls * p.ttl):
	case <-p.t.Context().Done():
		p.t.Fatalf("%w", p.t.Context().Err())
	}
	took := time.Since(start)
	server, client = p.serverCPU()-server, ownCPU()-client
	lost := 0
	for _, l := range p.leases {
		if l.Err() != nil {
			lost++
		}
	}
	held := p.keys()
	each := float64(p.renewed.Load()) / float64(p.n)
	percent := func(cpu time.Duration) float64 { return 100 * cpu.Seconds() / took.Seconds() }
	return []row{
		judged(lost == 0 && p.lost.Load() == 0 && held == p.n, fmt.Sprintf("leases lost of %d over %d TTLs of %v", p.n, ttls, p.ttl),
			"0", "%d", max(lost, int(p.lost.Load()))),
		figure("renewals", "%.1f for each lease, %.0f/s, %d tried again", each, float64(p.renewed.Load())/took.Seconds(), p.failed.Load()),
		figure("CPU while renewing, of one core", "server %.1f %%, client %.1f %%", percent(server), percent(client)),
	}
}

// contexts measures the memory of a context for each lease.
func (p *pile) contexts() row {
	work := make([]context.Context, 0, p.n)
	before := heap()
	for _, l := range p.leases {
		work = append(work, l.Context(p.t.Context()))
	}
	each := float64(heap()-before) / float64(p.n)
	runtime.KeepAlive(work)
	return figure("memory of a derived context", "%.0f B more", each)
}

// close releases the pile by closing the client.
func (p *pile) close() row {
	start := time.Now()
	err := p.locks.Close()
	took := time.Since(start)
	left := p.keys()
	if err != nil {
		text := err.Error()
		p.t.Logf("Close: %s … (%d lines)", text[:min(len(text), 200)], strings.Count(text, "\n")+1)
	}
	return judged(left == 0, "Close releases all", "0 left", "%d left after %v", left, took.Round(time.Millisecond))
}

// keys counts the locks in the store.
func (p *pile) keys() (n int) {
	keys := p.rdb.Scan(p.t.Context(), 0, redisdriver.DefaultPrefix+"*", 1000).Iterator()
	for keys.Next(p.t.Context()) {
		n++
	}
	p.t.Must(keys.Err())
	return n
}

// serverCPU returns the processor time that the server has used.
func (p *pile) serverCPU() (sum time.Duration) {
	text, err := p.rdb.Info(p.t.Context(), "cpu").Result()
	p.t.Must(err)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			p.t.Must(err)
			sum += time.Duration(seconds * float64(time.Second))
		}
	}
	return sum
}

// ownCPU returns the processor time that this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
