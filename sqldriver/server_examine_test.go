// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/testserver"
)

// has fails unless there is such a finding.
func has(t *testing.T, found []operator.Finding, level operator.Level, check, part string) {
	t.Helper()
	if !slices.ContainsFunc(found, func(f operator.Finding) bool {
		return f.Level == level && f.Check == check && strings.Contains(f.Text, part)
	}) {
		t.Errorf("no finding %s %s %q in %+v", level, check, part, found)
	}
}

func TestSettingsAreJudged(t *testing.T) {
	const flush = "innodb_flush_log_at_trx_commit"
	postgres := settings{"server_version": "15.1", "fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "standby": "false", "standbys": "0",
		"ahead": "-0.002", "default_transaction_isolation": "read committed", "default_transaction_read_only": "off", "statement_timeout": "0"}
	mysql := settings{"version": "10.11", flush: "1", "read_only": "OFF", "autocommit": "ON", "replicas": "0", "tx_isolation": "REPEATABLE-READ"}
	for _, c := range []struct {
		judge   func(settings) []operator.Finding
		base    settings
		change  settings
		level   operator.Level
		check   string
		text    string
		repeats bool
	}{
		{judgePostgres, postgres, nil, operator.LevelOK, "role", "a primary without standbys", false},
		{judgePostgres, postgres, nil, operator.LevelOK, "isolation", "read committed;", false},
		{judgePostgres, postgres, settings{"fsync": "off"}, operator.LevelWarn, "fsync", "fsync = on", true},
		{judgePostgres, postgres, settings{"full_page_writes": "off"}, operator.LevelWarn, "fsync", "full_page_writes = on", true},
		{judgePostgres, postgres, settings{"synchronous_commit": "off"}, operator.LevelFail, "synchronous_commit", "ALTER ROLE", false},
		{judgePostgres, postgres, settings{"standby": "true"}, operator.LevelFail, "role", "name its primary", false},
		{judgePostgres, postgres, settings{"default_transaction_read_only": "on"}, operator.LevelFail, "role", "default_transaction_read_only", false},
		{judgePostgres, postgres, settings{"standbys": "2"}, operator.LevelWarn, "role", "2 standbys receive its commits later", true},
		{judgePostgres, postgres, settings{"standbys": "1", "synchronous_standby_names": "*"}, operator.LevelOK, "role", "whose commits wait for all of its standbys (1)", false},
		{judgePostgres, postgres, settings{"standbys": "2", "synchronous_standby_names": "FIRST 2 (s1, s2)"}, operator.LevelOK, "role", "whose commits wait for all of its standbys (2)", false},
		{judgePostgres, postgres, settings{"standbys": "2", "synchronous_standby_names": "2(s1, s2)"}, operator.LevelOK, "role", "whose commits wait for all of its standbys (2)", false},
		{judgePostgres, postgres, settings{"standbys": "3", "synchronous_standby_names": " any\t03 (s1, \"s 2\", s3)"}, operator.LevelOK, "role", "whose commits wait for all of its standbys (3)", false},
		{judgePostgres, postgres, settings{"standbys": "2", "synchronous_standby_names": "s1, s2"}, operator.LevelWarn, "role", "its commits wait for 1 of its 2 standbys: ", true},
		{judgePostgres, postgres, settings{"standbys": "2", "synchronous_standby_names": "*"}, operator.LevelWarn, "role", "its commits wait for 1 of its 2 standbys: ", true},
		{judgePostgres, postgres, settings{"standbys": "2", "synchronous_standby_names": "ANY 1 (s1, s2)"}, operator.LevelWarn, "role", "its commits wait for 1 of its 2 standbys: ", true},
		{judgePostgres, postgres, settings{"standbys": "3", "synchronous_standby_names": "FIRST 2 (s1, s2, s3)"}, operator.LevelWarn, "role", "its commits wait for 2 of its 3 standbys: ", true},
		{judgePostgres, postgres, settings{"standbys": "2", "synchronous_standby_names": "\"2 (\""}, operator.LevelWarn, "role", "its commits wait for 1 of its 2 standbys: ", true},
		{judgePostgres, postgres, settings{"standbys": "1", "synchronous_standby_names": "*", "statement_timeout": "5s"}, operator.LevelWarn, "role", "statement_timeout is 5s", false},
		{judgePostgres, postgres, settings{"standbys": "2", "synchronous_standby_names": "*", "statement_timeout": "5s"}, operator.LevelWarn, "role", "1 of its 2", true},
		{judgePostgres, postgres, settings{"standbys": "1", "synchronous_standby_names": "*", "ahead": "0.302"}, operator.LevelOK, "skew", "no standby's clock is seen more than 302ms ahead", false},
		{judgePostgres, postgres, settings{"standbys": "1", "synchronous_standby_names": "*", "ahead": "0.303"}, operator.LevelWarn, "skew", "a standby is 303ms ahead of its own, or more: leases end early", false},
		{judgePostgres, postgres, settings{"standbys": "1", "synchronous_standby_names": "*", "ahead": ""}, operator.LevelWarn, "skew", "may not see whether the clock of a standby is more than 302ms ahead: leases end early", false},
		{judgePostgres, postgres, settings{"standbys": "1", "synchronous_standby_names": "*", "synchronous_commit": "local"}, operator.LevelWarn, "role", "wait for no standby", true},
		{judgePostgres, postgres, settings{"synchronous_standby_names": "*"}, operator.LevelWarn, "role", "none is connected", false},
		{judgePostgres, postgres, settings{"default_transaction_isolation": "serializable"}, operator.LevelWarn, "isolation", "serializable", false},
		{judgeMySQL, mysql, nil, operator.LevelOK, "role", "it takes writes", false},
		{judgeMySQL, mysql, nil, operator.LevelOK, "isolation", "repeatable read;", false},
		{judgeMySQL, mysql, settings{flush: "2"}, operator.LevelWarn, flush, "last second", true},
		{judgeMySQL, mysql, settings{flush: "0"}, operator.LevelFail, flush, "Set it to 1", false},
		{judgeMySQL, mysql, settings{"read_only": "ON"}, operator.LevelFail, "role", "read-only", false},
		{judgeMySQL, mysql, settings{"autocommit": "OFF"}, operator.LevelFail, "autocommit", "autocommit is off", false},
		{judgeMySQL, mysql, settings{"replicas": "1"}, operator.LevelWarn, "role", "1 replicas", true},
		{judgeMySQL, mysql, settings{"replicas": "1", "rpl_semi_sync_master_enabled": "ON", "rpl_semi_sync_master_status": "OFF"}, operator.LevelWarn, "role", "no replica is waited for", true},
		{judgeMySQL, mysql, settings{"rpl_semi_sync_source_enabled": "ON", "rpl_semi_sync_source_status": "ON", "rpl_semi_sync_source_timeout": "10000"}, operator.LevelWarn, "role", "10000 ms", true},
		{judgeMySQL, mysql, settings{"wsrep_on": "ON", "wsrep_cluster_size": "3"}, operator.LevelWarn, "galera", "one of 3 nodes", false},
		{judgeMySQL, mysql, settings{"wsrep_on": "ON", "wsrep_cluster_size": "1"}, operator.LevelOK, "role", "takes writes", false},
		{judgeMySQL, mysql, settings{"transaction_isolation": "SERIALIZABLE"}, operator.LevelWarn, "isolation", "serializable", false},
	} {
		v := maps.Clone(c.base)
		maps.Copy(v, c.change)
		found := c.judge(v)
		has(t, found, c.level, c.check, c.text)
		for _, f := range found {
			if f.Check != c.check && f.Level != operator.LevelOK || f.Check == c.check && f.FencesRepeat != c.repeats {
				t.Errorf("%v: besides, %+v", c.change, f)
			}
		}
	}
}

func TestClockIsJudged(t *testing.T) {
	for _, c := range []struct {
		ahead, trip time.Duration
		level       operator.Level
		text        string
	}{
		{time.Millisecond, time.Millisecond, operator.LevelOK, "give or take 1ms"},
		{-3 * time.Second, time.Millisecond, operator.LevelWarn, "3s behind"},
		{3 * time.Second, time.Millisecond, operator.LevelWarn, "3s ahead of"},
		{3 * time.Second, 5 * time.Second, operator.LevelOK, "give or take 3s"},
	} {
		has(t, []operator.Finding{judgeClock(c.ahead, c.trip)}, c.level, "clock", c.text)
	}
}

func TestExaminePostgres(t *testing.T) {
	t.Parallel()
	found, err := newPostgres(t, testserver.Postgres(t)).open(t).Examine(t.Context())
	must(t, err)
	has(t, found, operator.LevelOK, "version", "PostgreSQL 1")
	has(t, found, operator.LevelWarn, "fsync", "fsync = on") // as the tests start it
	has(t, found, operator.LevelOK, "role", "without standbys")
	has(t, found, operator.LevelOK, "isolation", "read committed;")
	has(t, found, operator.LevelOK, "clock", "this machine's")
}

// A standby tells its own clock, to a user who may see it.
func TestExamineStandby(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, append(testserver.PostgresReplicates, "synchronous_standby_names=*", "synchronous_commit=local")...)
	d := newPostgres(t, server)
	admin := d.pool(t)
	testserver.PostgresStandby(t, server)
	waitFor(t, "the standby has replied", func() bool {
		return number(t, admin, "SELECT count(*) FROM pg_stat_replication WHERE reply_time IS NOT NULL") == 1
	})
	run(t, admin, "CREATE USER app")
	for user, want := range map[string]operator.Finding{
		"postgres": {Level: operator.LevelOK, Text: "no standby's clock is seen more"}, "app": {Level: operator.LevelWarn, Text: "this user may not see"},
	} {
		as := d
		as.dsn = strings.Replace(d.dsn, "postgres@", user+"@", 1)
		found, err := as.open(t).Examine(t.Context())
		must(t, err)
		has(t, found, want.Level, "skew", want.Text)
	}
}

func TestExamineMySQL(t *testing.T) {
	t.Parallel()
	found, err := newMySQL(t, testserver.MariaDB(t, "--transaction-isolation=SERIALIZABLE")).open(t).Examine(t.Context())
	must(t, err)
	has(t, found, operator.LevelOK, "version", "MariaDB")
	has(t, found, operator.LevelOK, "innodb_flush_log_at_trx_commit", "on the disk")
	has(t, found, operator.LevelOK, "role", "takes writes")
	has(t, found, operator.LevelWarn, "isolation", "serializable")
	has(t, found, operator.LevelOK, "clock", "this machine's")
}
