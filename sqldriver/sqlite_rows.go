// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"database/sql"
	"errors"
	"math"
	"time"

	"github.com/hasplock/hasp/driver"
)

// The rows of SQLite, where every key is the transaction's.

func (t *tx) hold(c driver.Claim, fence int64, until time.Duration, mark bool) error {
	_, err := t.exec(qGrant, []byte(c.Key), c.Owner, c.Label, fence, int64(t.up), int64(until), flag(mark))
	return err
}

func (t *tx) shares(c driver.Claim, r row) error {
	_, err := t.exec(qShare, []byte(c.Key), c.Owner, c.Label, r.fence, int64(r.since), int64(r.expires), c.Limit, r.slot, flag(r.mark))
	return err
}

func (t *tx) setKey(key string, r row, wrote int64) error {
	_, err := t.exec(qKeyRow, []byte(key), r.fence, int64(r.since), int64(r.expires), r.most, flag(r.mark), wrote)
	return err
}

func (t *tx) prolong(key, owner string, until time.Duration, fence int64) error {
	_, err := t.exec(qExtend, []byte(key), owner, int64(until), fence)
	return err
}

func (t *tx) queue(c driver.Claim, until time.Duration) error {
	_, err := t.exec(qJoin, []byte(c.Key), c.Owner, c.Label, int64(t.up), int64(until), c.Mode, limit(c))
	return err
}

func (t *tx) endHolders(key string) error {
	_, err := t.exec(qEndHolders, []byte(key), int64(t.up))
	return err
}

func (t *tx) endSharers(key string) (marked bool, err error) {
	res, err := t.exec(qEndSharers, []byte(key), int64(t.up))
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

func (t *tx) remember(key string) error {
	_, err := t.exec(qRemember, []byte(key))
	return err
}

func (t *tx) left(key string, until time.Duration, mark bool) error {
	_, err := t.exec(qDepart, []byte(key), int64(until), int64(t.up), flag(mark))
	return err
}

func (t *tx) renewLease(r driver.RenewRequest, until time.Duration) (lease prolonged, ok bool, err error) {
	err = t.row(qRenew, []byte(r.Key), r.Owner, r.Label, int64(t.up), int64(until), int64(r.Fence)).
		Scan((*int64)(&lease.expires), &lease.wanted, &lease.mode)
	if errors.Is(err, sql.ErrNoRows) {
		return prolonged{}, false, nil
	}
	return lease, err == nil, err
}

func (t *tx) end(r driver.WithdrawRequest) (was departed, ok bool, err error) {
	upTo := int64(math.MaxInt64)
	if r.UpTo != 0 {
		upTo = int64(min(r.UpTo, math.MaxInt64))
	}
	was.key = r.Key
	lease := []any{[]byte(r.Key), r.Owner, r.Label, upTo, int64(t.after(keepFence))}
	if r.Settled {
		err = was.scan(t.row(qRetire, lease...))
		if errors.Is(err, sql.ErrNoRows) {
			err = was.scan(t.row(qLeave, lease[:4]...))
		}
		if errors.Is(err, sql.ErrNoRows) {
			return departed{}, false, nil
		}
		return was, err == nil, err
	}
	late := int64(t.after(goneFor))
	err = was.scan(t.row(qRelease, append(lease, late)...))
	if errors.Is(err, sql.ErrNoRows) {
		_, err = t.exec(qRefuseLater, []byte(r.Key), r.Owner, r.Label, int64(t.up), late)
		return departed{}, false, err
	}
	return was, err == nil, err
}

func (l *departed) scan(from *sql.Row) error {
	return from.Scan((*int64)(&l.expires), &l.fence, &l.mode, &l.most, &l.mark)
}

// flag is a column's value for b.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
