// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/testserver"
)

// hungBar is how much more a process may need while a node hangs.
const hungBar = 1.1

func hung(flags *flag.FlagSet) func(*tb) []row {
	n := flags.Int("n", 64, "how many goroutines lock and release, each a key of its own")
	lasting := flags.Duration("for", 10*time.Minute, "how long one of five servers hangs")
	return func(t *tb) []row {
		l := newLoad(t, *n)
		defer l.end()
		l.wait(time.Minute) // its maps have the size that they need
		before := l.look()
		l.servers[0].Stop()
		l.wait(*lasting)
		during := l.look()
		l.servers[0].Cont()
		l.wait(10 * time.Second)
		after := l.look()
		t.Logf("before: %v; while it hung: %v; 10 s after it went on: %v", before, during, after)
		rows := []row{figure("pairs/s, all healthy, then one hangs", "%.0f, %.0f", before.rate, during.rate)}
		for i, what := range [...]string{"goroutines", "heap in use after GC, bytes", "the same while the load is paused",
			"memory of the process, bytes", "connections"} {
			b, d := before.uses[i], during.uses[i]
			rows = append(rows, judged(d <= b*hungBar, fmt.Sprintf("%s after %v with a hung node", what, *lasting),
				fmt.Sprintf("at most %.1f of those before", hungBar), "%.0f, then %.0f: %.2f", b, d, d/b))
		}
		failed := l.failed.Load()
		return append(rows, judged(failed == 0, "locks that failed in all that time", "none", "%d of %d", failed, l.pairs.Load()))
	}
}

// load is a client over five servers that locks and releases all the time.
type load struct {
	t             *tb
	servers       []*testserver.Server
	locks         *hasp.Client
	stop          context.CancelFunc
	wg            sync.WaitGroup
	gate          sync.RWMutex // held to pause the load
	pairs, failed atomic.Int64
}

func newLoad(t *tb, n int) *load {
	l := &load{t: t, servers: fiveServers(t)}
	// All of the pool from the start: a connection has 64 KiB of buffers, and some
	// are opened late, whether a node hangs or not.
	l.locks = redlock(t, l.servers, 8)
	t.must(l.locks.Admit(t.ctx))
	var ctx context.Context
	ctx, l.stop = context.WithCancel(t.ctx)
	for i := range n {
		m := l.locks.Mutex(fmt.Sprintf("key/%03d", i), nil)
		l.wg.Go(func() {
			for ctx.Err() == nil {
				l.gate.RLock()
				lease, err := m.Lock(ctx)
				if err == nil {
					err = lease.Release()
				}
				l.gate.RUnlock()
				if ctx.Err() == nil && err != nil {
					if l.failed.Add(1) == 1 {
						t.Logf("the first that failed: %v", err)
					}
				}
				l.pairs.Add(1)
			}
		})
	}
	return l
}

func (l *load) end() {
	l.stop()
	l.wg.Wait()
	l.t.must(l.locks.Close())
}

// wait lets the load run for d.
func (l *load) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.t.ctx.Done():
		l.t.Fatalf("%w", l.t.ctx.Err())
	}
}

// needs is what the process uses under its load.
type needs struct {
	rate float64 // pairs a second
	uses [5]float64
}

func (u needs) String() string {
	return fmt.Sprintf("%.0f pairs/s, %.0f goroutines, heap %.2f MiB, %.2f MiB with the load paused, memory %.1f MiB, %.0f connections",
		u.rate, u.uses[0], u.uses[1]/(1<<20), u.uses[2]/(1<<20), u.uses[3]/(1<<20), u.uses[4])
}

// look takes medians over some seconds, because all figures vary under load. The heap
// is measured once more while the load is paused: 160 MB/s of garbage add about a
// megabyte of noise to a collection, and what is kept for the hung node is still there.
func (l *load) look() needs {
	var seen [5][]float64
	begun, pairs := time.Now(), l.pairs.Load()
	for range 21 {
		l.wait(200 * time.Millisecond)
		var m runtime.MemStats
		live := heap()
		runtime.ReadMemStats(&m)
		goroutines := runtime.NumGoroutine()
		l.gate.Lock()
		kept := heap()
		l.gate.Unlock()
		for i, v := range [...]float64{float64(goroutines), float64(live), float64(kept), float64(m.Sys - m.HeapReleased), float64(sockets(l.t))} {
			seen[i] = append(seen[i], v)
		}
	}
	u := needs{rate: float64(l.pairs.Load()-pairs) / time.Since(begun).Seconds()}
	for i := range seen {
		slices.Sort(seen[i])
		u.uses[i] = seen[i][len(seen[i])/2]
	}
	return u
}

// sockets counts the connections of this process.
func sockets(t *tb) (n int) {
	const open = "/dev/fd"
	files, err := os.ReadDir(open)
	t.must(err)
	for _, f := range files {
		// One that was closed meanwhile is none.
		if info, err := os.Stat(filepath.Join(open, f.Name())); err == nil && info.Mode()&os.ModeSocket != 0 {
			n++
		}
	}
	return n
}
