// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"iter"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// Inspect implements [driver.Driver]. It writes nothing.
func (s *Server) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if err := valid(driver.CheckKey(key)); err != nil {
		return driver.Info{}, err
	}
	info := driver.Info{Key: key, ByHand: s.eng.byHand(key)}
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
	err := rows.Scan(&now.At, &key, &held, &k.Owner, &k.Label, &k.Fence, &k.Since, &k.Expires, &info.Waiters, &info.Holds,
		&h.owner, &h.label, &h.fence, &h.since, &h.expires, &h.mode, &h.most, &h.slot)
	info.Key = string(key)
	if held && k.Owner != "" && k.Live(now.At) {
		info.Holds++
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
