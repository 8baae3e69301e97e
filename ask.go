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

// ask is one Try, and a second when the first was refused by a store whose wait was
// just over. refusal is of one that is about the store, not about the key.
func (c *core) ask(ctx context.Context, r driver.TryRequest) (res driver.Result, refusal, err error) {
	for range 2 {
		res, err = c.drv.Try(ctx, r)
		if c.hears(err); err != nil {
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
func (c *core) refusedToVote(ctx context.Context, res driver.Result, ttl time.Duration) (admitted bool, err error) {
	switch res.Why {
	case driver.NotVoting:
		n, ok := c.drv.(driver.Recorded)
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

// unshared returns why the engine cannot share a key, or not by number.
func (c *core) unshared(limit int) error {
	switch tr := c.traits; {
	case !tr.Shared:
		return fmt.Errorf("%w: %s gives a key to one holder at a time", ErrUnsupported, tr.Engine)
	case limit > 0 && !tr.Slots:
		return fmt.Errorf("%w: %s has no slots: counting votes would admit more than %d", ErrUnsupported, tr.Engine, limit)
	}
	return nil
}

// heldBack returns how long a store is still held back, as far as an error says.
func heldBack(err error) time.Duration {
	if held := (*admission.HeldBack)(nil); errors.As(err, &held) {
		return max(held.Left, 0)
	}
	return 0
}
