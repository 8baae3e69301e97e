// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zk

import (
	"sync"
	"time"
)

// patience is for how long a server may say nothing to what it was asked before the connection counts as dead. It is short, so
// that a lease outlives a connection that is cut off in silence. A server that is slow gets more of it: after each silence twice as much,
// and after an answer twice what that took, for a few answers.
type patience struct {
	mu   sync.Mutex
	bear time.Duration // by the shortest lease
	slow time.Duration // by the latest answers
}

const (
	bearLeast = 500 * time.Millisecond
	bearMost  = 2 * time.Second
	// bearShare is the part of the shortest lease that a silence may take. A renewal begins when a third of it has passed.
	bearShare = 6
)

// Bear says how long the shortest lease is that this client holds; 0: it holds none.
func (c *Client) Bear(shortest time.Duration) {
	c.bears.mu.Lock()
	defer c.bears.mu.Unlock()
	c.bears.bear = bearMost
	if shortest > 0 {
		c.bears.bear = min(max(shortest/bearShare, bearLeast), bearMost)
	}
}

func (p *patience) limit(most time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now(most)
}

func (p *patience) now(most time.Duration) time.Duration {
	if p.bear == 0 {
		p.bear = bearMost
	}
	return min(max(p.bear, p.slow), most)
}

// silent notes that nothing came for as long as that.
func (p *patience) silent(most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = 2 * p.now(most)
}

func (p *patience) answered(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = max(p.slow-p.slow/4, 2*took)
}
