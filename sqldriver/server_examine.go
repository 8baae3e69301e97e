// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
)

var _ driver.Operator = (*Server)(nil)

// Operations implements [driver.Operator].
func (s *Server) Operations() driver.Operations { return driver.Operations{Examine: s.Examine} }

// settings are those of a server, by name, and what it says of its replicas.
type settings map[string]string

// Examine is of [driver.Operations]: the settings on which the promises depend, and the clock.
func (s *Server) Examine(ctx context.Context) ([]driver.Finding, error) {
	v := settings{}
	var ahead, trip time.Duration
	next, largest := int64(math.MaxInt64), int64(0)
	var large *driver.Finding
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
		large = driver.AskLarge(ctx, func(ctx context.Context, text string) error {
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
		found = append(found, finding(driver.LevelFail, "fences", "fences go on from %d, and there were larger ones (%d), so none is granted: the tables were moved without what counts them. "+
			"Raise it with hasp init%s", next, max(largest, fenceLeast), s.eng.raise))
	}
	return found, nil
}

// read takes the rows of a query, each a name and a value.
func (c *conn) read(query string, into settings) error {
	rows, err := c.sql.QueryContext(c.ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var value sql.NullString
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		into[strings.ToLower(name)] = value.String
	}
	return rows.Err()
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

func judgeClock(ahead, trip time.Duration) driver.Finding {
	side, off := "ahead of", ahead
	if off < 0 {
		side, off = "behind", -off
	}
	if off-trip/2 > warnSkew { // the answer was made at any moment of the round trip
		return finding(driver.LevelWarn, "clock", "its clock is %v %s this machine's: leases are counted by it alone, but synchronise both with NTP, by slewing: a step "+
			"forward ends leases early", off.Round(time.Millisecond), side)
	}
	return finding(driver.LevelOK, "clock", "its clock is this machine's, give or take %v", max(off, trip/2).Round(10*time.Microsecond))
}

func finding(level driver.Level, check, format string, args ...any) driver.Finding {
	return driver.Finding{Level: level, Check: check, Text: fmt.Sprintf(format, args...)}
}

// repeats is a warning of what may have fences repeat, too.
func repeats(check, format string, args ...any) driver.Finding {
	f := finding(driver.LevelWarn, check, format, args...)
	f.FencesRepeat = true
	return f
}

// Who may not see the standbys sees how many they are.
var postgresSettings = []string{`SELECT name, current_setting(name) FROM unnest(ARRAY['server_version', 'fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', 'statement_timeout',
		'default_transaction_isolation', 'default_transaction_read_only', 'max_connections']) AS name
	UNION ALL SELECT 'standby', pg_is_in_recovery()::text
	UNION ALL SELECT 'connections', SUM(numbackends)::text FROM pg_stat_database
	UNION ALL SELECT 'standbys', count(*)::text FROM pg_stat_replication
	UNION ALL SELECT 'asynchronous', count(*)::text FROM pg_stat_replication WHERE sync_state = 'async'`}

const postgresClock = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

func judgePostgres(v settings) []driver.Finding {
	found := []driver.Finding{finding(driver.LevelOK, "version", "PostgreSQL %s", v["server_version"])}
	switch commit := v["synchronous_commit"]; {
	case v["fsync"] == "off":
		found = append(found, repeats("fsync", "fsync is off: when the machine crashes, leases and fences may be lost with the rest of the database. Set fsync = on, and restart the server"))
	case v["full_page_writes"] == "off":
		found = append(found, repeats("fsync", "full_page_writes is off: when the machine crashes, pages may be torn, and leases and fences lost. Set full_page_writes = on, and reload"))
	case commit == "off":
		found = append(found, finding(driver.LevelFail, "synchronous_commit", "synchronous_commit is off: a commit is answered before it is on the disk, and a lease would be forgotten "+
			"in a crash, so none is granted. Set it to on for this user or database (ALTER ROLE … SET synchronous_commit = on)"))
	default:
		found = append(found, finding(driver.LevelOK, "synchronous_commit", "synchronous_commit is %s, fsync on: a lease is on the disk before it is granted", commit))
	}
	switch {
	case v["standby"] == "true":
		found = append(found, finding(driver.LevelFail, "role", "it is a standby, which grants no locks: name its primary"))
	case v["default_transaction_read_only"] == "on":
		found = append(found, finding(driver.LevelFail, "role", "default_transaction_read_only is on for this user or database: locks must be written. Set it to off for this user"))
	default:
		found = append(found, judgeStandbys(v))
	}
	return append(found, judgeIsolation(v["default_transaction_isolation"]), judgeConnections(v["connections"], v["max_connections"]))
}

// judgeConnections is about what waiting commands use up.
func judgeConnections(used, most string) driver.Finding {
	n, err := strconv.Atoi(used)
	m, err2 := strconv.Atoi(most)
	level := driver.LevelOK
	if err == nil && err2 == nil && n*10 >= m*8 {
		level = driver.LevelWarn
	}
	return finding(level, "connections", "%s of %s connections are in use; each waiting command takes one", used, most)
}

// judgeStandbys is about those that may be promoted.
func judgeStandbys(v settings) driver.Finding {
	const promoted = "one that is promoted may not have received every lock, and there can be two holders, and fences may repeat"
	switch names, commit := v["synchronous_standby_names"], v["synchronous_commit"]; {
	case v["standbys"] == "0" && names != "" && commit != "local" && commit != "off":
		return finding(driver.LevelWarn, "role", "it is a primary whose commits wait for a standby (synchronous_standby_names), and none is connected: nothing is granted before one is")
	case v["standbys"] != "0" && names != "" && v["statement_timeout"] != "0":
		return finding(driver.LevelWarn, "role", "its commits wait for standbys, but statement_timeout is %s for this user: it ends that wait, and what it ends is committed on this server alone. "+
			"This command does not take it for granted, but a program may whose client hears no warnings. Set it to 0 for this user", v["statement_timeout"])
	case v["standbys"] == "0":
		return finding(driver.LevelOK, "role", "it is a primary without standbys")
	case names == "":
		return repeats("role", "%s standbys receive its commits later, and synchronous_standby_names is empty: %s. Name there those that may be promoted", v["standbys"], promoted)
	case commit == "local" || commit == "off":
		return repeats("role", "synchronous_commit is %s, and so its commits wait for no standby: %s. Set it to on for this user", commit, promoted)
	case v["asynchronous"] != "0":
		return repeats("role", "%s of its %s standbys are asynchronous: %s. Promote none of them, or name them in synchronous_standby_names", v["asynchronous"], v["standbys"], promoted)
	}
	return finding(driver.LevelOK, "role", "it is a primary, whose commits wait for standbys (%s of them are connected)", v["standbys"])
}

func judgeReplicas(v settings) driver.Finding {
	const promoted = "one that is promoted may not have received every lock, and there can be two holders, and fences may repeat"
	either := func(what string) string {
		return cmp.Or(v["rpl_semi_sync_master_"+what], v["rpl_semi_sync_source_"+what])
	}
	switch {
	case v["read_only"] != "OFF":
		return finding(driver.LevelFail, "role", "it is read-only, as a replica is: name the server that takes writes")
	case either("enabled") == "ON" && either("status") == "OFF":
		return repeats("role", "semi-synchronous replication is on, but at present no replica is waited for, since none answered in time or is there: %s", promoted)
	case either("enabled") == "ON":
		return repeats("role", "semi-synchronous replication waits for a replica for %s ms, and commits without one after that, which this server tells nobody: %s. "+
			"Set rpl_semi_sync_master_timeout to longer than a replica is ever away", either("timeout"), promoted)
	case v["replicas"] != "0":
		return repeats("role", "%s replicas receive its commits later: %s. Semi-synchronous replication (AFTER_SYNC) prevents that, as long as it does not time out", v["replicas"], promoted)
	}
	return finding(driver.LevelOK, "role", "it takes writes, and no replica is seen (without the right PROCESS, none is)")
}

// judgeIsolation is about the one that sessions begin with. Transactions of locks name their own.
func judgeIsolation(isolation string) driver.Finding {
	isolation = strings.ToLower(strings.ReplaceAll(isolation, "-", " "))
	if isolation == "serializable" {
		return finding(driver.LevelWarn, "isolation", "the default isolation is serializable: transactions of locks set read committed for themselves, but single statements do not, and under "+
			"contention some of them fail and are sent again. Leave the default as it is for other users, and set another for this one")
	}
	return finding(driver.LevelOK, "isolation", "the default isolation is %s; transactions of locks set read committed for themselves", isolation)
}

// Replicas are seen by who may see the threads of others. MariaDB and MySQL have two names for the isolation.
var mysqlSettings = []string{`SHOW VARIABLES WHERE Variable_name IN ('version', 'max_connections', 'innodb_flush_log_at_trx_commit', 'autocommit', 'tx_isolation', 'transaction_isolation')`,
	`SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'wsrep_on') OR Variable_name RLIKE '^rpl_semi_sync_(master|source)_(enabled|timeout)$'`,
	`SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_cluster_size', 'Threads_connected') OR Variable_name RLIKE '^rpl_semi_sync_(master|source)_status$'`,
	`SELECT 'replicas', COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'`}

const mysqlClock = `SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

func judgeMySQL(v settings) []driver.Finding {
	found := []driver.Finding{finding(driver.LevelOK, "version", "%s", v["version"])}
	const flush = "innodb_flush_log_at_trx_commit"
	switch v[flush] {
	case "0":
		found = append(found, finding(driver.LevelFail, flush, "%s is 0: a commit is answered before it is written, and a lease would be forgotten in a crash, so none is granted. Set it to 1", flush))
	case "2":
		found = append(found, repeats(flush, "%s is 2: when the machine crashes, leases and fences of the last second may be lost. Set it to 1", flush))
	default:
		found = append(found, finding(driver.LevelOK, flush, "%s is %s: a lease is on the disk before it is granted", flush, v[flush]))
	}
	if v["autocommit"] == "OFF" {
		found = append(found, finding(driver.LevelFail, "autocommit", "autocommit is off for this user: statements of locks would not be committed, so none is granted. Leave it on (init_connect)"))
	}
	found = append(found, judgeReplicas(v))
	if v["wsrep_on"] == "ON" && v["wsrep_cluster_size"] != "1" {
		found = append(found, finding(driver.LevelWarn, "galera", "it is one of %s nodes of a Galera cluster, each of which measures leases by its own clock: where those differ, there can be two holders. "+
			"All programs must use one node only, and another when that is gone for longer than their leases last (in a proxy: one writer, the others as backups)", v["wsrep_cluster_size"]))
	}
	return append(found, judgeIsolation(cmp.Or(v["transaction_isolation"], v["tx_isolation"])), judgeConnections(v["threads_connected"], v["max_connections"]))
}
