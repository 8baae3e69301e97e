// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// Try implements [driver.Driver]. A key for which nobody stands in the way is granted by
// one statement, and a refusal that changes nothing is one that only reads.
func (s *Server) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	if err := valid(r.Check()); err != nil {
		return driver.Result{}, err
	}
	var res driver.Result
	err := s.do(ctx, func(c *conn) (err error) {
		if res, err = c.try(driver.VoteRequest{TryRequest: r}); err == nil && res.Granted {
			s.spare.hold(r.ID(), res.TTL)
		}
		return err
	})
	if err != nil {
		return driver.Result{}, err
	}
	return res, nil
}

func (c *conn) try(r driver.VoteRequest) (driver.Result, error) {
	if err := c.known(); err != nil {
		return driver.Result{}, err
	}
	plain := r.Mode == driver.Exclusive && !r.Convert && r.TTL <= longest
	asked := plain && !r.Queue // who queues was refused before, most likely
	if asked {
		if res, err := c.grantAtOnce(r); err != nil || res.Granted {
			return res, err
		}
	}
	s, err := c.look(r.Claim)
	if err != nil {
		return driver.Result{}, err
	}
	switch verdict := s.Decide(r, s.now); {
	case verdict == rules.Refuse && !s.stale && !tooLong(s.key, s.now.At):
		return s.Refused(r, s.now), nil
	case verdict == rules.Grant:
		if plain && !asked && !s.others && s.key.Kind == "" {
			if res, err := c.grantAtOnce(r); err != nil || res.Granted {
				return res, err
			}
		}
	}
	var res driver.Result
	err = c.onKey(r.Claim, &s, func(t *keyTx) (err error) {
		if res, err = t.try(r); t.joins && t.again { // the key may be free by then, and its holder have told nobody of it
			res.RetryIn = time.Millisecond
		}
		return err
	})
	return res, err
}

// longest is the longest TTL of a statement that does not look at the end of the numbers.
const longest = 100 * 365 * 24 * time.Hour

// grantAtOnce grants a key of which nothing is to be known but that it was released. The
// zero Result: something is; or others were faster.
func (c *conn) grantAtOnce(r driver.VoteRequest) (driver.Result, error) {
	ttl, kept, lasts := int64(r.TTL), int64(r.TTL+rules.KeepFence), int64(span(r.TTL))
	fence, fences := int64(0), max(r.Fences, 1)
	c.sent = true
	var err error
	if c.s.eng.sequence {
		fences = min(fences, fencesAtOnce)
		var made int
		key, label := []byte(r.Key), []byte(r.Label)
		err = c.scan(sGrant, []any{r.Owner, label, lasts, ttl, kept, key, key, r.Owner, label, lasts, ttl, kept, key}, &fence, &made)
		c.made += made
	} else {
		var res sql.Result
		var n int64
		if res, err = c.exec(sGrant, r.Owner, []byte(r.Label), fences, lasts, ttl, kept, []byte(r.Key)); err == nil {
			n, err = res.RowsAffected()
		}
		if err == nil && n > 0 {
			fence, err = res.LastInsertId()
		}
	}
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && fence == 0 || c.failed(err):
		c.sent = false
		return driver.Result{}, nil
	case err != nil:
		return driver.Result{}, err
	}
	c.sent = false
	c.s.crowd.at(r.Key).Store(false)
	return driver.Result{Granted: true, Fence: uint64(fence), Fences: fences, TTL: r.TTL}, nil
}

// failed says whether a statement failed, by the server's own answer, since others were
// faster, and so changed nothing.
func (c *conn) failed(err error) bool {
	return err != nil && (c.s.eng.overtook(err) || in(sqlState(err), stateTooSlow))
}

// stateTooSlow is that of a division by zero, see sGrant.
const stateTooSlow = "22012"
