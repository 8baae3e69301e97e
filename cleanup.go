// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/backoff"
)

// cleanups are the releases that nobody waits for: of calls whose outcome is unknown,
// and those that the store has not confirmed. However many there are, a silent store is
// sent one at a time, and each is dropped when what its owner left has expired.
type cleanups struct {
	c *core

	mu      sync.Mutex
	pending []*cleanup // the oldest first
	running bool       // run is at work
	unheard bool       // the latest that was sent had no answer, not even a refusal
}

type cleanup struct {
	req   driver.ReleaseRequest
	lost  bool      // as for settled
	until time.Time // the store has nothing of the owner then, and no Try of it can come
	done  bool
}

const (
	maxCleanups  = 10_000 // beyond that the oldest are dropped: what they left expires
	releaseLanes = 32     // how many releases are under way at once
)

// releaseOnce sends a release, and waits for the answer for limit at most.
func (c *core) releaseOnce(ctx context.Context, limit time.Duration, req driver.ReleaseRequest) error {
	r := newRequest(ctx, nil, min(limit, releaseLimit/3))
	defer r.done()
	return c.drv.Release(r, req)
}

// silent says whether the store does not answer. A store that refuses the release of one key may take that of another.
func (cs *cleanups) silent() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.unheard && len(cs.pending) > 0
}

// add notes a release. It must be called within a call that the gate let in: Close
// waits for all releases.
func (cs *cleanups) add(req driver.ReleaseRequest, lost bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.pending) >= maxCleanups {
		cs.pending = slices.Delete(cs.pending, 0, len(cs.pending)-maxCleanups+1)
	}
	until := time.Now().Add(max(min(req.TTL, cleanUpLimit)+tryLimit, driver.LateRequest))
	cs.pending = append(cs.pending, &cleanup{req: req, lost: lost, until: until})
	if !cs.running {
		cs.running = true
		cs.c.calls.EnterLate()
		go cs.run()
	}
}

// run sends what is pending, until nothing is.
func (cs *cleanups) run() {
	defer cs.c.calls.Leave()
	pause := backoff.Backoff{Least: 20 * time.Millisecond, Most: time.Second}
	for work := cs.look(); len(work) > 0; work = cs.look() {
		settled := cs.send(releaseLimit, work[0])
		if settled {
			pause.Reset()
		}
		if !cs.silent() && cs.sendAll(work[1:]) && settled {
			continue
		}
		pause.Wait(cs.c.calls.Base.Done())
	}
}

// look drops what is done or expired, and returns the rest, in another order each
// time: one that fails, on a shard that is unreachable, must not delay the others.
// When there are none, or at the end of Close, run ends.
func (cs *cleanups) look() []*cleanup {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	now := time.Now()
	cs.pending = slices.DeleteFunc(cs.pending, func(w *cleanup) bool { return w.done || w.until.Before(now) })
	cs.running = len(cs.pending) > 0 && cs.c.calls.Base.Err() == nil
	if !cs.running {
		return nil
	}
	work := slices.Clone(cs.pending)
	rand.Shuffle(len(work), func(i, j int) { work[i], work[j] = work[j], work[i] })
	return work
}

// sendAll is false when the store failed again.
func (cs *cleanups) sendAll(work []*cleanup) bool {
	var failed atomic.Bool
	next := make(chan *cleanup, len(work))
	for _, w := range work {
		next <- w
	}
	close(next)
	var lanes sync.WaitGroup
	for range min(releaseLanes, len(work)) {
		lanes.Go(func() {
			for w := range next {
				if !cs.send(releaseLimit, w) {
					failed.Store(true)
					return
				}
			}
		})
	}
	lanes.Wait()
	return !failed.Load()
}

// send sends one release, and reports whether that settles it.
func (cs *cleanups) send(limit time.Duration, w *cleanup) bool {
	err := cs.c.releaseOnce(cs.c.calls.Base, limit, w.req)
	settled := cs.c.settled(err, w.lost)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	w.done, cs.unheard = settled, !settled && !cs.c.answered(err)
	return settled
}
