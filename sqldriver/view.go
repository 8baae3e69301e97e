// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
)

// The kinds of rows.
const (
	kindHeld   = "held"  // holds the key
	kindQueued = "queue" // has a place in the queue
	kindGone   = "gone"  // was released: a late Try is refused
)

// row is one owner's row of a key; the zero value is no row.
type row struct {
	kind, owner, label string
	fence              int64
	since, expires     time.Duration // on the clock of the store
	mode               driver.Mode
	most               int // Claim.Limit
	slot               int
	mark               bool // its owner was granted an abandoned key
}

func (r row) live(now time.Duration) bool { return r.kind != "" && r.expires > now }

// view is all that a Try needs to know of a key.
type view struct {
	head   head
	holder row           // whose lease may be over; of those who share the key, the key's own
	own    row           // the asking owner's, which may be over
	gone   int64         // the largest fence that was given up
	ahead  int           // live places before its own
	hints  bool          // its place gets hints
	behind bool          // another waiter of the client, whose turn comes before, wakes it
	took   time.Duration // what it took to ask, a wait for a connection included; 0 of a file

	// Of a Try that would share the key:
	barred bool  // one of those before it in the queue wants the key alone
	least  int   // the smallest limit of those before it and of its own, 0: none
	wrote  int64 // the largest fence granted Exclusive
	// beside are those who share the key: all where their number decides, else one
	// to be named.
	beside []row
}

// look reads a view, outside of a transaction; nil when there is none that
// means something: the tables are missing or of an earlier version, or
// everything in them is over, or was written since the clock was read.
func (d *Driver) look(ctx context.Context, c driver.Claim) (reading, *view, error) {
	now, err := d.dia.see()
	if err != nil {
		return now, nil, err
	}
	q := qLook
	if c.Mode == driver.Shared {
		q = qLookBeside
	}
	stmt, err := d.stmt(ctx, q)
	if isNoTable(err) || isOldTable(err) {
		return now, nil, nil
	}
	if err != nil {
		return now, nil, err
	}
	v := new(view)
	if err := v.scan(c, stmt.QueryRowContext(ctx, []byte(c.Key), c.Owner, int64(now.up)), v.head.fields()...); err != nil {
		return now, nil, err
	}
	if change, err := d.dia.clockChange(v.head, now); change != sameClock || err != nil {
		return now, nil, err
	}
	n := v.needs(c, now.up)
	if n == 0 {
		return now, v, nil
	}
	if stmt, err = d.stmt(ctx, qBeside); err != nil {
		return now, nil, err
	}
	rows, err := stmt.QueryContext(ctx, []byte(c.Key), int64(now.up), n)
	if err == nil {
		v.beside, err = readRows(rows)
	}
	return now, v, err
}

// view is as of now, with what others did in this transaction.
func (t *tx) view(c driver.Claim) (*view, error) {
	q := qView
	if c.Mode == driver.Shared {
		q = qViewBeside
	}
	v := &view{head: t.head}
	if err := v.scan(c, t.row(q, []byte(c.Key), c.Owner, int64(t.up))); err != nil {
		return nil, err
	}
	n := v.needs(c, t.up)
	if n == 0 {
		return v, nil
	}
	rows, err := t.rows(qBeside, []byte(c.Key), int64(t.up), n)
	if err == nil {
		v.beside, err = readRows(rows)
	}
	return v, err
}

// scan reads a view, and what follows it in the row.
func (v *view) scan(c driver.Claim, from *sql.Row, rest ...any) error {
	var holder, own nullRow
	var inKey, inGone int64
	fields := []any{&holder.owner, &holder.label, &holder.fence, &holder.since, &holder.expires, &holder.mark, &holder.most,
		&own.kind, &own.label, &own.fence, &own.since, &own.expires, &v.gone, &v.ahead}
	if c.Mode == driver.Shared {
		fields = append(fields, &v.barred, &v.least, &own.mark, &own.slot, &inKey, &inGone)
	}
	switch err := from.Scan(append(fields, rest...)...); {
	case errors.Is(err, sql.ErrNoRows):
		return errNoHead
	case err != nil:
		return err
	}
	v.own = own.row(own.kind.String)
	if holder.owner.Valid {
		v.holder = holder.row(kindHeld)
	}
	v.least = smaller(v.least, c.Limit)
	v.wrote = max(inKey, inGone)
	if !v.shared() {
		v.wrote = max(v.wrote, v.holder.fence)
	}
	return nil
}

// nullRow is a row of an outer join.
type nullRow struct {
	kind, owner, label    sql.NullString
	fence, since, expires sql.NullInt64
	mode, most            sql.NullInt64
	slot, mark            sql.NullInt64
}

func (n nullRow) row(kind string) row {
	return row{kind: kind, owner: n.owner.String, label: n.label.String, fence: n.fence.Int64,
		since: time.Duration(n.since.Int64), expires: time.Duration(n.expires.Int64),
		mode: driver.Mode(n.mode.Int64), most: int(n.most.Int64), slot: int(n.slot.Int64), mark: n.mark.Int64 != 0}
}

// readRows reads leases, and closes rows.
func readRows(rows *sql.Rows) (out []row, err error) {
	defer rows.Close()
	for rows.Next() {
		r := row{kind: kindHeld}
		if err := rows.Scan(&r.owner, &r.label, &r.fence, (*int64)(&r.since), (*int64)(&r.expires), &r.mode, &r.most, &r.slot); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

// holder describes the owner of a row. The store's clock has no date: the
// wall clock of today stands in, for people to read.
func (r row) holder(now time.Duration) driver.Holder {
	h := driver.Holder{Owner: r.owner, Label: r.label, Mode: r.mode, Limit: r.most}
	if r.kind == kindHeld {
		h.Since, h.Slot = time.Now().Add(r.since-now), r.slot
	}
	return h
}
