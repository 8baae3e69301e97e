// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver/operator"
)

var _ operator.Driver = (*Server)(nil)

// Operations implements [operator.Driver].
func (s *Server) Operations() operator.Operations { return operator.Operations{Examine: s.Examine} }

// Examine is of [operator.Operations]: the settings on which the promises depend, and the clock.
func (s *Server) Examine(ctx context.Context) ([]operator.Finding, error) {
	v := settings{}
	var ahead, trip time.Duration
	next, largest := int64(math.MaxInt64), int64(0)
	var large *operator.Finding
	err := s.do(ctx, func(c *conn) error {
		for _, query := range s.eng.settings {
			if err := c.read(query, v); err != nil {
				return err
			}
		}
		var err error
		if ahead, trip, err = c.clock(s.eng.clock); err != nil {
			return err
		}
		_ = c.sql.QueryRowContext(ctx, s.eng.fences).Scan(&next, &largest) // whether the tables are there is for others to say
		large = operator.AskLarge(ctx, func(ctx context.Context, text string) error {
			return c.sql.QueryRowContext(ctx, "SELECT '"+text+"'").Scan(&text)
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	found := append(s.eng.judge(v), judgeClock(ahead, trip))
	if large != nil {
		found = append(found, *large)
	}
	if next < max(largest, fenceLeast) {
		found = append(found, finding(operator.LevelFail, "fences", "fences go on from %d, and there were larger ones (%d), so none is granted: the tables were moved without what counts them. "+
			"Raise it with hasp init%s", next, max(largest, fenceLeast), s.eng.raise))
	}
	return found, nil
}

// read takes the rows of a query, each a name and a value.
func (c *conn) read(query string, into settings) error {
	rows, err := c.sql.QueryContext(c.ctx, query)
	return eachRow(rows, err, func(rows *sql.Rows) error {
		var name string
		var value sql.NullString
		err := rows.Scan(&name, &value)
		into[strings.ToLower(name)] = value.String
		return err
	})
}

// clock asks a few times what the server's clock says before ours, and returns the answer of the quickest round trip.
func (c *conn) clock(query string) (ahead, trip time.Duration, err error) {
	for range 3 {
		var micros int64
		begun := time.Now()
		if err := c.sql.QueryRowContext(c.ctx, query).Scan(&micros); err != nil {
			return 0, 0, err
		}
		if took := time.Since(begun); trip == 0 || took < trip {
			ahead, trip = time.UnixMicro(micros).Sub(begun.Add(took/2)), took
		}
	}
	return ahead, trip, nil
}

// warnSkew is how far a server's clock may be from ours before it is worth a warning.
const warnSkew = time.Second

func judgeClock(ahead, trip time.Duration) operator.Finding {
	side, off := "ahead of", ahead
	if off < 0 {
		side, off = "behind", -off
	}
	if off-trip/2 > warnSkew { // the answer was made at any moment of the round trip
		return finding(operator.LevelWarn, "clock", "its clock is %v %s this machine's: leases are counted by it alone, but synchronise both with NTP, by slewing: a step "+
			"forward ends leases early", off.Round(time.Millisecond), side)
	}
	return finding(operator.LevelOK, "clock", "its clock is this machine's, give or take %v", max(off, trip/2).Round(10*time.Microsecond))
}

func finding(level operator.Level, check, format string, args ...any) operator.Finding {
	return operator.Finding{Level: level, Check: check, Text: fmt.Sprintf(format, args...)}
}

// repeats is a warning of what may have fences repeat, too.
func repeats(check, format string, args ...any) operator.Finding {
	f := finding(operator.LevelWarn, check, format, args...)
	f.FencesRepeat = true
	return f
}

// judgeConnections is about what waiting commands use up.
func judgeConnections(used, most string) operator.Finding {
	n, err := strconv.Atoi(used)
	m, err2 := strconv.Atoi(most)
	level := operator.LevelOK
	if err == nil && err2 == nil && n*10 >= m*8 {
		level = operator.LevelWarn
	}
	return finding(level, "connections", "%s of %s connections are in use; each waiting command takes one", used, most)
}

// judgeIsolation is about the isolation that sessions begin with. Transactions of locks name their own.
func judgeIsolation(isolation string) operator.Finding {
	isolation = strings.ToLower(strings.ReplaceAll(isolation, "-", " "))
	if isolation == "serializable" {
		return finding(operator.LevelWarn, "isolation", "the default isolation is serializable: transactions of locks set read committed for themselves, but single statements do not, and under "+
			"contention some of them fail and are sent again. Leave the default as it is for other users, and set another for this one")
	}
	return finding(operator.LevelOK, "isolation", "the default isolation is %s; transactions of locks set read committed for themselves", isolation)
}
