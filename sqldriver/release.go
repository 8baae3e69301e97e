// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"math"

	"github.com/hasplock/hasp/driver"
)

// Release implements [driver.Driver]. What the owner had becomes a tombstone,
// which refuses a late Try of the same owner and is swept soon; of a settled
// owner nothing is left. The key is free then, for the first live place in line
// alone. The key remembers its fence either way.
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

func (t *tx) release(r driver.Request) (had bool, err error) {
	t.litter++
	upTo := int64(math.MaxInt64)
	if r.UpTo != 0 {
		upTo = int64(min(r.UpTo, math.MaxInt64))
	}
	who := []any{[]byte(r.Key), r.Owner, r.Label, int64(t.up)}
	lease := append(who, upTo, int64(t.after(keepFence)))
	late := int64(t.after(goneFor))
	if !r.Settled {
		err = t.row(qGiveUp, append(lease, late)...).Scan(&had)
		if errors.Is(err, sql.ErrNoRows) {
			_, err = t.exec(qBar, append(who, late)...)
		}
		return had, err
	}
	err = t.row(qRetire, lease...).Scan(&had)
	if errors.Is(err, sql.ErrNoRows) {
		err = t.row(qLeave, who...).Scan(&had)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return had, err
}
