// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"

	"github.com/hasplock/hasp/driver"
)

func (s *sqlite) setup(ctx context.Context, d *Driver) error {
	c, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := checkSettings(c.QueryRowContext(ctx, sqliteText[qSettings])); err != nil {
		return err
	}
	switch version, err := tablesVersion(ctx, c); {
	case err != nil:
		return err
	case version > schemaVersion:
		return tooNew(version)
	case version == schemaVersion:
		return nil
	}
	if err := s.makeTables(ctx, c); err != nil {
		// A failure at BEGIN leaves nothing to roll back, which is an error, too.
		_, _ = c.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`)
		return err
	}
	return nil
}

// tablesVersion is 0 when a table is missing.
func tablesVersion(ctx context.Context, c *sql.Conn) (version int, err error) {
	var tables int
	const count = `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('hasp_meta', 'hasp_lease')`
	if err := c.QueryRowContext(ctx, count).Scan(&tables); err != nil || tables < 2 {
		return 0, err
	}
	err = c.QueryRowContext(ctx, `SELECT version FROM hasp_meta WHERE id = 1`).Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNoHead
	}
	return version, err
}

// makeTables brings the tables from whatever version they are of to this one, in
// one transaction. Leases of an earlier version stand.
func (s *sqlite) makeTables(ctx context.Context, c *sql.Conn) error {
	if _, err := c.ExecContext(ctx, `BEGIN IMMEDIATE; `+sqliteTables); err != nil {
		return err
	}
	version, err := tablesVersion(ctx, c)
	if err != nil {
		return err
	}
	if version == 1 { // not already newer, by another process
		if _, err := c.ExecContext(ctx, sqliteProposals); err != nil {
			return err
		}
		if _, err := c.ExecContext(ctx, sqliteFirst, max(s.wall().UnixMicro(), 1), rand.Text()); err != nil {
			return err
		}
		version = 2
	}
	if version == 2 {
		if _, err := c.ExecContext(ctx, sqliteModes); err != nil {
			return err
		}
		version = 3
	}
	if version == 3 {
		if _, err := c.ExecContext(ctx, sqliteClock); err != nil {
			return err
		}
		version = 4
	}
	if version == 4 {
		if _, err := c.ExecContext(ctx, sqlitePersist); err != nil {
			return err
		}
	}
	_, err = c.ExecContext(ctx, `COMMIT`)
	return err
}

func tooNew(version int) error {
	return &storeError{class: driver.ClassMisconfigured,
		err:    fmt.Errorf("the tables are of version %d, and this program knows %d", version, schemaVersion),
		advice: "update it"}
}

// checkSettings refuses to work where a commit could be forgotten, or where
// every moment's contention would be an error.
func checkSettings(from *sql.Row) error {
	var synchronous, busy int
	if err := from.Scan(&synchronous, &busy); err != nil {
		return err
	}
	var what string
	switch {
	case synchronous < 2:
		what = fmt.Sprintf("synchronous is %d; it must be FULL (2), or fences may be given twice after a power failure", synchronous)
	case busy < 1000:
		what = fmt.Sprintf("busy_timeout is %d ms; it must be 1000 or more, or processes that write at the same moment fail", busy)
	default:
		return nil
	}
	return &storeError{class: driver.ClassMisconfigured, err: errors.New(what), advice: inTheName}
}

const inTheName = "set it in the data source name, where it holds for every connection (see sqldriver.SQLiteDSN)"
