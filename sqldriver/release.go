// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"

	"github.com/hasplock/hasp/driver"
)

// Release implements [driver.Driver]. What the owner had becomes a tombstone,
// which refuses a late Try of the same owner and is swept soon. The key is
// free then, for the first live place in line alone.
func (d *Driver) Release(ctx context.Context, r driver.Request) error {
	if err := supported(r); err != nil {
		return err
	}
	var had bool
	err := d.writes.do(ctx, 1, func(t *tx) (err error) {
		had, err = t.release(r)
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

func (t *tx) release(r driver.Request) (bool, error) {
	t.litter++
	args := []any{[]byte(r.Key), r.Owner, r.Label, int64(t.now), int64(t.after(goneFor))}
	res, err := t.exec(qGiveUp, args...)
	if err != nil {
		return false, err
	}
	if n, err := res.RowsAffected(); n > 0 || err != nil {
		return n > 0, err
	}
	_, err = t.exec(qBar, args...)
	return false, err
}
