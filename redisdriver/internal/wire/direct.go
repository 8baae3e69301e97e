// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/redis/go-redis/v9"
)

// direct is what lone calls are sent with: a client over the same connections, with
// time-outs of its own.
type direct struct {
	rdb *redis.Client

	mu    sync.Mutex
	short *redis.Client
	made  time.Time
	used  time.Time
}

const (
	// shortLives is how long a client with other time-outs is used: hooks that its origin got meanwhile are
	// not in it.
	shortLives = time.Second
	// stillOpen is for how long after an answer a connection is taken to be free.
	stillOpen = 100 * time.Millisecond
)

// client returns the client, or nil when there may be no connection: to wait for one is for a lane.
func (d *direct) client() *redis.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if now.Sub(d.used) > stillOpen && d.rdb.PoolStats().IdleConns == 0 {
		return nil
	}
	if now.Sub(d.made) > shortLives {
		d.short, d.made = d.rdb.WithTimeout(aloneFor), now
	}
	d.used = now
	return d.short
}

// sendAlone sends a call by its caller's goroutine, and reports whether it did: if it is the
// only one, a request of a batch script, and the server answers promptly. That saves two switches between
// goroutines, half of what a call costs. It counts as a lane.
//
// The client lets no context interrupt its sockets, so the caller cannot leave, but for less time than
// it is given: then it is told to ask again, and that takes a lane. So one call of a server that stops answering
// is held up, for a moment, and no other.
func (s *Sender) sendAlone(ctx, caller context.Context, c *Call) bool {
	if s.direct == nil || !c.Script.Batch || !s.prompt.Load() {
		return false
	}
	if by, ok := ctx.Deadline(); ok && time.Until(by) < aloneFor {
		return false
	}
	rdb := s.direct.client()
	if rdb == nil || !s.takeAlone() {
		return false
	}
	c.ctx, c.alone[0] = ctx, c
	s.send(caller, rdb, c.alone[:])
	if c.Err != nil {
		c.Err = tooSlow(c.Err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned++
	s.away--
	s.busy--
	if len(s.queue) > 0 {
		s.start()
	}
	return true
}

// tooSlow makes [driver.AskAgain] of an answer that did not come.
func tooSlow(err error) error {
	var network net.Error
	if errors.As(err, &network) && network.Timeout() && !driver.IsNotSent(err) {
		return driver.AskAgain(err)
	}
	return err
}

// takeAlone makes a lane of the caller, if there is no other, and nothing to do for one.
func (s *Sender) takeAlone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy > 0 || len(s.queue) > 0 {
		return false
	}
	s.busy++
	s.away++
	return true
}
