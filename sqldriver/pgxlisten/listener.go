// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package pgxlisten hears PostgreSQL's notifications for the waiters of package
// sqldriver, so that a release wakes the next one at once instead of at its next poll:
//
//	config, err := pgx.ParseConfig(url)
//	...
//	pgxlisten.WatchCommits(config)
//	db := stdlib.OpenDB(*config, stdlib.OptionShouldPing(pgxlisten.ShouldPing))
//	locks, err := hasp.New(sqldriver.NewPostgres(db, &sqldriver.PostgresOptions{Listener: pgxlisten.New(config)}), nil)
//
// A listener has one connection for any number of waiters, from the first wait until no waiter has been there for
// five seconds, and has it prove itself. It belongs to a session of the server that takes the writes, so it has to lead to that
// server itself: behind a pooler of connections that gives each transaction another session (PgBouncer
// with pool_mode = transaction) no message comes through. The driver notices, as it
// first sends one to itself, and its waiters poll; give New a config that leads past the pooler.
//
// WatchCommits matters where commits wait for a synchronous standby: what cancels that wait (pg_cancel_backend,
// statement_timeout) leaves a commit that a failover takes back, of which the server only warns.
//
// A listener is a sqldriver.Pipeliner, too: where the *sql.DB is one of pgx's package stdlib, the statements of
// a transaction that need not wait for each other's answers are sent together. ShouldPing, and default_query_exec_mode=exec, save
// a round trip each where a lock's connection was idle, or is new.
package pgxlisten

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/hasplock/hasp/sqldriver"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// A Listener makes connections that listen. It is a sqldriver.Listener, and may serve
// any number of drivers, each with a connection of its own.
type Listener struct {
	config *pgx.ConnConfig
	before []func(context.Context, *pgx.ConnConfig) error
}

// New returns a listener that connects as config says, which must have been made by
// pgx.ParseConfig. It is copied. No connection is made yet. before is called with a copy before each connection, for example to set the
// password that is right by then: what stdlib.OptionBeforeConnect has for the *sql.DB.
func New(config *pgx.ConnConfig, before ...func(context.Context, *pgx.ConnConfig) error) *Listener {
	return &Listener{config: config.Copy(), before: before}
}

const (
	// closeLimit is how long the end of a connection may take.
	closeLimit = time.Second
	// proveAfter is after how long without a message a connection has to prove itself: a proxy may keep it, and
	// acknowledge what is sent, when the server's side is gone; or another server took over, and this one still stands.
	proveAfter = 2 * time.Second
	// proveLimit is how long that may take.
	proveLimit = 3 * time.Second
)

// Listen connects, listens on channel, and calls heard with "" when it does, and then
// with the payload of each message, until ctx ends or the connection is lost. The error is
// the context's, or says why it ended.
func (l *Listener) Listen(ctx context.Context, channel string, heard func(payload string)) error {
	config := l.config.Copy()
	for _, f := range l.before {
		if err := f(ctx, config); err != nil {
			return err
		}
	}
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		_ = c.Close(ctx) // what is left of it is closed in any case
	}()
	if err := prove(ctx, c, "LISTEN "+pgx.Identifier{channel}.Sanitize()+"; "); err != nil {
		return err
	}
	heard("")
	for {
		n, err := await(ctx, c)
		if err != nil {
			return err
		}
		if n.Channel == channel {
			heard(n.Payload)
		}
	}
}

// await returns the next notification, and has the connection prove itself as long as there is none.
func await(ctx context.Context, c *pgx.Conn) (*pgconn.Notification, error) {
	for {
		quiet, cancel := context.WithTimeout(ctx, proveAfter)
		n, err := c.WaitForNotification(quiet)
		cancel()
		if err == nil || ctx.Err() != nil || quiet.Err() == nil {
			return n, err
		}
		limit, cancel := context.WithTimeout(ctx, proveLimit)
		err = prove(limit, c, "")
		cancel()
		if err != nil {
			return nil, err
		}
	}
}

var errReadOnly = errors.New("the listener's server takes no writes, so it hears of no release")

// prove asks whether the server answers, and takes writes. Statements may go before, in the same request.
func prove(ctx context.Context, c *pgx.Conn, first string) error {
	answers, err := c.PgConn().Exec(ctx, first+"SHOW transaction_read_only").ReadAll()
	for _, a := range answers {
		if len(a.Rows) > 0 && string(bytes.Join(a.Rows[0], nil)) == "on" {
			return errReadOnly
		}
	}
	return err
}

// Pipeline implements sqldriver.Pipeliner for connections of package stdlib of pgx.
func (*Listener) Pipeline(ctx context.Context, conn any, steps []sqldriver.Step) (pipelined bool, err error) {
	c, ok := conn.(*stdlib.Conn)
	if !ok {
		return false, nil
	}
	var batch pgx.Batch
	for _, s := range steps {
		q := batch.Queue(s.Text, s.Args...)
		if s.Rows != nil {
			q.Exec(func(tag pgconn.CommandTag) error {
				*s.Rows = tag.RowsAffected()
				return nil
			})
		}
	}
	if err := c.Conn().SendBatch(ctx, &batch).Close(); err != nil {
		if pgconn.SafeToRetry(err) {
			return true, driver.ErrBadConn
		}
		return true, err
	}
	return true, nil
}

// trusted is for how long an idle connection is believed to lead to the server.
const trusted = 30 * time.Second

// ShouldPing is for stdlib.OptionShouldPing. Before pgx uses a connection that was idle for a second it asks the server whether it is
// there, a round trip that most locks would wait for: it is enough to look whether the server closed the connection.
func ShouldPing(_ context.Context, p stdlib.ShouldPingParams) bool {
	return p.IdleDuration > trusted || p.IdleDuration > time.Second && p.Conn.PgConn().CheckConn() != nil //nolint:staticcheck // Ping is that round trip
}

// warned is what a connection has among its custom data when the server warned.
const warned = "hasp.warned"

// WatchCommits has the connections that are made as config says, from now on, remember the server's warning that a
// commit did not wait for its synchronous standby, so that it does not count as one. Call it before stdlib.OpenDB.
func WatchCommits(config *pgx.ConnConfig) {
	next := config.OnNotice
	config.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		if n.Code == "01000" {
			c.CustomData()[warned] = true
		}
		if next != nil {
			next(c, n)
		}
	}
}

// Warned implements sqldriver.Noticer for connections of package stdlib of pgx.
func (*Listener) Warned(conn any) bool {
	c, ok := conn.(*stdlib.Conn)
	if !ok {
		return false
	}
	data := c.Conn().PgConn().CustomData()
	was := data[warned] != nil
	delete(data, warned)
	return was
}
