// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// renewersAtOnce is how many connections a Renew takes.
const renewersAtOnce = 4

// Renew implements [driver.Driver]: a statement for many leases that are held alone, and a
// transaction for each other and for each place, on a few connections. Keys that are locked come last, so that
// no other lease or place waits for them.
func (s *Server) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	report := done
	done = func(i int, r driver.Renewal) {
		s.spare.renewed(rs[i].ID(), r)
		report(i, r)
	}
	leases, places := s.renewTogether(ctx, rs, done)
	if len(rs) > 1 {
		leases, places = s.renewEach(ctx, rs, leases, true, done), s.renewEach(ctx, rs, places, true, done)
	}
	s.renewEach(ctx, rs, append(leases, places...), false, done)
}

// renewEach renews some of the leases, one by one, and returns those that it passed over.
func (s *Server) renewEach(ctx context.Context, rs []driver.RenewRequest, some []int, passOver bool, done func(i int, r driver.Renewal)) (locked []int) {
	next := make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range min(renewersAtOnce, len(some)) {
		wg.Go(func() {
			for i := range next {
				r := s.renew(ctx, rs[i], passOver)
				if !errors.Is(r.Err, errLocked) {
					done(i, r)
					continue
				}
				mu.Lock()
				locked = append(locked, i)
				mu.Unlock()
			}
		})
	}
	for _, i := range some {
		next <- i
	}
	close(next)
	wg.Wait()
	return locked
}

// renewTogether renews leases that are held alone, and returns the rest, and the places.
func (s *Server) renewTogether(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) (rest, places []int) {
	alike := make(map[time.Duration][]int)
	for i, r := range rs {
		switch {
		case r.Queue:
			places = append(places, i)
		case r.TTL <= longest && r.Check() == nil:
			alike[r.TTL] = append(alike[r.TTL], i)
		default:
			rest = append(rest, i)
		}
	}
	most := renewSizes[len(renewSizes)-1]
	for ttl, all := range alike {
		for chunk := range slices.Chunk(all, most) {
			if len(rs) == 1 {
				rest = append(rest, chunk...)
				continue
			}
			var left map[driver.ID]driver.Renewal
			err := s.with(ctx, s.spare.conn, func(c *conn) (err error) {
				left, err = c.renewMany(rs, chunk, ttl)
				return err
			})
			for _, i := range chunk {
				if err != nil {
					done(i, driver.Renewal{Err: err})
				} else if renewed, ok := left[rs[i].ID()]; ok {
					done(i, renewed)
				} else {
					rest = append(rest, i)
				}
			}
		}
	}
	return rest, places
}

// renewMany renews leases, and returns what came of those that it could. Some of the
// fences are not compared: only a node of a quorum needs to.
func (c *conn) renewMany(rs []driver.RenewRequest, chunk []int, ttl time.Duration) (map[driver.ID]driver.Renewal, error) {
	if err := c.known(); err != nil {
		return nil, err
	}
	size := renewSizes[slices.IndexFunc(renewSizes, func(n int) bool { return n >= len(chunk) })]
	var keys, ids []any
	labels := make(map[driver.ID]string, len(chunk))
	for n := range size { // the last one stands in for those that there are not
		r := rs[chunk[min(n, len(chunk)-1)]]
		keys = append(keys, []byte(r.Key))
		ids = append(ids, []byte(r.Key), r.Owner, []byte(r.Label))
		labels[driver.ID{Key: r.Key, Owner: r.Owner}] = r.Label
	}
	names := append(keys, ids...)
	lasts := int64(span(ttl))
	c.sent = true
	began := time.Now()
	text, args := c.writtenFor(sRenewMany, size, append(slices.Clone(names), lasts, lasts, int64(ttl), int64(ttl+rules.KeepFence)))
	if _, err := c.sql.ExecContext(c.ctx, text, args...); err != nil {
		if c.failed(err) {
			err = nil
		}
		return nil, err
	}
	c.sent = false
	text, args = c.writtenFor(sRenewed, size, names)
	left := make(map[driver.ID]driver.Renewal, len(chunk))
	rows, err := c.sql.QueryContext(c.ctx, text, args...)
	err = eachRow(rows, err, func(rows *sql.Rows) error {
		var id driver.ID
		var r driver.Renewal
		err := rows.Scan(&id.Key, &id.Owner, &r.TTL, &r.Wanted)
		if id.Label = labels[id]; r.TTL+time.Since(began)+time.Millisecond >= ttl { // else it was locked, and passed over
			left[id] = r
		}
		return err
	})
	return left, err
}

func (s *Server) renew(ctx context.Context, r driver.RenewRequest, passOver bool) driver.Renewal {
	if err := valid(r.Check()); err != nil {
		return driver.Renewal{Err: err}
	}
	var out driver.Renewal
	err := s.with(ctx, s.spare.conn, func(c *conn) (err error) {
		c.passOver = passOver
		out, err = c.renew(r)
		return err
	})
	if err != nil {
		return driver.Renewal{Err: err}
	}
	return out
}

func (c *conn) renew(r driver.RenewRequest) (out driver.Renewal, err error) {
	var seen *keyView
	if r.Queue {
		s, err := c.look(r.Claim)
		if err != nil {
			return out, err
		}
		if s.there {
			seen = &s
		}
		if !s.stale && !tooLong(s.key, s.now.At) && s.Own.Live(s.now.At) && s.Own.Kind == rules.Queued && s.Own.Label == r.Label && !s.Own.WorthWriting(r.Patience, s.now.At) {
			return driver.Renewal{RetryIn: s.Refusal(r.Claim, s.now, s.Hints).RetryIn}, nil
		}
	}
	if !c.passOver && !r.Queue && !c.s.crowd.at(r.Key).Load() && r.TTL <= longest && r.Fence <= math.MaxInt64 {
		if err := c.known(); err != nil {
			return out, err
		}
		c.sent = true
		n, err := c.count(sRenew, int64(span(r.TTL)), int64(span(r.TTL)), int64(r.TTL), int64(r.TTL+rules.KeepFence), []byte(r.Key), r.Owner, []byte(r.Label), int64(r.Fence))
		if err != nil && !c.failed(err) {
			return out, err
		}
		c.sent = false
		if n > 0 && err == nil {
			return driver.Renewal{TTL: r.TTL}, nil
		}
	}
	if !r.Queue && r.Mode == driver.Shared && r.TTL <= longest && r.Fence <= math.MaxInt64 {
		if out, err = c.renewShared(r); err != nil || out.TTL > 0 {
			return out, err
		}
	}
	err = c.onKey(r.Claim, seen, func(t *keyTx) (err error) {
		out, err = t.renew(r)
		return err
	})
	return out, err
}

// renewShared renews a lease that is shared, in one request that locks the key: what others do with theirs meanwhile does not
// matter. The zero Renewal: it was not done.
func (c *conn) renewShared(r driver.RenewRequest) (out driver.Renewal, err error) {
	if err := c.unlocked(r.Key); err != nil || c.s.parts.Load() {
		return out, err
	}
	seen, err := c.look(r.Claim)
	if err != nil || seen.Own.Kind != rules.Held || !seen.Own.Live(seen.now.At) || !seen.Shared() {
		return out, err
	}
	key, lasts := []byte(r.Key), int64(span(r.TTL))
	c.todo = nil
	c.later(sShareOn, lasts, lasts, int64(r.TTL), key, r.Owner)
	c.later(sLastOn, lasts, lasts, r.Owner, r.Owner, int64(rules.KeepFence), key)
	done, err := c.send(key, c.step(sShares, key, r.Owner, []byte(r.Label), int64(r.Fence)))
	if done {
		out = driver.Renewal{TTL: r.TTL, Wanted: seen.waiting > 0}
	}
	return out, err
}
