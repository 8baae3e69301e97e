// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// A tx is a transaction beside which no other writes. Every key is its own.
type tx struct {
	s   *sqlite
	sql *sql.Tx
	ctx context.Context // ends the transaction

	now  reading // of when the file was ours already
	was  head    // as read
	head head    // as it will be written
	made int     // rows that were made, more or less
}

// begin opens a transaction. ctx bounds the wait for others, and the transaction.
func (s *sqlite) begin(ctx context.Context) (*tx, error) {
	if err := s.texts.prepare(ctx); err != nil {
		return nil, err
	}
	sqlTx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	t := &tx{s: s, sql: sqlTx, ctx: ctx}
	if err := t.open(); err != nil {
		t.rollback()
		return nil, s.reopen(ctx, err)
	}
	return t, nil
}

// open takes the file's lock, and only then the time: a reading from before
// the wait would be older than what others wrote meanwhile.
func (t *tx) open() error {
	if _, err := t.exec(qLock); err != nil {
		return err
	}
	err := t.was.scan(t.row(qHead))
	if err == nil {
		err = t.was.checkSettings()
	}
	if err != nil {
		return err
	}
	if t.now, err = t.s.see(); err != nil {
		return err
	}
	t.head = t.was
	change, err := t.was.clockChange(t.now)
	if err != nil {
		return err
	}
	return t.adopt(change)
}

// adopt makes the rows' times those of this clock.
func (t *tx) adopt(c clockChange) (err error) {
	switch c {
	case rebooted:
		_, err = t.sql.ExecContext(t.ctx, sqliteWipe)
	case unknownClock:
		_, err = t.sql.ExecContext(t.ctx, sqliteShift, int64(t.now.At)-t.was.clock)
	}
	if c != sameClock {
		t.head.floors = t.head.floors.Alone(t.now.At)
		if t.now.boot != t.was.boot {
			t.head.boot, t.head.before = t.now.boot, t.was.boot
		}
	}
	if c != sameClock || t.was.wall == 0 || t.now.At-time.Duration(t.was.clock) >= clockEvery {
		t.head.clock, t.head.wall = int64(t.now.At), t.now.Wall
	}
	return err
}

// commit ends a transaction, with the mark of the fences when it rose.
func (t *tx) commit() error {
	err := t.s.file.Load().unmoved()
	if err == nil {
		err = t.sweep()
	}
	if h := t.head; err == nil && h != t.was {
		_, err = t.exec(qMark, h.boot, h.before, h.clock, h.floors.Newest, h.floors.Old, h.floors.Mid, h.floors.At, h.wall)
	}
	if err != nil {
		return err
	}
	return t.sql.Commit()
}

// rollback takes back everything. It does so even when ctx has ended, and
// nothing is to be done when it fails: the file's lock goes with the
// connection.
func (t *tx) rollback() { _ = t.sql.Rollback() }

// A statement that is asked for the first time is not prepared yet, see prepared.prepare.
func (t *tx) exec(q query, args ...any) (sql.Result, error) {
	if s := t.s.texts.known(q); s != nil {
		return t.sql.StmtContext(t.ctx, s).ExecContext(t.ctx, args...)
	}
	return t.sql.ExecContext(t.ctx, sqliteText[q], args...)
}

func (t *tx) row(q query, args ...any) *sql.Row {
	if s := t.s.texts.known(q); s != nil {
		return t.sql.StmtContext(t.ctx, s).QueryRowContext(t.ctx, args...)
	}
	return t.sql.QueryRowContext(t.ctx, sqliteText[q], args...)
}

func (t *tx) rows(q query, args ...any) (*sql.Rows, error) {
	if s := t.s.texts.known(q); s != nil {
		return t.sql.StmtContext(t.ctx, s).QueryContext(t.ctx, args...)
	}
	return t.sql.QueryContext(t.ctx, sqliteText[q], args...)
}

// sweep deletes more rows than were made, so that expired ones cannot pile up. Rows that have
// expired are kept for a while, and then deleted, a few at a time, by transactions that write:
// nothing is permanent, and no clean-up job is needed.
func (t *tx) sweep() error {
	if t.made == 0 {
		return nil
	}
	_, err := t.exec(qSweep, int64(t.now.At-rules.KeepFence), int64(t.now.At), 2*t.made+8)
	return err
}

// view is as of now, with what others did in this transaction.
func (t *tx) view(c driver.Claim) (*rules.View, error) {
	v := &rules.View{Floors: t.head.floors, Run: t.head.node}
	if err := scanView(v, c, t.row(beside(c, qView, qViewBeside), []byte(c.Key), c.Owner, int64(t.now.At))); err != nil {
		return nil, err
	}
	n := v.Needs(c, t.now.At)
	if n == 0 {
		return v, nil
	}
	var err error
	v.Beside, err = readRows(t.rows(qBeside, []byte(c.Key), int64(t.now.At), n))
	return v, err
}

// try decides in the transaction, and does it.
func (t *tx) try(r voting.VoteRequest) (driver.Result, error) {
	v, err := t.view(r.Claim)
	if err != nil {
		return driver.Result{}, err
	}
	res, plan, err := v.Try(r, t.now.Now, t.choose)
	if err != nil {
		return driver.Result{}, err
	}
	return res, t.write(r.Key, r.Owner, plan)
}

// renew returns an error when the transaction cannot go on; what became of
// this one request is in the Renewal.
func (t *tx) renew(r driver.RenewRequest) (out driver.Renewal, err error) {
	if r.Queue {
		v, err := t.view(r.Claim)
		if err != nil {
			return driver.Renewal{}, err
		}
		out, plan := v.RenewPlace(r, t.now.Now)
		return out, t.write(r.Key, r.Owner, plan)
	}
	var expires time.Duration
	var mode driver.Mode
	err = t.row(qRenew, []byte(r.Key), r.Owner, r.Label, int64(t.now.At), int64(t.now.After(r.TTL)), int64(r.Fence)).
		Scan(&expires, &out.Wanted, &mode)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return driver.Renewal{Err: driver.ErrNotHeld}, nil
	case err == nil && mode == driver.Shared: // the key's own row lasts as long
		err = t.write(r.Key, r.Owner, rules.Plan{KeyUntil: expires})
	}
	out.TTL = expires - t.now.At
	return out, err
}

// release ends what an owner has, and reports whether it had anything.
func (t *tx) release(r voting.WithdrawRequest) (had bool, err error) {
	if !r.Settled {
		t.made++
	}
	was, err := t.end(r)
	if err == nil {
		err = t.write(r.Key, r.Owner, was.Depart(r.End, t.now.Now))
	}
	return was.Expires > t.now.At, err
}

// end takes away what an owner has, and returns what that was. Unless it is settled the owner is
// remembered, also when it had nothing.
func (t *tx) end(r voting.WithdrawRequest) (was rules.Row, err error) {
	upTo := int64(math.MaxInt64)
	if r.UpTo != 0 {
		upTo = int64(min(r.UpTo, math.MaxInt64))
	}
	scan := func(q query, args ...any) error {
		return t.row(q, args...).Scan(&was.Expires, &was.Fence, &was.Mode, &was.Limit, &was.Mark)
	}
	lease := []any{[]byte(r.Key), r.Owner, r.Label, upTo, int64(t.now.After(rules.KeepFence))}
	late := int64(t.now.After(rules.GoneFor))
	if r.Settled {
		if err = scan(qRetire, lease...); errors.Is(err, sql.ErrNoRows) {
			err = scan(qLeave, lease[:4]...)
		}
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
	} else if err = scan(qRelease, append(lease, late)...); errors.Is(err, sql.ErrNoRows) {
		_, err = t.exec(qRefuseLater, []byte(r.Key), r.Owner, r.Label, int64(t.now.At), late)
	}
	return was, err
}

// write carries out a plan for an owner.
func (t *tx) write(key, owner string, p rules.Plan) (err error) {
	k, now := []byte(key), int64(t.now.At)
	do := func(needed bool, q query, args ...any) {
		if needed && err == nil {
			_, err = t.exec(q, args...)
		}
	}
	do(p.End == rules.AllHolders, qEndHolders, k, now)
	do(p.End == rules.Sharers, qEndSharers, k, now)
	if o := p.Own; o != nil && err == nil {
		err = t.put(k, o.Kind, *o, o.Kind == rules.Queued || o.Mode == driver.Shared, 0)
	}
	if p.Key != nil && err == nil {
		row := *p.Key
		row.Owner, row.Label, row.Mode, row.Slot = "", "", driver.Shared, 0
		err = t.put(k, rules.Held, row, false, p.Wrote)
	}
	do(p.OwnUntil != 0, qExtend, k, owner, int64(p.OwnUntil), p.Fence)
	do(p.KeyUntil != 0, qExtend, k, "", int64(p.KeyUntil), p.Fence)
	if l := p.Leave; l != nil {
		do(true, qDepart, k, int64(l.Until), now, flag(l.Mark))
	}
	return err
}

// put writes an owner's row, or the key's own, whether or not it is there. after has it come
// after all others of its kind.
func (t *tx) put(key []byte, kind string, r rules.Row, after bool, wrote int64) error {
	t.made++
	_, err := t.exec(qPut, key, r.Owner, r.Label, kind, flag(after), r.Fence, int64(r.Since), int64(r.Expires), r.Mode, r.Limit, r.Slot, flag(r.Mark), wrote)
	return err
}

// choose gives a proposed fence, or mints one. Fences count microseconds of the wall clock, and
// rise by one where it stands still or goes back. Those that the store mints are above every
// fence given in the file, for any key.
func (t *tx) choose(v *rules.View, r voting.VoteRequest) (fence int64, fences int, err error) {
	fences = max(r.Fences, 1)
	switch newest := max(v.Newest(), v.Floor(r.Mode, t.now.Now)); {
	case r.Proposal == 0:
		fence, err = t.mint(v, r.Key, fences)
		return fence, fences, err
	case r.Restore || r.Proposal <= newest:
		fences = 1
	default:
		fences = int(min(uint64(fences), r.Proposal-newest))
	}
	return t.take(int64(r.Proposal)), fences, nil
}

// mint returns the last of the next n fences: larger than every earlier one in
// this database whatever the clock shows, and than those of a file that was
// deleted as long as the wall clock is not behind.
//
// Microseconds reach the end of the numbers in 290,000 years: a file that stands there, or
// below zero, was changed by hand.
func (t *tx) mint(v *rules.View, key string, n int) (int64, error) {
	newest := max(t.head.floors.Newest, int64(v.Newest()))
	if t.head.floors.Newest < 0 || newest > math.MaxInt64-int64(n) {
		return 0, &storeError{class: driver.ClassMisconfigured,
			err: fmt.Errorf("no fence for the key %q: the file's largest is %d, and none that is larger can be given", key, newest),
			advice: "hasp_meta.fence, or that of the key, was changed by hand, or is damaged: end the programs that use the file, " +
				"delete it with its -journal, and it is made anew"}
	}
	return t.take(max(newest+1, t.now.Wall) + int64(n-1)), nil
}

// take notes a fence that is granted.
func (t *tx) take(fence int64) int64 {
	t.head.floors = t.head.floors.Turned(t.now.At)
	t.head.floors.Newest = max(t.head.floors.Newest, fence)
	return fence
}
