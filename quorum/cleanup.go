// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// cleanup is a release that could not be delivered. The node has it when it answers
// again.
type cleanup struct {
	o     *owner // its ballot ends with this; nil: no ballot does
	req   voting.WithdrawRequest
	until time.Time // the node has forgotten the owner by itself, and no Try of it can come
}

// cleanups are those of one node.
type cleanups struct {
	all     map[driver.ID]cleanup
	working bool // cleanUpSoon is at work
}

// cleanUpLater notes a release for when the node answers again. o may be nil.
func (n *node) cleanUpLater(o *owner, r voting.WithdrawRequest) {
	r.Settled = false // the request that was lost may come late
	n.mu.Lock()
	n.cleanups.all[r.ID()] = cleanup{o, r, time.Now().Add(max(r.TTL, driver.MaxTransit))}
	idle := n.out == nil && !n.cleanups.working
	n.cleanups.working = n.cleanups.working || idle
	n.mu.Unlock()
	if idle { // it answers others
		n.d.spawn(n.cleanUpSoon)
	}
}

// dropExpired drops what needs no clean-up any more: the node forgot those owners by
// itself. n.mu is held.
func (n *node) dropExpired(now time.Time) (over []cleanup) {
	for id, c := range n.cleanups.all {
		if c.until.Before(now) {
			delete(n.cleanups.all, id)
			over = append(over, c)
		}
	}
	return over
}

// needless tells the owners of clean-ups that the node has nothing of them.
func (n *node) needless(all []cleanup) {
	for _, c := range all {
		c.o.withdrawn(n, 0, nil)
	}
}

// cleanUpSoon is cleanUp for a node that is in service.
func (n *node) cleanUpSoon() {
	for pause := probePause; ; {
		done := n.serving() && n.cleanUp()
		n.mu.Lock()
		if n.out != nil || len(n.cleanups.all) == 0 { // out of service: watchOver cleans up
			n.cleanups.working = false
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		if !done && !pause.Wait(n.d.life.Done()) {
			return
		}
	}
}

// cleanUpLanes is how many releases are delivered at once.
const cleanUpLanes = 16

// cleanUp delivers what could not be released at a node that answers again. It is false
// when the node fails once more.
func (n *node) cleanUp() bool {
	n.mu.Lock()
	over := n.dropExpired(time.Now())
	work := make(chan cleanup, len(n.cleanups.all))
	for _, c := range n.cleanups.all {
		work <- c
	}
	n.mu.Unlock()
	n.needless(over)
	close(work)
	var failed atomic.Bool
	var wg sync.WaitGroup
	for range min(cleanUpLanes, len(work)) {
		wg.Go(func() {
			for c := range work {
				if !n.deliver(c) {
					failed.Store(true)
					return
				}
			}
		})
	}
	wg.Wait()
	return !failed.Load()
}

// deliver sends one release.
func (n *node) deliver(c cleanup) bool {
	ctx, cancel := context.WithTimeout(n.d.life, n.d.probeLimit())
	defer cancel()
	if err := n.drv.Withdraw(ctx, c.req); !c.o.withdrawn(n, c.req.UpTo, err) {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if id := c.req.ID(); n.cleanups.all[id] == c { // else there is another since
		delete(n.cleanups.all, id)
	}
	return true
}
