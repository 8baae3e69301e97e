// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pgxlisten

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/hasplock/hasp/sqldriver"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

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
