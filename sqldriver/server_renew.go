// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"math"
	"sync"

	"github.com/hasplock/hasp/driver"
)

// renewersAtOnce is how many connections a Renew takes.
const renewersAtOnce = 4

// Renew implements [driver.Driver]: a statement for each lease for which nobody waits, and a
// transaction for each other, on a few connections.
func (s *Server) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(renewersAtOnce, len(rs)) {
		wg.Go(func() {
			for i := range next {
				done(i, s.renew(ctx, rs[i]))
			}
		})
	}
	for i := range rs {
		next <- i
	}
	close(next)
	wg.Wait()
}

func (s *Server) renew(ctx context.Context, r driver.RenewRequest) driver.Renewal {
	if err := valid(r.Check()); err != nil {
		return driver.Renewal{Err: err}
	}
	var out driver.Renewal
	err := s.do(ctx, func(c *conn) (err error) {
		out, err = c.renew(r)
		return err
	})
	if err != nil {
		return driver.Renewal{Err: err}
	}
	return out
}

func (c *conn) renew(r driver.RenewRequest) (out driver.Renewal, err error) {
	if r.Queue {
		s, err := c.look(r.Claim)
		if err != nil {
			return out, err
		}
		if s.own.live(s.now.up) && s.own.kind == kindQueued && s.own.label == r.Label && !s.own.worthWriting(r.Patience, s.now.up) {
			return driver.Renewal{RetryIn: s.refusal(r.Claim, s.now).RetryIn}, nil
		}
	}
	if !r.Queue && r.TTL <= longest && r.Fence <= math.MaxInt64 {
		if err := c.known(); err != nil {
			return out, err
		}
		n, err := c.count(sRenew, int64(r.TTL), int64(r.TTL+keepFence), []byte(r.Key), r.Owner, []byte(r.Label), int64(r.Fence))
		if err != nil && !c.failed(err) {
			return out, err
		}
		if n > 0 && err == nil {
			return driver.Renewal{TTL: r.TTL}, nil
		}
	}
	err = c.onKey(r.Claim, func(t *keyTx) (err error) {
		out, err = t.renewOne(r)
		return err
	})
	return out, err
}
