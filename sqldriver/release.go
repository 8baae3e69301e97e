// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"

	"github.com/hasplock/hasp/driver"
)

// Release implements [driver.Driver]. What the owner had becomes a tombstone,
// which refuses a late Try of the same owner and is swept soon; of a settled
// owner nothing is left. The key is free then, for the first live place in the queue
// alone. The key remembers its fence either way.
func (d *Driver) Release(ctx context.Context, r driver.ReleaseRequest) error {
	return d.Withdraw(ctx, driver.WithdrawRequest{ReleaseRequest: r})
}

// Withdraw implements [driver.Node].
func (d *Driver) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	if err := valid(r.Check()); err != nil {
		return err
	}
	var had bool
	err := d.writes.do(ctx, 1, func(t *tx) (err error) {
		had, err = t.release(r)
		return err
	})
	switch {
	case err != nil:
		return lostWith(err)
	case !had:
		return driver.ErrNotHeld
	}
	return nil
}

func (t *rules) release(r driver.WithdrawRequest) (had bool, err error) {
	t.rowsMade++
	was, ok, err := t.end(r)
	if err == nil && ok && was.fence != 0 {
		err = t.depart(was, r.End)
	}
	return was.expires > t.up, err
}

// leaves says whether the end of a lease leaves the mark of Result.Abandoned.
func (l departed) leaves(end driver.End) bool {
	switch {
	case l.mode == driver.Shared && l.most == 0: // it only read
		return false
	case end == driver.Unused:
		return l.mark
	}
	return end == driver.Unfinished
}

// depart leaves in the key's own row what is to be known of a lease that was
// given up.
func (t *rules) depart(l departed, end driver.End) error {
	marks := l.leaves(end)
	if l.mode == driver.Shared {
		return t.left(l.key, l.expires, marks)
	}
	if !marks {
		return nil
	}
	t.rowsMade++
	return t.setKey(l.key, row{fence: l.fence, since: t.up, expires: t.up, mark: true}, l.fence)
}
