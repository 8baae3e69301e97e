// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// Release implements [driver.Driver]. What the owner had becomes a tombstone,
// which refuses a late Try of the same owner and is swept soon; of a settled
// owner nothing is left. The key is free then, for the first live place in the queue
// alone.
func (s *Server) Release(ctx context.Context, r driver.ReleaseRequest) error {
	if err := valid(r.Check()); err != nil {
		return err
	}
	var had bool
	err := s.with(ctx, s.spare.conn, func(c *conn) (err error) {
		if had, err = c.release(r); err == nil {
			s.spare.drop(r.ID())
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !had:
		return driver.ErrNotHeld
	}
	return nil
}

func (c *conn) release(r driver.ReleaseRequest) (had bool, err error) {
	if err := c.known(); err != nil {
		return false, err
	}
	finished := flag(r.End == driver.Finished)
	switch at := c.s.crowd.at(r.Key); {
	case !r.Settled || r.Mode != driver.Exclusive || r.End == driver.Unfinished:
	case at.Load():
		if had, err := c.handOn(r, finished); had || err != nil {
			return had, err
		}
	default:
		c.sent = true
		kept := int64(rules.KeepFence)
		n, err := c.count(sRelease, kept, kept, []byte(r.Key), r.Owner, []byte(r.Label), finished)
		if err != nil && !c.failed(err) {
			return false, err
		}
		c.sent = false
		if n > 0 && err == nil {
			return true, nil
		}
	}
	err = c.onKey(r.Claim, nil, func(t *keyTx) (err error) {
		had, err = t.release(driver.WithdrawRequest{ReleaseRequest: r})
		return err
	})
	return had, err
}

// handOn is all of a release in one request, where others wait.
func (c *conn) handOn(r driver.ReleaseRequest, finished int) (had bool, err error) {
	if c.s.parts.Load() {
		return false, nil
	}
	key := []byte(r.Key)
	c.todo = nil
	c.later(sHandOn, key)
	if c.s.eng.text[sNotify] != "" {
		c.later(sNotify, key, key, key)
	}
	return c.send(key, c.step(sHolds, key, r.Owner, []byte(r.Label), finished))
}
