// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	sqldrv "database/sql/driver"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
)

// A Server keeps locks in the database of a server, which any number of machines share.
// Make one with [NewPostgres] or [NewMySQL]; it is safe for concurrent use.
type Server struct {
	pool
	eng *engine

	hints   hints
	lines   lines
	pipe    Pipeliner // nil: statements are sent one after the other
	notices Noticer   // nil: warnings are not heard

	ready    atomic.Pointer[time.Time] // when the tables were there, of a version that we know
	writable atomic.Bool               // a server was asked that takes writes
	parts    atomic.Bool               // a transaction cannot be sent whole
	crowd    crowds
	closed   atomic.Bool
	sweep    sweeper
	spare    spare
}

var (
	_ driver.Driver = (*Server)(nil)
)

// An engine is what differs between kinds of servers.
type engine struct {
	name     string
	schema   string
	text     [statements]string
	explain  func(err error) error
	overtook func(err error) bool // the transaction was rolled back since others were faster
	byHand   func(key string) []string
	settings []string // queries for names and values, for Examine
	clock    string   // and one for the microseconds since 1970
	judge    func(settings) []operator.Finding
	raise    string // and how to do so by hand
	fences   string // a query for what comes next and for the largest there was
	sequence bool   // fences come from a sequence, and sGrant returns a row; else each key counts its own
	literals bool   // arguments are written into the statements
	isolate  string // sent before each transaction begins
	// whole sends a transaction in one request: what locks a key's row, what returns a row where the key is
	// as it was seen, and what is written then. able is false, and nothing was done, where that cannot be sent.
	whole func(c *conn, lock, same Step, writes []Step) (able, done bool, err error)
}

// settings are those of a server, by name, and what it says of its replicas.
type settings map[string]string

// A conn is a connection of the pool, for one call.
type conn struct {
	s        *Server
	ctx      context.Context
	sql      *sql.Conn
	sent     bool      // something was sent that may be carried out, and its answer is not known
	open     bool      // a transaction is
	made     int       // rows that were made
	began    time.Time // when it was asked for
	passOver bool      // do not wait for a row that is locked: errLocked
	todo     []Step    // statements to be sent before, or with, the next one
}

const (
	// attempts is how often a transaction is tried that others overtake.
	attempts = 5
)

// do runs f with a connection, and returns when it has finished or ctx has ended,
// whichever is first. The error is one of driver.NotSent where nothing was sent that
// may be carried out. After an error f may still be running: what it sets must not be
// looked at.
func (s *Server) do(ctx context.Context, f func(c *conn) error) error {
	return s.with(ctx, s.db.Conn, f)
}

// A source gives a connection.
type source func(ctx context.Context) (*sql.Conn, error)

// with is do with a connection from elsewhere.
func (s *Server) with(ctx context.Context, from source, f func(c *conn) error) error {
	switch {
	case s.bad != nil:
		return s.bad
	case s.closed.Load():
		return driver.ErrClosed
	case ctx.Err() != nil:
		return driver.NotSent(ctx.Err())
	}
	return s.bounded(ctx, endLimit, func() error { return s.connected(ctx, from, f) })
}

// connected runs f with a connection. A connection that turns out to be dead before anything was sent is exchanged, as
// database/sql does it, and so is a connection to a server that refuses: each idle connection may lead to the same
// server, and a new connection to the server that took over.
func (s *Server) connected(ctx context.Context, from source, f func(c *conn) error) error {
	idle := s.db.Stats().Idle + len(s.spare.free)
	for again := max(3, idle); ; again-- {
		sent, err := s.once(ctx, from, f)
		refused := refuses(err)
		if !sent && (refused || errors.Is(err, sqldrv.ErrBadConn)) && again > 0 && ctx.Err() == nil {
			if refused {
				again = min(again, idle+1)
			}
			continue
		}
		if err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", ctx.Err(), err)
			}
			err = explainServer(s.eng.explain, err)
			if !sent {
				err = driver.NotSent(err)
			}
		}
		return err
	}
}

func (s *Server) once(ctx context.Context, from source, f func(c *conn) error) (sent bool, err error) {
	began := time.Now()
	db, err := from(ctx)
	if err != nil {
		if in := s.db.Stats(); ctx.Err() != nil && in.MaxOpenConnections > 0 && in.InUse >= in.MaxOpenConnections {
			return false, &busyError{time.Since(began), in}
		}
		return false, &lostError{err}
	}
	c := &conn{s: s, ctx: ctx, sql: db, began: began}
	c.warned() // of what others did
	if err = f(c); err == nil && c.warned() {
		c.sent, c.open, err = true, false, errAlone
	}
	// A driver says that a connection is bad when it sent nothing. Of a commit that is not relied on.
	sent = c.sent && (c.open || !errors.Is(err, sqldrv.ErrBadConn))
	switch {
	case err == nil:
	case refuses(err):
		c.discard()
		sent = sent && in(mysqlNumber(err), 1047, 3032) // which may come in the midst of a commit
	case c.open || ctx.Err() != nil:
		if c.rollback(); c.open && ctx.Err() == nil {
			err = &lostError{err}
		}
	case c.lost():
		err = &lostError{err}
	}
	if !s.spare.put(db, c.lost) {
		if e := db.Close(); err == nil && e != nil && !errors.Is(e, sql.ErrConnDone) {
			err = e
		}
	}
	if c.made > 0 && err == nil {
		s.sweep.due(c.made)
	}
	return sent, err
}

// lost says whether the connection is of no use any more.
func (c *conn) lost() (lost bool) {
	err := c.sql.Raw(func(conn any) error {
		v, can := conn.(sqldrv.Validator)
		lost = can && !v.IsValid()
		return nil
	})
	return lost || err != nil
}

// discard has the connection closed: it does not go back to the pool.
func (c *conn) discard() { _ = c.sql.Raw(func(any) error { return sqldrv.ErrBadConn }) }

// rollback ends a transaction. Where the server may not answer, the connection is closed
// instead, which ends it, too.
func (c *conn) rollback() {
	c.todo = nil
	if c.ctx.Err() == nil && c.open {
		if _, err := c.sql.ExecContext(c.ctx, `ROLLBACK`); err == nil {
			c.open = false
			return
		}
	}
	c.discard()
}

// A Noticer hears what a server warns of, as a [Listener] may.
type Noticer interface {
	// Warned says whether the server warned on this connection (as sql.Conn.Raw gives it), since that was asked last, with
	// SQLSTATE 01000: what it committed it no longer waits for a standby to have.
	Warned(conn any) bool
}

// warned says whether a commit is known to the server alone, though it was to be known to a standby as well.
func (c *conn) warned() bool {
	if c.s.notices == nil {
		return false
	}
	var was bool
	_ = c.sql.Raw(func(conn any) error { // of a closed connection there is nothing to know
		was = c.s.notices.Warned(conn)
		return nil
	})
	return was
}

// A Step is a statement whose answer does not matter, unless it is an error.
type Step struct {
	Text string
	Args []any
	Rows *int64 // where to write how many rows it changed or returned; nil: nowhere
}

// A Pipeliner sends several statements in one request, as a [Listener] may: what a transaction
// writes, and its commit, need not wait for each other's answers.
type Pipeliner interface {
	// Pipeline carries out the steps in order, on a connection as sql.Conn.Raw gives it, up to the first
	// that fails, whose error it returns: driver.ErrBadConn of database/sql, where nothing was sent.
	// pipelined is false, and nothing is done, when the connection is of a kind that it does not know.
	Pipeline(ctx context.Context, conn any, steps []Step) (pipelined bool, err error)
}

// run sends a statement that is not one of ours.
func (c *conn) run(text string) error {
	c.todo = append(c.todo, Step{Text: text})
	return c.flush()
}

// later has a statement sent before the next one whose answer matters, or with the commit.
func (c *conn) later(st statement, args ...any) {
	c.todo = append(c.todo, c.step(st, args...))
}

func (c *conn) step(st statement, args ...any) Step {
	text, args := c.written(st, args)
	return Step{Text: text, Args: args}
}

// flush sends what was put off.
func (c *conn) flush() error {
	todo := c.todo
	c.todo = nil
	if len(todo) > 1 && c.s.pipe != nil {
		var done bool
		err := c.sql.Raw(func(conn any) (err error) {
			done, err = c.s.pipe.Pipeline(c.ctx, conn, todo)
			return err
		})
		if done || err != nil {
			return err
		}
	}
	for _, step := range todo {
		if _, err := c.sql.ExecContext(c.ctx, step.Text, step.Args...); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) written(st statement, args []any) (string, []any) {
	text := c.s.eng.text[st]
	if c.s.eng.literals {
		return literal(text, args), nil
	}
	return text, args
}

// writtenFor is written of a statement about n leases.
func (c *conn) writtenFor(st statement, n int, args []any) (string, []any) {
	text := listed(c.s.eng.text[st], n)
	if c.s.eng.literals {
		return literal(text, args), nil
	}
	return withNumbers(text), args
}

func (c *conn) exec(st statement, args ...any) (sql.Result, error) {
	if err := c.flush(); err != nil {
		return nil, err
	}
	text, args := c.written(st, args)
	return c.sql.ExecContext(c.ctx, text, args...)
}

// count is exec, and returns how many rows there were.
func (c *conn) count(st statement, args ...any) (int, error) {
	res, err := c.exec(st, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// scan reads the one row that a statement answers with.
func (c *conn) scan(st statement, args []any, dest ...any) error {
	if err := c.flush(); err != nil {
		return err
	}
	text, args := c.written(st, args)
	return c.sql.QueryRowContext(c.ctx, text, args...).Scan(dest...)
}

func (c *conn) query(st statement, args ...any) (*sql.Rows, error) {
	if err := c.flush(); err != nil {
		return nil, err
	}
	text, args := c.written(st, args)
	return c.sql.QueryContext(c.ctx, text, args...)
}

// begin opens a transaction in which each statement sees what others committed before.
func (c *conn) begin() {
	c.todo = nil
	if c.s.eng.isolate != "" {
		c.todo = append(c.todo, Step{Text: c.s.eng.isolate})
	}
	c.later(sBegin)
	c.open = true
}

// commit ends a transaction. Its outcome is unknown until the answer is there.
func (c *conn) commit() error {
	c.sent = true
	if err := c.run(`COMMIT`); err != nil {
		return err
	}
	c.sent, c.open = false, false
	return nil
}

// transact runs f in a transaction, again when others overtook it: then it was rolled
// back, and left nothing.
func (c *conn) transact(f func() error) error {
	for again := attempts; ; again-- {
		c.begin()
		err := f()
		if err == nil {
			err = c.commit()
		}
		if err == nil || !c.s.eng.overtook(err) || again == 0 {
			return err
		}
		c.sent = false
		c.rollback()
		if c.open {
			return err
		}
	}
}

// versionEvery is how often the version of the tables is looked at: others may raise it beside this program.
const versionEvery = time.Minute

// known makes sure, now and then, that the tables are there, and of a version that this program knows.
func (c *conn) known() error {
	if at := c.s.ready.Load(); at != nil && time.Since(*at) < versionEvery {
		return nil
	}
	var version int
	var mode serverMode
	switch err := c.scan(sVersion, nil, &version, &mode); {
	case err != nil:
		return err
	case version != serverVersion:
		advice := "this program is older than they are: update it"
		if version < serverVersion {
			advice = "nothing in them is damaged: bring them up to date with Init of the driver (hasp init)"
		}
		return &storeError{class: driver.ClassMisconfigured,
			err: fmt.Errorf("the tables are of version %d, and this program knows %d", version, serverVersion), advice: advice}
	case mode == forgets:
		return errForgets
	}
	c.s.writable.CompareAndSwap(false, mode == writes)
	now := time.Now()
	c.s.ready.Store(&now)
	return nil
}

// current makes sure that what this server says of locks is not what a server says that was replaced: where this driver
// met a server that takes writes, it reads from no server that takes none.
func (c *conn) current() error {
	if err := c.known(); err != nil || !c.s.writable.Load() {
		return err
	}
	var mode serverMode
	err := c.scan(sMode, nil, &mode)
	if err == nil && mode == readOnly {
		err = errDemoted
	}
	return err
}

// A sweeper deletes keys of which everything is over for a while, a few at a time and
// more than were made: nothing is permanent, and no clean-up job is needed. It works
// beside the calls that made rows, in one goroutine, which lives while there is work.
type sweeper struct {
	s *Server

	mu      sync.Mutex
	made    int // rows made since the last sweep
	running bool
}

// sweepLimit bounds a sweep: Close waits for it.
const sweepLimit = 2 * time.Second

func (w *sweeper) due(made int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made += made
	if !w.running {
		w.running = true
		w.s.under.Go(w.loop)
	}
}

// take returns how many rows were made, and 0 when the goroutine ends.
func (w *sweeper) take() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	made := w.made
	w.made, w.running = 0, made > 0
	return made
}

func (w *sweeper) loop() {
	for made := w.take(); made > 0; made = w.take() {
		ctx, cancel := context.WithTimeout(context.Background(), sweepLimit)
		// What fails is left to the next sweep.
		_, _ = w.s.once(ctx, w.s.db.Conn, func(c *conn) error { return c.sweep(2*made + 8) })
		cancel()
	}
}

// sweep passes over keys that are locked. No lock of its own outlasts a statement: it may
// stop at any moment. So what it deletes may have changed since it looked, and is looked at again.
func (c *conn) sweep(most int) error {
	var keys [][]byte
	var newest int64
	rows, err := c.query(sDead, most)
	err = eachRow(rows, err, func(rows *sql.Rows) error {
		var key []byte
		var fence int64
		err := rows.Scan(&key, &fence)
		keys, newest = append(keys, key), max(newest, fence)
		return err
	})
	if err != nil || len(keys) == 0 {
		return err
	}
	if !c.s.eng.sequence { // before a row goes that has a fence, what others must be above
		if _, err := c.exec(sRaise, newest); err != nil {
			return err
		}
	}
	for _, key := range keys {
		if _, err := c.exec(sBury, key, newest); err != nil {
			return err
		}
	}
	return nil
}

// crowds remembers, more or less, which keys others wait for, so that no request is wasted on what
// is only done where none does.
type crowds [256]atomic.Bool

func (c *crowds) at(key string) *atomic.Bool {
	return &c[maphash.String(crowdSeed, key)%uint64(len(c))]
}

var crowdSeed = maphash.MakeSeed()
