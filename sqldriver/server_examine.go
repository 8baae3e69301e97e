// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"fmt"

	"github.com/hasplock/hasp/driver"
)

var _ driver.Examiner = (*Server)(nil)

// Examine implements [driver.Examiner]: the settings on which the promises depend.
func (s *Server) Examine(ctx context.Context) (found []driver.Finding, err error) {
	var values [4]string
	err = s.do(ctx, func(c *conn) error {
		return c.sql.QueryRowContext(ctx, s.eng.settings).Scan(&values[0], &values[1], &values[2], &values[3])
	})
	if err != nil {
		return nil, err
	}
	return s.eng.judge(values), nil
}

func finding(level driver.Level, check, format string, args ...any) driver.Finding {
	return driver.Finding{Level: level, Check: check, Text: fmt.Sprintf(format, args...)}
}

// Who may not see the standbys sees how many they are.
const postgresSettings = `SELECT current_setting('server_version'), current_setting('fsync'), pg_is_in_recovery()::text,
	CASE WHEN current_setting('synchronous_standby_names') = '' THEN (SELECT count(*) FROM pg_stat_replication)::text ELSE '0' END`

func judgePostgres(v [4]string) []driver.Finding {
	found := []driver.Finding{finding(driver.LevelOK, "version", "PostgreSQL %s", v[0])}
	if v[1] == "off" {
		found = append(found, finding(driver.LevelWarn, "fsync", "fsync is off: when the machine crashes, leases and fences may be lost with the rest of the database"))
	}
	if v[2] == "true" {
		found = append(found, finding(driver.LevelFail, "role", "it is a standby, which grants no locks: name its primary"))
	}
	if v[3] != "0" {
		found = append(found, finding(driver.LevelWarn, "role", "%s standbys receive its commits later, and synchronous_standby_names is empty: one that is promoted may "+
			"not have received every lock, and there can be two holders", v[3]))
	}
	return found
}

const mysqlSettings = `SELECT VERSION(), @@innodb_flush_log_at_trx_commit, @@global.read_only, @@autocommit`

func judgeMySQL(v [4]string) []driver.Finding {
	found := []driver.Finding{finding(driver.LevelOK, "version", "%s", v[0])}
	if v[1] == "2" {
		found = append(found, finding(driver.LevelWarn, "innodb_flush_log_at_trx_commit", "innodb_flush_log_at_trx_commit is 2: when the machine crashes, leases and fences of the last "+
			"second may be lost. Set it to 1"))
	}
	if v[2] != "0" && v[2] != "OFF" {
		found = append(found, finding(driver.LevelFail, "role", "it is read-only, as a replica is: name the server that takes writes"))
	}
	return found
}
