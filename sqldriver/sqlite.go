// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// A Driver keeps locks in a SQLite database. Make one with [NewSQLite]; it is safe for
// concurrent use.
type Driver struct {
	sqlite
	writes writer
	freed  crowds // the keys that this driver released last: they are free, most likely
}

var (
	_ driver.Driver = (*Driver)(nil)
	_ voting.Node   = (*Driver)(nil)
)

// NewSQLite returns a driver that keeps locks in the SQLite database db, a file that
// processes of one machine share. The package comment says how to open it;
// [SQLiteDSN] returns the data source name.
//
// db stays the caller's: hasp.Client.Close does not close it. At most five of its
// connections are used at a time; one (SetMaxOpenConns(1)) is enough.
func NewSQLite(db *sql.DB) *Driver { return newDriver(db, system, time.Now) }

func newDriver(db *sql.DB, clock func() (reading, error), wall func() time.Time) *Driver {
	d := &Driver{sqlite: sqlite{clock: clock, wall: wall, texts: prepared{db: db}, reads: make(chan struct{}, maxReads), endLimit: endLimit, fileWait: fileWait}}
	d.use(db)
	d.writes.s = &d.sqlite
	return d
}

// SQLiteDSN returns a data source name for the file at path, with the settings
// that locks need, for github.com/ncruces/go-sqlite3 and modernc.org/sqlite.
// The file is created on first use; its directory must exist.
func SQLiteDSN(path string) string {
	path = filepath.ToSlash(path)
	if filepath.VolumeName(path) != "" { // file:///C:/locks.db
		path = "/" + path
	}
	// Of four slashes the first two stand before a host that is not named.
	network := strings.HasPrefix(path, "//")
	name := url.URL{Scheme: "file", OmitHost: !network, Path: path,
		RawQuery: "_pragma=busy_timeout(5000)&_pragma=journal_mode(persist)&_pragma=synchronous(full)"}
	return name.String()
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits {
	return driver.Traits{
		Engine: "sqlite",
		// No handoff: to make the next waiter the holder would gain nothing, as
		// nothing notifies it. It polls, and is granted the key in the same
		// transaction; and a waiter that died costs its patience either way. The
		// first in the queue polls every 25 ms or more often, those behind it less
		// often, each at least once a second.
		Queue:          driver.QueueHint,
		Fencing:        true,
		Shared:         true,
		Slots:          true,
		MarksAbandoned: true,
		// A commit may take this long on a slow disk, and some systems' clock
		// advances in steps of 16 ms.
		MinTTL: 50 * time.Millisecond,
		// There is no server to restart or to take over: a kill leaves the file as it is.
		// Leases are not measured by the clock that can be set.
		Survives: driver.StoreRestart | driver.ClockStep | driver.Failover,
	}
}

// Watch returns no channel: see the package's comment on waiting.
func (d *Driver) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	if err := valid(c.Check()); err != nil {
		return nil, err
	}
	return nil, ctx.Err()
}

// Close waits for what is still running on behalf of callers that have gone, and
// closes the statements that the driver prepared. The *sql.DB stays open. It gives up
// after five seconds, with an error, when the disk does not answer.
func (d *Driver) Close() error {
	d.writes.close()
	if err := d.finish(); err != nil {
		return err
	}
	return d.texts.close()
}

// Try implements [driver.Driver]. A refusal that changes nothing costs a read,
// for which no writer waits, but where this driver released the key last.
func (d *Driver) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	return d.Vote(ctx, voting.VoteRequest{TryRequest: r})
}

// Vote implements [voting.Node].
func (d *Driver) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	if err := valid(r.Check()); err != nil {
		return driver.Result{}, err
	}
	if r.Proposal != 0 || !d.freed.at(r.Key).Swap(false) {
		switch glance, err := d.glance(ctx, r); {
		case err != nil:
			return driver.Result{}, driver.NotSent(err) // it only read
		case glance != nil:
			return *glance, nil
		}
	}
	var res driver.Result
	err := d.writes.do(ctx, 1, func(t *tx) (err error) {
		res, err = t.try(r)
		return err
	})
	if err != nil {
		return driver.Result{}, err
	}
	return res, nil
}

// glance returns the refusal that a read is enough for, or nil.
func (d *Driver) glance(ctx context.Context, r voting.VoteRequest) (*driver.Result, error) {
	var res *driver.Result
	err := d.read(ctx, func(ctx context.Context) error {
		now, v, err := d.look(ctx, r.Claim)
		if err != nil || v == nil {
			return err
		}
		var answer driver.Result
		switch v.Decide(r, now) {
		case rules.Refuse:
			answer = v.Refused(r, now, v.Hints)
		case rules.TooLow:
			answer = v.TooLow(r, now)
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

// Renew implements [driver.Driver]. Its requests go into several transactions: others wait for
// the file meanwhile.
func (d *Driver) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	for first := 0; first < len(rs); first += maxWeight {
		chunk := rs[first:min(first+maxWeight, len(rs))]
		out, err := d.renew(ctx, chunk)
		for i := range chunk {
			if err != nil {
				done(first+i, driver.Renewal{Err: err})
			} else {
				done(first+i, out[i])
			}
		}
	}
}

func (d *Driver) renew(ctx context.Context, rs []driver.RenewRequest) ([]driver.Renewal, error) {
	var out []driver.Renewal
	err := d.writes.do(ctx, len(rs), func(t *tx) error {
		all := make([]driver.Renewal, len(rs))
		for i, r := range rs {
			if all[i].Err = valid(r.Check()); all[i].Err != nil {
				continue
			}
			var err error
			if all[i], err = t.renew(r); err != nil {
				return err
			}
		}
		out = all
		return nil
	})
	if err != nil {
		return nil, lostWith(err)
	}
	return out, nil
}

// Release implements [driver.Driver]. What the owner had becomes a tombstone,
// which refuses a late Try of the same owner and is swept soon; of a settled
// owner nothing is left. The key is free then, for the first live place in the queue
// alone. The key remembers its fence either way.
func (d *Driver) Release(ctx context.Context, r driver.ReleaseRequest) error {
	return d.Withdraw(ctx, voting.WithdrawRequest{ReleaseRequest: r})
}

// Withdraw implements [voting.Node].
func (d *Driver) Withdraw(ctx context.Context, r voting.WithdrawRequest) error {
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
		return lostWith(err)
	case !had:
		return driver.ErrNotHeld
	}
	d.freed.at(r.Key).Store(true)
	return nil
}

// Inspect implements [driver.Driver]. It writes nothing, not even the tables.
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if err := valid(driver.CheckKey(key)); err != nil {
		return driver.Info{}, err
	}
	info := driver.Info{Key: key, LookCommands: byHand(key)}
	err := d.survey(ctx, qKey, func(now rules.Now) []any {
		return []any{[]byte(key), int64(now.At)}
	}, func(rows *sql.Rows, now rules.Now) error {
		var r rules.Row
		err := rows.Scan(&r.Kind, &r.Owner, &r.Label, &r.Fence, &r.Since, &r.Expires, &r.Mode, &r.Limit, &r.Slot)
		add(&info, r, now)
		return err
	})
	if err != nil {
		return driver.Info{}, err
	}
	return info, nil
}

// byHand are statements with which a person can look at a key. Keys are any bytes, so they are
// written in hexadecimal. The last column compares with /proc/uptime; a row that is past it is
// over.
func byHand(key string) []string {
	const query = "SELECT kind, seq, owner, label, fence, expires/1000000000 AS expires_at_uptime_s FROM hasp_lease WHERE key = "
	const order = " AND kind <> 'gone' AND owner <> '' ORDER BY kind, seq;"
	out := []string{fmt.Sprintf("%sx'%x'%s", query, key, order)}
	plain := !strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' })
	if plain {
		out = append(out, fmt.Sprintf("%sCAST('%s' AS BLOB)%s", query, strings.ReplaceAll(key, "'", "''"), order))
	}
	return out
}

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
	err := d.survey(ctx, qKeys, func(now rules.Now) []any {
		return []any{[]byte(from), []byte(last), int64(now.At), pageKeys, after}
	}, func(rows *sql.Rows, now rules.Now) error {
		var key []byte
		var info driver.Info
		var h nullRow
		err := rows.Scan(&key, &info.Waiters, &info.Leases, &h.owner, &h.label, &h.fence, &h.since, &h.expires, &h.mode, &h.most, &h.slot)
		info.Key = string(key)
		if h.owner.Valid {
			describe(&info, h.row(rules.Held).Holding(now))
		}
		page = append(page, info)
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}
