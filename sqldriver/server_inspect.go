// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"iter"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Inspect implements [driver.Driver]. It writes nothing.
func (s *Server) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if err := valid(driver.CheckKey(key)); err != nil {
		return driver.Info{}, err
	}
	info := driver.Info{Key: key, ByHand: s.eng.byHand(key)}
	err := s.survey(ctx, sKey, func(rows *sql.Rows) error {
		var now time.Duration
		var seq int64
		var r row
		if err := rows.Scan(&now, &r.kind, &seq, &r.owner, &r.label, &r.fence, &r.since, &r.expires, &r.mode, &r.most, &r.slot); err != nil {
			return err
		}
		add(&info, r, now)
		return nil
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
	var now time.Duration
	var key []byte
	var info driver.Info
	var h nullRow
	k := row{kind: kindHeld}
	var held bool
	err := rows.Scan(&now, &key, &held, &k.owner, &k.label, &k.fence, &k.since, &k.expires, &info.Waiters, &info.Holds,
		&h.owner, &h.label, &h.fence, &h.since, &h.expires, &h.mode, &h.most, &h.slot)
	info.Key = string(key)
	if held && k.owner != "" && k.live(now) {
		info.Holds++
		describe(&info, k.lease(now))
	} else if h.owner.Valid {
		describe(&info, h.row(kindHeld).lease(now))
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
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := each(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// pages yields the keys with a prefix, in the order of their bytes. page reads those from
// one to another, the first left out when after is 1, and says with which key it ended, or
// "" when there are no more.
func pages(prefix string, page func(from, last string, after int) (infos []driver.Info, end string, err error)) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if len(prefix) > driver.MaxKey {
			return // no key is that long
		}
		// No key that starts with the prefix comes after this one.
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
