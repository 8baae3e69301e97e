// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// A pool is the caller's *sql.DB, and what both drivers do with it.
type pool struct {
	db    *sql.DB
	bad   error          // why this cannot work; see Check
	under sync.WaitGroup // what is under way, whether or not its caller still waits
}

func (p *pool) use(db *sql.DB) {
	if p.db = db; db == nil {
		p.bad = errors.New("sqldriver: the *sql.DB is nil")
	}
}

// Check returns an error if the constructor's arguments are invalid, without I/O.
// What only the database knows (its tables, its settings) is checked on first use.
func (p *pool) Check() error { return p.bad }

// Classify implements [driver.Driver].
func (p *pool) Classify(err error) driver.Class {
	var se *storeError
	switch {
	case errors.As(err, &se):
		return se.class
	case p.bad != nil && errors.Is(err, p.bad):
		return driver.ClassMisconfigured
	}
	return driver.ClassUnknown
}

// bounded runs f, and returns when it has finished, or a moment after ctx has ended, whichever is
// first: f ends with ctx, too, and may know what it waited for. After an error f may still be
// running: what it sets must not be looked at.
func (p *pool) bounded(ctx context.Context, moment time.Duration, f func() error) error {
	done := make(chan error, 1)
	p.under.Go(func() { done <- f() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	limit := time.NewTimer(moment)
	defer limit.Stop()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		return ctx.Err()
	}
}

// endLimit is how long a call may take to end after its context.
const endLimit = 50 * time.Millisecond

// finish waits for what is under way, for five seconds at most.
func (p *pool) finish() error {
	over := make(chan struct{})
	go func() {
		p.under.Wait()
		close(over)
	}()
	limit := time.NewTimer(5 * time.Second)
	defer limit.Stop()
	select {
	case <-over:
		return nil
	case <-limit.C:
		return errors.New("sqldriver: close: the database has not finished a call whose caller has gone")
	}
}

// valid returns what is wrong with a request, as this engine's error.
func valid(err error) error {
	if err != nil {
		return fmt.Errorf("sqldriver: %w", err)
	}
	return nil
}

// flag is a column's value for b.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// nullRow is a row of an outer join.
type nullRow struct {
	kind, owner, label    sql.NullString
	fence, since, expires sql.NullInt64
	mode, most            sql.NullInt64
	slot, mark            sql.NullInt64
}

func (n nullRow) row(kind string) rules.Row {
	return rules.Row{Kind: kind, Owner: n.owner.String, Label: n.label.String, Fence: n.fence.Int64,
		Since: time.Duration(n.since.Int64), Expires: time.Duration(n.expires.Int64),
		Mode: driver.Mode(n.mode.Int64), Limit: int(n.most.Int64), Slot: int(n.slot.Int64), Mark: n.mark.Int64 != 0}
}

// readRows reads leases, and closes rows.
func readRows(rows *sql.Rows, err error) (out []rules.Row, _ error) {
	err = eachRow(rows, err, func(rows *sql.Rows) error {
		r := rules.Row{Kind: rules.Held}
		err := rows.Scan(&r.Owner, &r.Label, &r.Fence, &r.Since, &r.Expires, &r.Mode, &r.Limit, &r.Slot)
		out = append(out, r)
		return err
	})
	return out, err
}

// eachRow calls f for each row, and closes rows.
func eachRow(rows *sql.Rows, err error, f func(rows *sql.Rows) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// add adds an owner to those of a key, in order.
func add(info *driver.Info, r rules.Row, now rules.Now) {
	if r.Kind != rules.Held {
		info.Queue = append(info.Queue, r.Holder(now))
		info.Waiters++
		return
	}
	info.Leases++
	info.Holders = append(info.Holders, r.Holding(now))
	if info.Leases == 1 {
		describe(info, info.Holders[0])
	}
}

// describe is for the first of a key's holders.
func describe(info *driver.Info, first driver.Holding) {
	info.Held, info.Holder, info.Fence, info.Left = true, first.Holder, first.Fence, first.Left
}

// pageKeys is how many keys List reads at once.
const pageKeys = 256

// pages yields the keys with a prefix, in the order of their bytes. page reads those from one to
// another, the first left out when after is 1, and says with which key it ended, or "" when
// there are no more.
func pages(prefix string, page func(from, last string, after int) (infos []driver.Info, end string, err error)) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if len(prefix) > driver.MaxKey {
			return // no key is that long
		}
		// No key that starts with the prefix comes after this.
		last := prefix + strings.Repeat("\xff", driver.MaxKey-len(prefix))
		for from, after := prefix, 0; ; after = 1 {
			infos, end, err := page(from, last, after)
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
			for _, info := range infos {
				if !yield(info, nil) {
					return
				}
			}
			if end == "" {
				return
			}
			from = end
		}
	}
}

// storeError is an error of the database with its class and with what to do.
type storeError struct {
	class  driver.Class
	err    error
	advice string
}

func (e *storeError) Error() string {
	// One driver opens a file by running its settings, which are not what failed.
	text := strings.Replace(e.err.Error(), "invalid _pragma: sqlite3: ", "", 1)
	if e.advice == "" {
		return text
	}
	return text + "; " + e.advice
}
func (e *storeError) Unwrap() error { return e.err }

// errNoHead: the table was emptied.
var errNoHead = errors.New("the one row of hasp_meta is missing")
