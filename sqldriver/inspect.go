// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Inspect implements [driver.Driver]. It writes nothing, not even the tables.
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if err := valid(driver.CheckKey(key)); err != nil {
		return driver.Info{}, err
	}
	info := driver.Info{Key: key, ByHand: d.dia.byHand(key)}
	err := d.survey(ctx, qKey, qOldKey, func(now time.Duration) []any {
		return []any{[]byte(key), int64(now)}
	}, func(rows *sql.Rows, now time.Duration) error {
		var r row
		err := rows.Scan(&r.kind, &r.owner, &r.label, &r.fence, (*int64)(&r.since), (*int64)(&r.expires), &r.mode, &r.most, &r.slot)
		add(&info, r, now)
		return err
	})
	if err != nil {
		return driver.Info{}, err
	}
	return info, nil
}

// add adds an owner to those of a key, in order.
func add(info *driver.Info, r row, now time.Duration) {
	if r.kind != kindHeld {
		info.Queue = append(info.Queue, r.holder(now))
		info.Waiters++
		return
	}
	info.Holds++
	info.Holders = append(info.Holders, r.lease(now))
	if info.Holds == 1 {
		describe(info, info.Holders[0])
	}
}

// pageKeys is how many keys List reads at once.
const pageKeys = 256

// List implements [driver.Driver]. It reads page by page, in the order of the
// keys' bytes, and holds nothing of the database while it yields.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return pages(prefix, func(from, last string, after int) ([]driver.Info, string, error) {
		page, err := d.page(ctx, from, last, after)
		if err != nil || len(page) < pageKeys {
			return page, "", err
		}
		return page, page[len(page)-1].Key, nil
	})
}

// page reads the keys that are held or waited for, from one to another. The
// first is left out when after is 1.
func (d *Driver) page(ctx context.Context, from, last string, after int) ([]driver.Info, error) {
	var page []driver.Info
	err := d.survey(ctx, qKeys, qOldKeys, func(now time.Duration) []any {
		return []any{[]byte(from), []byte(last), int64(now), pageKeys, after}
	}, func(rows *sql.Rows, now time.Duration) error {
		var key []byte
		var info driver.Info
		var h nullRow
		err := rows.Scan(&key, &info.Waiters, &info.Holds, &h.owner, &h.label, &h.fence, &h.since, &h.expires, &h.mode, &h.most, &h.slot)
		info.Key = string(key)
		if h.owner.Valid {
			describe(&info, h.row(kindHeld).lease(now))
		}
		page = append(page, info)
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

func (r row) lease(now time.Duration) driver.Holding {
	return driver.Holding{Holder: r.holder(now), Fence: uint64(r.fence), Left: r.expires - now}
}

// describe is for the holder who came first.
func describe(info *driver.Info, first driver.Holding) {
	info.Held, info.Holder, info.Fence, info.Left = true, first.Holder, first.Fence, first.Left
}

// survey reads rows that are not over, with old where the tables are of an earlier
// version. There are none when the tables are missing, or the clock that ends
// leases began anew.
func (d *Driver) survey(ctx context.Context, q, old query, args func(now time.Duration) []any,
	each func(rows *sql.Rows, now time.Duration) error) error {
	return d.read(ctx, func(ctx context.Context) error {
		now, version, err := d.present(ctx)
		if version == 0 || err != nil {
			return err
		}
		if version < modesVersion {
			q = old
		}
		stmt, err := d.stmt(ctx, q)
		if err != nil {
			return err
		}
		rows, err := stmt.QueryContext(ctx, args(now)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := each(rows, now); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// present reads the clock, and says of which version the tables are, 0 when there
// are none or their rows are over. now is the moment that the rows' times are to be
// compared with. The store's mark is read first: one from after the clock would
// look like a clock that went back.
func (d *Driver) present(ctx context.Context) (now time.Duration, version int, err error) {
	var h head
	fields := h.fields()
	stmt, err := d.stmt(ctx, qHead)
	if isOldTable(err) {
		fields = fields[:5]
		stmt, err = d.stmt(ctx, qBoot)
	}
	if isNoTable(err) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	switch err := stmt.QueryRowContext(ctx).Scan(fields...); {
	case errors.Is(err, sql.ErrNoRows):
		return 0, 0, errNoHead
	case err != nil:
		return 0, 0, err
	}
	at, err := d.dia.see()
	if err != nil {
		return 0, 0, err
	}
	switch change, err := d.dia.clockChange(h, at); {
	case change == rebooted || err != nil:
		return 0, 0, err
	case change == unknownClock:
		return time.Duration(h.clock), h.version, nil
	}
	return at.up, h.version, nil
}
