// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"
	"time"

	"github.com/hasplock/hasp"
)

// gaps are for how long the key is not used, after the faults: longer than all that is kept for a while.
var gaps = []time.Duration{time.Hour, 13 * time.Hour, 25 * time.Hour, 8 * 24 * time.Hour, 60 * 24 * time.Hour}

// afterGap bounds how long a lock may take after a gap, when all nodes are up and no other client asks.
const afterGap = time.Second

// pauseUse has one plan in four end with gaps, by numbers of its own.
func (p *Plan) pauseUse() *Plan {
	r := rand.New(rand.NewPCG(p.Seed, 1<<61))
	if r.IntN(4) > 0 {
		return p
	}
	for range 1 + r.IntN(2) {
		p.Gaps = append(p.Gaps, gaps[r.IntN(len(gaps))])
	}
	return p
}

// gaps has the key unused for the plan's gaps. After each, every client locks it, alone: by the process that it had before, and
// by a new one, in any order, with one attempt or with as many as it takes.
func (w *world) gaps() {
	r := rand.New(rand.NewPCG(w.plan.Seed, 1<<60))
	for n, gap := range w.plan.Gaps {
		time.Sleep(gap)
		for i := range 2 * len(w.clients) {
			c := w.clients[(i/2+n)%len(w.clients)]
			p, how := c.cur, "process"
			if (i+r.IntN(2))%2 == 1 {
				p, how = c.start(1000+10*n+i), "new process"
				defer func() { _ = p.locks.Close() }()
			}
			m := p.locks.RWMutex(key, &hasp.LockOptions{TTL: c.ttl})
			k, limit := r.IntN(4), afterGap
			if w.plan.May[Free] != "" { // clocks are so far apart that the first proposal may suit no majority
				k, limit = k|1, w.plan.turnLimit()
			}
			lock := []locker{m.TryLock, m.Lock, m.TryRLock, m.RLock}[k]
			h, err := p.take(lock, limit)
			if err != nil {
				w.find(Progress, "after %v in which no client used the key, client %d is granted nothing (its %s, %s): %v",
					gap, c.index, how, []string{"TryLock", "Lock", "TryRLock", "RLock"}[k], err)
				continue
			}
			h.release()
			time.Sleep(answersBy) // what is still under way is not in the way
		}
	}
}
