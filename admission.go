// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"

	"github.com/hasplock/hasp/driver"
)

// Admit declares, on the operator's behalf, that no locks are active in the store:
// a store, or node, that is held back because it may have lost leases grants from
// now on. It is for a new deployment, and for a restart that ended all work, too. A
// wrong declaration can lead to two holders. Without it, a store that keeps a node record
// grants nothing for its largest TTL and about ten seconds after a restart.
// ErrUnsupported: this store holds nothing back.
func (c *Client) Admit(ctx context.Context) error {
	ctx, done, err := c.calls.During(ctx)
	if err != nil {
		return c.fail("admit", "", err)
	}
	defer done()
	switch d := c.drv.(type) {
	case driver.Admitter:
		err = d.Admit(ctx)
	case driver.Recorded:
		var rec driver.Record
		if rec, err = d.Record(ctx); err == nil && !rec.Voting {
			err = d.Admit(ctx, rec, c.traits.MaxTTL)
		}
	default:
		err = ErrUnsupported
	}
	return c.fail("admit", "", err)
}
