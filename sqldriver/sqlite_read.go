// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// maxReads bounds the connections that reads take from the caller's pool. One
// more is taken for writing.
const maxReads = 4

// read runs f, which reads outside of a transaction, and returns when it has
// finished or ctx has ended, whichever is first: a disk that hangs holds up a
// goroutine of ours, not the caller, and never more than maxReads of them.
//
// After an error f may still be running: what it sets must not be looked at.
func (s *sqlite) read(ctx context.Context, f func(ctx context.Context) error) error {
	if s.bad != nil {
		return s.bad
	}
	select {
	case s.reads <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	began := time.Now()
	err := s.bounded(ctx, s.endLimit, func() error {
		defer func() { <-s.reads }()
		if err := s.connect(ctx); err != nil {
			return err
		}
		return s.reopen(ctx, f(ctx))
	})
	switch {
	case err != nil && ctx.Err() != nil && isLocked(err):
		err = &waitError{what: stayedLocked, waited: time.Since(began), err: ctx.Err()}
	case err != nil && ctx.Err() != nil: // interrupted, in SQLite's words
		err = &waitError{what: diskHangs, waited: time.Since(began), err: ctx.Err()}
	}
	return s.explain(err)
}

// look reads a view, outside of a transaction; nil when there is none that
// means something: the tables are missing, everything in them is over, or it was
// written since the clock was read.
func (s *sqlite) look(ctx context.Context, c driver.Claim) (rules.Now, *rules.View, error) {
	now, err := s.see()
	if err != nil {
		return now.Now, nil, err
	}
	stmt, err := s.texts.get(ctx, beside(c, qLook, qLookBeside))
	if isNoTable(err) {
		return now.Now, nil, nil
	}
	if err != nil {
		return now.Now, nil, err
	}
	v, h := new(rules.View), new(head)
	if err := scanView(v, c, stmt.QueryRowContext(ctx, []byte(c.Key), c.Owner, int64(now.At)), h.fields()...); err != nil {
		return now.Now, nil, err
	}
	if change, err := h.clockChange(now); change != sameClock || err != nil {
		return now.Now, nil, err
	}
	v.Floors, v.Run = h.floors, h.node
	n := v.Needs(c, now.At)
	if n == 0 {
		return now.Now, v, nil
	}
	if stmt, err = s.texts.get(ctx, qBeside); err != nil {
		return now.Now, nil, err
	}
	v.Beside, err = readRows(stmt.QueryContext(ctx, []byte(c.Key), int64(now.At), n))
	return now.Now, v, err
}

// beside is the query for a claim alone, or for a claim that would share the key.
func beside(c driver.Claim, alone, shared query) query {
	if c.Mode == driver.Shared {
		return shared
	}
	return alone
}

// scanView reads a view, and what follows it in the row.
func scanView(v *rules.View, c driver.Claim, from *sql.Row, rest ...any) error {
	var holder, own nullRow
	var inKey, inGone int64
	fields := []any{&holder.owner, &holder.label, &holder.fence, &holder.since, &holder.expires, &holder.mark, &holder.most,
		&own.kind, &own.label, &own.fence, &own.since, &own.expires, &own.most, &v.Gone, &v.Ahead}
	if c.Mode == driver.Shared {
		fields = append(fields, &v.Barred, &v.Least, &own.mark, &own.slot, &inKey, &inGone, &v.Ended)
	}
	switch err := from.Scan(append(fields, rest...)...); {
	case errors.Is(err, sql.ErrNoRows):
		return errNoHead
	case err != nil:
		return err
	}
	v.Own = own.row(own.kind.String)
	if holder.owner.Valid {
		v.Holder = holder.row(rules.Held)
	}
	v.Least = rules.Smaller(v.Least, c.Limit)
	v.Wrote = max(inKey, inGone)
	if !v.Shared() {
		v.Wrote = max(v.Wrote, v.Holder.Fence)
	}
	return nil
}

// survey reads rows that are not over. There are none when the tables are missing, or
// the clock that ends leases began anew.
func (s *sqlite) survey(ctx context.Context, q query, args func(now rules.Now) []any, each func(rows *sql.Rows, now rules.Now) error) error {
	return s.read(ctx, func(ctx context.Context) error {
		now, ok, err := s.present(ctx)
		if !ok || err != nil {
			return err
		}
		stmt, err := s.texts.get(ctx, q)
		if err != nil {
			return err
		}
		rows, err := stmt.QueryContext(ctx, args(now)...)
		return eachRow(rows, err, func(rows *sql.Rows) error { return each(rows, now) })
	})
}

// present reads the clock, and says whether there are tables whose rows may not be
// over. now is the moment that the rows' times are to be
// compared with. The store's mark is read first: a mark from after the clock would
// look like a clock that went back.
func (s *sqlite) present(ctx context.Context) (now rules.Now, ok bool, err error) {
	var h head
	stmt, err := s.texts.get(ctx, qHead)
	if isNoTable(err) {
		return now, false, nil
	}
	if err != nil {
		return now, false, err
	}
	if err := h.scan(stmt.QueryRowContext(ctx)); err != nil {
		return now, false, err
	}
	at, err := s.see()
	if err != nil {
		return now, false, err
	}
	switch change, err := h.clockChange(at); {
	case change == rebooted || err != nil:
		return now, false, err
	case change == unknownClock:
		at.At = time.Duration(h.clock)
	}
	return at.Now, true, nil
}
