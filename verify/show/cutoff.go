// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify"
)

func cutoff(flags *flag.FlagSet) func(*tb) []row {
	runs := flags.Int("runs", 100, "how many holders are cut off, and how many are stopped")
	side := flags.Int("parallel", 10, "how many runs go on at once")
	ttl := flags.Duration("ttl", 5*time.Second, "TTL of the leases")
	return func(t *tb) []row {
		addr := testserver.Redis(t).Addr()
		cut := repeat(t, *runs, *side, func(sub *tb, key string) (verify.Loss, error) {
			loss, err := verify.Cutoff(sub, addr, key, *ttl)
			if err == nil {
				err = loss.Err(0)
			}
			return loss, err
		})
		stopped := repeat(t, *runs, *side, func(sub *tb, key string) (verify.Loss, error) {
			return verify.Stopped(sub, addr, key, *ttl)
		})
		return []row{
			judged(len(cut) == *runs, fmt.Sprintf("cut off right after a renewal, TTL %v: lost before a waiter has the key", *ttl),
				fmt.Sprintf("%d of %[1]d", *runs), "%d", len(cut)),
			figure("… lost before the store granted the key to the waiter by", "%s", spread(cut, func(l verify.Loss) time.Duration { return l.Granted.Sub(l.Lost) })),
			figure("… lost before the waiter's Lock returned by", "%s", spread(cut, func(l verify.Loss) time.Duration { return l.Got.Sub(l.Lost) })),
			judged(len(stopped) == *runs, fmt.Sprintf("SIGSTOP beyond the TTL of %v: the first check finds ErrLost, the fence is smaller", *ttl),
				fmt.Sprintf("%d of %[1]d", *runs), "%d", len(stopped)),
		}
	}
}

// repeat does many runs, some at once, each on a key of its own, and returns
// the losses of those that went well.
func repeat(t *tb, runs, side int, one func(*tb, string) (verify.Loss, error)) []verify.Loss {
	var mu sync.Mutex
	var well []verify.Loss
	var wg sync.WaitGroup
	places := make(chan struct{}, side)
	for i := range runs {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			var loss verify.Loss
			_, err := perform(t.ctx, func(sub *tb) (none struct{}) {
				var err error
				loss, err = one(sub, fmt.Sprint("k", i))
				sub.must(err)
				return
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				well = append(well, loss)
			} else if t.ctx.Err() == nil {
				t.Logf("run %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	return well
}

// spread names the smallest, the median and the largest of some durations.
func spread(losses []verify.Loss, of func(verify.Loss) time.Duration) string {
	if len(losses) == 0 {
		return "nothing"
	}
	var all []time.Duration
	for _, l := range losses {
		all = append(all, of(l).Round(100*time.Microsecond))
	}
	slices.Sort(all)
	return fmt.Sprintf("%v to %v, median %v", all[0], all[len(all)-1], all[len(all)/2])
}
