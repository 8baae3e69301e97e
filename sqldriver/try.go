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

// What a row says of its owner.
const (
	kindHeld = "held" // holds the key
	kindLine = "line" // has a place in line
	kindGone = "gone" // was released: a late Try is refused
)

// row is one owner's row of a key; the zero value is no row.
type row struct {
	kind, owner, label string
	fence              int64
	since, expires     time.Duration // on the clock of the store
}

func (r row) live(now time.Duration) bool { return r.kind != "" && r.expires > now }

// view is all that a Try needs to know of a key.
type view struct {
	head   head
	holder row   // whose lease may be over
	own    row   // the asking owner's, which may be over
	gone   int64 // the largest fence that was given up
	ahead  int   // live places before its own
}

// verdict is what becomes of a Try.
type verdict int

const (
	refuse verdict = iota // nothing changes
	join                  // refused, and put at the end of the line
	touch                 // refused, with a sign of life for its place
	extend                // it is the holder
	grant
	tooLow // nothing changes: the proposed fence cannot be granted
)

// decide is the rule of the lock. It is asked twice: of a mere read, which
// settles most refusals, and again in the transaction that writes.
func (v view) decide(r driver.Request, now reading) verdict {
	own := v.own.live(now.up)
	free := !v.holder.live(now.up) && v.ahead == 0
	switch {
	case own && (v.own.label != r.Label || v.own.kind == kindGone):
		return refuse // another's, who shares our random id; or late
	case own && v.own.kind == kindHeld && v.raisable(r, now):
		return extend
	case free && v.acceptable(r, now):
		return grant
	case free, own && v.own.kind == kindHeld:
		return tooLow
	case !r.Queue:
		return refuse
	case !own:
		return join
	case v.own.fading(r, now.up):
		return touch
	}
	return refuse
}

// fading says that a sign of life is worth a write, which costs a sync of the
// disk: a quarter of the place's patience has passed since the last.
func (r row) fading(q driver.Request, now time.Duration) bool {
	return r.expires-now < q.Patience-q.Patience/4
}

// Try implements [driver.Driver]. A refusal that changes nothing costs a read,
// for which no writer waits.
func (d *Driver) Try(ctx context.Context, r driver.Request) (driver.Result, error) {
	if err := lasting(r); err != nil {
		return driver.Result{}, err
	}
	glance, err := d.glance(ctx, r)
	if err != nil || glance != nil {
		return value(glance), err
	}
	var res driver.Result
	err = d.writes.do(ctx, 1, func(t *tx) (err error) {
		res, err = t.try(r)
		return err
	})
	if err != nil {
		return driver.Result{}, err
	}
	return res, nil
}

func value(res *driver.Result) driver.Result {
	if res == nil {
		return driver.Result{}
	}
	return *res
}

// glance returns the refusal that a read is enough for, or nil.
func (d *Driver) glance(ctx context.Context, r driver.Request) (*driver.Result, error) {
	var res *driver.Result
	err := d.read(ctx, func(ctx context.Context) error {
		now, v, err := d.look(ctx, r)
		if err != nil || v == nil {
			return err
		}
		var answer driver.Result
		switch v.decide(r, now) {
		case refuse:
			answer = v.refusal(r, now)
		case tooLow:
			answer = v.tooLow(now)
		default:
			return nil
		}
		res = &answer
		return nil
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// look reads a view, outside of a transaction; nil when there is none that
// means something: the tables are missing or of an earlier version, or
// everything in them is over, or was written since the clock was read.
func (d *Driver) look(ctx context.Context, r driver.Request) (reading, *view, error) {
	now, err := d.dia.see()
	if err != nil {
		return now, nil, err
	}
	stmt, err := d.stmt(ctx, qLook)
	if isNoTable(err) || isOldTable(err) {
		return now, nil, nil
	}
	if err != nil {
		return now, nil, err
	}
	v := new(view)
	if err := v.scan(stmt.QueryRowContext(ctx, []byte(r.Key), r.Owner, int64(now.up)), v.head.fields()...); err != nil {
		return now, nil, err
	}
	if gone, err := d.dia.gone(v.head, now); gone || err != nil {
		return now, nil, err
	}
	return now, v, nil
}

// scan reads a view, and what follows it in the row.
func (v *view) scan(from *sql.Row, rest ...any) error {
	var holder, own nullRow
	fields := append([]any{&holder.owner, &holder.label, &holder.fence, &holder.since, &holder.expires,
		&own.kind, &own.label, &own.fence, &own.since, &own.expires, &v.gone, &v.ahead}, rest...)
	switch err := from.Scan(fields...); {
	case errors.Is(err, sql.ErrNoRows):
		return errNoHead
	case err != nil:
		return err
	}
	v.own = own.row(own.kind.String)
	if holder.owner.Valid {
		v.holder = holder.row(kindHeld)
	}
	return nil
}

// nullRow is a row of an outer join.
type nullRow struct {
	kind, owner, label    sql.NullString
	fence, since, expires sql.NullInt64
}

func (n nullRow) row(kind string) row {
	return row{kind: kind, owner: n.owner.String, label: n.label.String, fence: n.fence.Int64,
		since: time.Duration(n.since.Int64), expires: time.Duration(n.expires.Int64)}
}

// view is as of now, with what others did in this transaction.
func (t *tx) view(r driver.Request) (*view, error) {
	v := &view{head: t.head}
	return v, v.scan(t.row(qView, []byte(r.Key), r.Owner, int64(t.up)))
}

// try decides in the transaction, and does it.
func (t *tx) try(r driver.Request) (driver.Result, error) {
	v, err := t.view(r)
	if err != nil {
		return driver.Result{}, err
	}
	switch v.decide(r, t.reading) {
	case grant:
		return t.grant(v, r)
	case extend:
		return t.extend(v, r)
	case tooLow:
		return v.tooLow(t.reading), nil
	case join:
		t.litter++
		if v.own.kind == kindHeld { // a lease that is over
			_, err = t.exec(qRemember, []byte(r.Key), int64(t.after(keepFence)))
		}
		if err == nil {
			_, err = t.exec(qJoin, []byte(r.Key), r.Owner, r.Label, int64(t.up), int64(t.after(r.Patience)))
		}
	case touch:
		_, err = t.exec(qExtend, []byte(r.Key), r.Owner, int64(t.after(r.Patience)), 0)
	}
	return v.refusal(r, t.reading), err
}

func (t *tx) extend(v *view, r driver.Request) (driver.Result, error) {
	fence, until := v.own.fence, max(v.own.expires, t.after(r.TTL))
	if v.raises(r) {
		fence = t.take(int64(r.Fence))
	}
	_, err := t.exec(qExtend, []byte(r.Key), r.Owner, int64(until), fence)
	return driver.Result{Granted: true, Fence: uint64(fence), TTL: until - t.up, Node: t.head.node}, err
}

func (t *tx) grant(v *view, r driver.Request) (driver.Result, error) {
	abandoned := v.holder.kind != ""
	if abandoned {
		if _, err := t.exec(qUsurp, []byte(r.Key), int64(t.up)); err != nil {
			return driver.Result{}, err
		}
	}
	t.litter++
	fence, fences := t.choose(v, r)
	until := t.after(r.TTL)
	_, err := t.exec(qGrant, []byte(r.Key), r.Owner, r.Label, fence, int64(t.up), int64(until))
	return driver.Result{Granted: true, Fence: uint64(fence), Fences: fences, TTL: until - t.up,
		Abandoned: abandoned, Node: t.head.node}, err
}

func (v view) refusal(r driver.Request, now reading) driver.Result {
	res := driver.Result{Why: driver.Held, Ahead: v.ahead, Node: v.head.node}
	if r.Fence != 0 {
		res.Fence = v.floor(now)
	}
	var held time.Duration
	if v.holder.live(now.up) {
		held, res.Left = now.up-v.holder.since, v.holder.expires-now.up
		res.Holder = v.holder.holder(now.up)
	}
	res.RetryIn = nextLook(v.ahead, held, res.Left)
	return res
}

func (v view) tooLow(now reading) driver.Result {
	return driver.Result{Why: driver.FenceTooLow, Fence: v.floor(now), Node: v.head.node}
}

// holder describes the owner of a row. The store's clock has no date: the
// wall clock of today stands in, for people to read.
func (r row) holder(now time.Duration) driver.Holder {
	h := driver.Holder{Owner: r.owner, Label: r.label}
	if r.kind == kindHeld {
		h.Since = time.Now().Add(r.since - now)
	}
	return h
}
