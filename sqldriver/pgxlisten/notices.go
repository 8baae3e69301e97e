// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pgxlisten

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

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
