// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

func newServer(db *sql.DB, eng *engine) *Server {
	s := &Server{eng: eng}
	s.use(db)
	s.sweep.s = s
	s.hints.under, s.hints.tell = &s.under, func(ctx context.Context, channel, text string) {
		_, _ = s.once(ctx, s.db.Conn, func(c *conn) error {
			_, err := c.exec(sSelf, channel, text)
			return err
		})
	}
	s.spare = spare{pool: &s.pool, closed: &s.closed, free: make(chan *sql.Conn, 1), held: make(map[driver.ID]*time.Timer)}
	return s
}

// Traits implements [driver.Driver].
func (s *Server) Traits() driver.Traits {
	t := driver.Traits{
		Engine:         s.eng.name,
		Queue:          driver.QueueHint,
		Fencing:        true,
		Shared:         true,
		Slots:          true,
		MarksAbandoned: true,
		// A request over a network and a commit on a disk must fit.
		MinTTL: 50 * time.Millisecond,
		// A commit is on the server's disk before it is answered, or it is refused to work.
		// Leases are measured by the server's wall clock, and what answers in place of a
		// server may not have its last commits.
		Survives: driver.StoreRestart,
	}
	if s.hints.listener != nil {
		t.Tells = driver.TellsFree
	}
	return t
}

// Init makes the tables in the database, where they are missing, as [PostgresSchema] or
// [MySQLSchema] have it. It may be called at any time, by any number of programs at
// once. It needs the right to create tables, which the driver itself does not.
func (s *Server) Init(ctx context.Context) error {
	return s.do(ctx, func(c *conn) error {
		tables := func() error {
			for text := range strings.SplitSeq(s.eng.schema, ";\n") {
				if text == "" {
					continue
				}
				if err := c.run(text); err != nil {
					return err
				}
			}
			return nil
		}
		if !s.eng.sequence {
			return tables()
		}
		return c.transact(func() error { // one at a time: they set where the sequence begins
			if err := c.run(`SELECT pg_advisory_xact_lock(hashtext('hasp_init'))`); err != nil {
				return err
			}
			return tables()
		})
	})
}

// Watch implements [driver.Driver]. Without PostgresOptions.Listener the channel tells the first of this client's
// waiters for a key that it is that: the first polls. While a listener hears nothing there is no channel.
func (s *Server) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	if s.bad != nil {
		return nil, s.bad
	}
	if err := valid(c.Check()); err != nil {
		return nil, err
	}
	if s.hints.listener == nil {
		return s.lines.watch(ctx, c), ctx.Err()
	}
	return s.hints.watch(ctx, c.Owner)
}

// Close ends the listening connection, gives back what is kept of the pool, and waits for what is still running on behalf of
// callers that have gone. The *sql.DB stays open. It gives up after five seconds, with an
// error, when the network does not answer.
func (s *Server) Close() error {
	s.closed.Store(true)
	s.hints.close()
	s.under.Go(s.spare.close)
	return s.finish()
}

// Try implements [driver.Driver]. One statement grants a key if no other owner stands in the way, and a
// refusal that changes nothing only reads.
func (s *Server) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	if err := valid(r.Check()); err != nil {
		return driver.Result{}, err
	}
	var res driver.Result
	err := s.do(ctx, func(c *conn) (err error) {
		if res, err = c.try(voting.VoteRequest{TryRequest: r}); err == nil && res.Granted {
			s.spare.hold(r.ID(), res.TTL)
		}
		return err
	})
	if err != nil {
		return driver.Result{}, err
	}
	return res, nil
}

func (c *conn) try(r voting.VoteRequest) (driver.Result, error) {
	if err := c.known(); err != nil {
		return driver.Result{}, err
	}
	plain := r.Mode == driver.Exclusive && !r.Convert && r.TTL <= longest
	asked := plain && !r.Queue // an owner that queues was refused before, most likely
	if asked {
		if res, err := c.grantAtOnce(r); err != nil || res.Granted {
			return res, err
		}
	}
	s, err := c.look(r.Claim)
	if err != nil {
		return driver.Result{}, err
	}
	switch verdict := s.Decide(r, s.now); {
	case verdict == rules.Refuse && !s.stale && !tooLong(s.key, s.now.At):
		return s.Refused(r, s.now, s.Hints), nil
	case verdict == rules.Grant:
		if plain && !asked && !s.others && s.key.Kind == "" {
			if res, err := c.grantAtOnce(r); err != nil || res.Granted {
				return res, err
			}
		}
	}
	var res driver.Result
	err = c.onKey(r.Claim, &s, func(t *keyTx) (err error) {
		if res, err = t.try(r); t.joins && t.again { // the key may be free by then, without a hint from its holder
			res.RetryIn = time.Millisecond
		}
		return err
	})
	return res, err
}

// longest is the longest TTL of a statement that does not look at the end of the numbers.
const longest = 100 * 365 * 24 * time.Hour

// grantAtOnce grants a key of which nothing is to be known but that it was released. The
// zero Result: something is; or others were faster.
func (c *conn) grantAtOnce(r voting.VoteRequest) (driver.Result, error) {
	var owner, key, label, ttl, kept, lasts any = r.Owner, []byte(r.Key), []byte(r.Label), int64(r.TTL), int64(r.TTL + rules.KeepFence), int64(span(r.TTL))
	fence, fences := int64(0), max(r.Fences, 1)
	c.sent = true
	var err error
	if c.s.eng.sequence {
		fences = min(fences, fencesAtOnce)
		var made int
		err = c.scan(sGrant, []any{owner, label, lasts, ttl, kept, key, key, owner, label, lasts, ttl, kept, key}, &fence, &made)
		c.made += made
	} else {
		var res sql.Result
		var n int64
		if res, err = c.exec(sGrant, owner, label, fences, lasts, ttl, kept, key); err == nil {
			n, err = res.RowsAffected()
		}
		if err == nil && n > 0 {
			fence, err = res.LastInsertId()
		}
	}
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && fence == 0 || c.failed(err):
		c.sent = false
		return driver.Result{}, nil
	case err != nil:
		return driver.Result{}, err
	}
	c.sent = false
	c.s.crowd.at(r.Key).Store(false)
	return driver.Result{Granted: true, Fence: uint64(fence), Fences: fences, TTL: r.TTL}, nil
}

// failed says whether a statement failed, by the server's own answer, since others were
// faster, and so changed nothing.
func (c *conn) failed(err error) bool {
	return err != nil && (c.s.eng.overtook(err) || in(sqlState(err), stateTooSlow))
}

// stateTooSlow is that of a division by zero, see sGrant.
const stateTooSlow = "22012"

// Release implements [driver.Driver]. What the owner had becomes a tombstone,
// which refuses a late Try of the same owner and is swept soon; of a settled
// owner nothing is left. The key is free then, for the first live place in the queue
// alone.
func (s *Server) Release(ctx context.Context, r driver.ReleaseRequest) error {
	if err := valid(r.Check()); err != nil {
		return err
	}
	var had bool
	err := s.with(ctx, s.spare.conn, func(c *conn) (err error) {
		if had, err = c.release(r); err == nil {
			s.spare.drop(r.ID())
		}
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

func (c *conn) release(r driver.ReleaseRequest) (had bool, err error) {
	if err := c.known(); err != nil {
		return false, err
	}
	finished := flag(r.End == driver.EndFinished)
	switch at := c.s.crowd.at(r.Key); {
	case !r.Settled || r.Mode != driver.Exclusive || r.End == driver.EndUnfinished:
	case at.Load():
		if had, err := c.handOn(r, finished); had || err != nil {
			return had, err
		}
	default:
		c.sent = true
		var kept any = int64(rules.KeepFence)
		n, err := c.count(sRelease, kept, kept, []byte(r.Key), r.Owner, []byte(r.Label), finished)
		if err != nil && !c.failed(err) {
			return false, err
		}
		c.sent = false
		if n > 0 && err == nil {
			return true, nil
		}
	}
	err = c.onKey(r.Claim, nil, func(t *keyTx) (err error) {
		had, err = t.release(voting.WithdrawRequest{ReleaseRequest: r})
		return err
	})
	return had, err
}

// handOn is all of a release in one request, where others wait.
func (c *conn) handOn(r driver.ReleaseRequest, finished int) (had bool, err error) {
	if c.s.parts.Load() {
		return false, nil
	}
	key := []byte(r.Key)
	c.todo = nil
	c.later(sHandOn, key)
	if c.s.eng.text[sNotify] != "" {
		c.later(sNotify, key, key, key)
	}
	return c.send(key, c.step(sHolds, key, r.Owner, []byte(r.Label), finished))
}

// Inspect implements [driver.Driver]. It writes nothing.
func (s *Server) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if err := valid(driver.CheckKey(key)); err != nil {
		return driver.Info{}, err
	}
	info := driver.Info{Key: key, LookCommands: s.eng.byHand(key)}
	err := s.survey(ctx, sKey, func(rows *sql.Rows) error {
		now := today()
		var seq int64
		var r rules.Row
		err := rows.Scan(&now.At, &r.Kind, &seq, &r.Owner, &r.Label, &r.Fence, &r.Since, &r.Expires, &r.Mode, &r.Limit, &r.Slot)
		add(&info, r, now)
		return err
	}, []byte(key), []byte(key))
	if err != nil {
		return driver.Info{}, err
	}
	return info, nil
}

// List implements [driver.Driver]. It reads page by page, in the order of the
// keys' bytes, and holds nothing of the database while it yields.
func (s *Server) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return pages(prefix, func(from, last string, after int) (page []driver.Info, end string, err error) {
		n := 0
		err = s.survey(ctx, sKeys, func(rows *sql.Rows) error {
			info, err := scanKey(rows)
			if n, end = n+1, info.Key; info.Held || info.Waiters > 0 {
				page = append(page, info)
			}
			return err
		}, []byte(from), []byte(from), after, []byte(last), pageKeys)
		switch {
		case err != nil: // it may still run
			return nil, "", err
		case n < pageKeys:
			end = ""
		}
		return page, end, nil
	})
}

func scanKey(rows *sql.Rows) (driver.Info, error) {
	now := today()
	var key []byte
	var info driver.Info
	var h nullRow
	k := rules.Row{Kind: rules.Held}
	var held bool
	err := rows.Scan(&now.At, &key, &held, &k.Owner, &k.Label, &k.Fence, &k.Since, &k.Expires, &info.Waiters, &info.Leases,
		&h.owner, &h.label, &h.fence, &h.since, &h.expires, &h.mode, &h.most, &h.slot)
	info.Key = string(key)
	if held && k.Owner != "" && k.Live(now.At) {
		info.Leases++
		describe(&info, k.Holding(now))
	} else if h.owner.Valid {
		describe(&info, h.row(rules.Held).Holding(now))
	}
	return info, err
}

// survey reads rows.
func (s *Server) survey(ctx context.Context, st statement, each func(rows *sql.Rows) error, args ...any) error {
	return s.do(ctx, func(c *conn) error {
		if err := c.current(); err != nil {
			return err
		}
		rows, err := c.query(st, args...)
		return eachRow(rows, err, each)
	})
}
