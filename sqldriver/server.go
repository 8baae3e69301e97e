// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
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
	judge    func(settings) []driver.Finding
	raise    string // and how to do so by hand
	fences   string // a query for what comes next and for the largest there was
	sequence bool   // fences come from a sequence, and sGrant returns a row; else each key counts its own
	literals bool   // arguments are written into the statements
	isolate  string // sent before each transaction begins
	// whole sends a transaction in one request: what locks a key's row, what returns a row where the key is
	// as it was seen, and what is written then. able is false, and nothing was done, where that cannot be sent.
	whole func(c *conn, lock, same Step, writes []Step) (able, done bool, err error)
}

func newServer(db *sql.DB, eng *engine) *Server {
	s := &Server{eng: eng}
	s.use(db)
	s.hints.s, s.sweep.s = s, s
	s.spare = spare{s: s, free: make(chan *sql.Conn, 1), held: make(map[driver.ID]*time.Timer)}
	return s
}

// Traits implements [driver.Driver].
func (s *Server) Traits() driver.Traits {
	return driver.Traits{
		Engine:        s.eng.name,
		Queue:         driver.QueueHint,
		Hints:         s.hints.listener != nil,
		Fencing:       true,
		Shared:        true,
		Slots:         true,
		Abandons:      true,
		AbandonedOnce: true,
		// A request over a network and a commit on a disk must fit.
		MinTTL: 50 * time.Millisecond,
		// A commit is on the server's disk before it is answered, or it is refused to work.
		// Leases are measured by the server's wall clock, and what answers in place of a
		// server may not have its last commits.
		Survives: driver.StoreRestart,
	}
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
