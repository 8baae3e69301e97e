// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"crypto/rand"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// noGoroutineStays knows the goroutines of the case by their profiler label,
// which each hands down to those it starts.
func noGoroutineStays(e *env) {
	d := e.store.Open() // its pools belong to the caller, and stay open
	if _, err := d.Inspect(e.ctx, "k"); err != nil {
		e.Fatalf("Inspect: %v", err)
	}
	id := rand.Text()
	pprof.Do(e.ctx, pprof.Labels("drivertest", id), func(context.Context) { comeAndGo(e, d) })
	e.goneFrom(0) // by another driver, whose client may begin goroutines of its own
	var n int
	var stacks string
	defer func() {
		if n > 0 {
			e.Logf("%d goroutines:\n%s", n, stacks)
		}
	}()
	e.eventually(0, "the goroutines have ended", func() bool {
		n, stacks = labelled(id)
		return n == 0
	})
}

// comeAndGo acquires, gives up and loses leases many times, and closes the client.
func comeAndGo(e *env, d driver.Driver) {
	c, err := hasp.New(d, nil)
	if err != nil {
		e.Fatalf("hasp.New: %v", err)
	}
	const workers = 8
	rounds, o := 25, e.lasting() // on a busy machine a brief lease would be lost before Close
	if e.fake {
		rounds, o = manyFake/workers, e.short()
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				ctx, cancel := context.WithTimeout(e.ctx, time.Duration((w+i)%7)*time.Millisecond)
				lease, err := c.Mutex("k", o).Lock(ctx)
				cancel()
				if err != nil {
					continue
				}
				lease.Context(e.ctx)
				if (w+i)%9 != 0 {
					_ = lease.Release()
				}
			}
		})
	}
	wg.Wait()
	if err := c.Close(); err != nil {
		e.Errorf("Close: %v", err)
	}
}

// labelled counts the goroutines with a label, and returns their stacks.
func labelled(id string) (n int, stacks string) {
	var dump strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&dump, 1); err != nil {
		return 1, err.Error()
	}
	for group := range strings.SplitSeq(dump.String(), "\n\n") {
		if !strings.Contains(group, id) {
			continue
		}
		count, _, _ := strings.Cut(group, " @")
		same, _ := strconv.Atoi(count) // the profile's first line is a header
		n += max(same, 1)
		stacks += group + "\n"
	}
	return n, stacks
}
