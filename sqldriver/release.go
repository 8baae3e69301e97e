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
		return err
	case !had:
		return driver.ErrNotHeld
	}
	return nil
}

func (t *tx) release(r driver.WithdrawRequest) (had bool, err error) {
	t.rowsMade++
	upTo := int64(math.MaxInt64)
	if r.UpTo != 0 {
		upTo = int64(min(r.UpTo, math.MaxInt64))
	}
	was := departed{key: r.Key}
	lease := []any{[]byte(r.Key), r.Owner, r.Label, upTo, int64(t.after(keepFence))}
	if r.Settled {
		err = was.scan(t.row(qRetire, lease...))
		if errors.Is(err, sql.ErrNoRows) {
			err = was.scan(t.row(qLeave, lease[:4]...))
		}
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
	} else {
		late := int64(t.after(goneFor))
		err = was.scan(t.row(qRelease, append(lease, late)...))
		if errors.Is(err, sql.ErrNoRows) {
			_, err = t.exec(qRefuseLater, []byte(r.Key), r.Owner, r.Label, int64(t.up), late)
			return false, err
		}
	}
	if err == nil && was.fence != 0 {
		err = t.depart(was, r.End)
	}
	return was.expires > t.up, err
}

// departed is what a lease was, or a place, which has no fence.
type departed struct {
	key string
	row
}

func (l *departed) scan(from *sql.Row) error {
	return from.Scan((*int64)(&l.expires), &l.fence, &l.mode, &l.most, &l.mark)
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
func (t *tx) depart(l departed, end driver.End) error {
	marks := l.leaves(end)
	if l.mode == driver.Shared {
		_, err := t.exec(qDepart, []byte(l.key), int64(l.expires), int64(t.up), flag(marks))
		return err
	}
	if !marks {
		return nil
	}
	t.rowsMade++
	return t.keyRow(l.key, row{fence: l.fence, since: t.up, expires: t.up, mark: true}, l.fence)
}
