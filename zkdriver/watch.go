// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"

	"github.com/hasplock/hasp/driver"
)

// Watch implements [driver.Driver]. A Try that is refused with a place has the store watch the node that it waits for.
func (d *Driver) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	if err := d.valid(c.Check()); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return d.c.listen(ctx, d.place(c)), nil
}
