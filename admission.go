// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
)

// Admit gives the operator's word that no locks are active in the store: what is
// held back because it may have forgotten leases grants from now on. It is for a
// new deployment, and after a restart that ended all work, too. A wrong word can
// lead to two holders. Without it, a store that keeps a node record grants
// nothing for its largest TTL and about ten seconds after a restart.
// ErrUnsupported: this store holds nothing back.
func (c *Client) Admit(ctx context.Context) error {
	ctx, done, err := c.during(ctx)
	if err != nil {
		return c.fail("admit", "", err)
	}
	defer done()
	switch d := c.drv.(type) {
	case driver.Admitter:
		err = d.Admit(ctx)
	case driver.Node:
		var rec driver.Record
		if rec, err = d.Record(ctx); err == nil && !rec.Voting {
			err = d.Admit(ctx, rec, c.traits.MaxTTL)
		}
	default:
		err = ErrUnsupported
	}
	return c.fail("admit", "", err)
}

// ask is one Try, and a second when the first was refused by a store whose wait was
// just over. refusal is of one that is about the store, not about the key.
func (c *Client) ask(ctx context.Context, r driver.Request) (res driver.Result, refusal, err error) {
	for range 2 {
		if res, err = c.drv.Try(ctx, r); err != nil || res.Granted {
			return res, nil, err
		}
		var admitted bool
		if admitted, refusal = c.refusedToVote(ctx, res, r.TTL); !admitted {
			break
		}
	}
	return res, refusal, nil
}

// refusedToVote is the error of a refusal that is about the store; nil for any
// other. A store that is held back is admitted when its wait is over.
func (c *Client) refusedToVote(ctx context.Context, res driver.Result, ttl time.Duration) (admitted bool, err error) {
	switch res.Why {
	case driver.NotVoting:
		n, ok := c.drv.(driver.Node)
		if !ok {
			return false, &admission.HeldBack{Left: res.Left}
		}
		rec, err := n.Record(ctx)
		if err == nil {
			err = c.waits.Admit(ctx, n, rec, c.traits.MaxTTL, max(c.traits.MaxTTL, rec.MaxTTL))
		}
		return err == nil, cmp.Or[error](err, &admission.HeldBack{})
	case driver.TTLTooLong:
		return false, &tooLongError{ttl, res.TTL}
	}
	return false, nil
}

// heldBack returns how long a store is still held back, as far as an error says.
func heldBack(err error) time.Duration {
	if held := (*admission.HeldBack)(nil); errors.As(err, &held) {
		return max(held.Left, 0)
	}
	return 0
}

// tooLongError is a TTL above what a store was admitted for.
type tooLongError struct{ ttl, most time.Duration }

func (e *tooLongError) Error() string {
	return fmt.Sprintf("the TTL is %v, and the store was admitted for leases of at most %v: ask for less, or configure the same largest TTL everywhere", e.ttl, e.most)
}
