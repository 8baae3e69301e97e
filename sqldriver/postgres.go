// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
)

// PostgresOptions are options of [NewPostgres]; the zero value is the default.
type PostgresOptions struct {
	// Listener hears notifications for the waiters of this driver, so that a release
	// wakes the next one at once; see package sqldriver/pgxlisten. nil: waiters poll. A Listener that is a Noticer,
	// as that is, hears of commits that no standby has.
	Listener Listener
}

// NewPostgres returns a driver that keeps locks in a PostgreSQL database, version 12 or
// later, in which [Server.Init] made the tables, or a person did with [PostgresSchema].
// They are found by the search_path of db's connections. o may be nil.
//
// db stays the caller's: hasp.Client.Close does not close it. Any driver of
// database/sql will do; github.com/jackc/pgx/v5/stdlib is tested.
func NewPostgres(db *sql.DB, o *PostgresOptions) *Server {
	s := newServer(db, postgresEngine())
	if o != nil {
		s.hints.listener = o.Listener
		s.pipe, _ = o.Listener.(Pipeliner)
		s.notices, _ = o.Listener.(Noticer)
	}
	return s
}

// PostgresSchema makes the tables in PostgreSQL, where they are missing, as
// [Server.Init] does. It raises the sequence of fences where that is behind the clock or the tables, by some more
// than that, since others may take fences meanwhile.
const PostgresSchema = `CREATE TABLE IF NOT EXISTS hasp_key (
	lock_key BYTEA    PRIMARY KEY,
	held     SMALLINT NOT NULL DEFAULT 0,
	owner    TEXT     NOT NULL DEFAULT '',
	label    BYTEA    NOT NULL DEFAULT '',
	fence    BIGINT   NOT NULL DEFAULT 0,
	since    BIGINT   NOT NULL DEFAULT 0,
	expires  BIGINT   NOT NULL DEFAULT 0,
	most     INTEGER  NOT NULL DEFAULT 0,
	mark     SMALLINT NOT NULL DEFAULT 0,
	others   SMALLINT NOT NULL DEFAULT 0,
	keep     BIGINT   NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1);
CREATE INDEX IF NOT EXISTS hasp_key_keep ON hasp_key (keep);
CREATE TABLE IF NOT EXISTS hasp_lease (
	lock_key BYTEA    NOT NULL,
	owner    TEXT     NOT NULL,
	label    BYTEA    NOT NULL,
	kind     TEXT     NOT NULL CHECK (kind IN ('held', 'queue', 'gone')),
	seq      BIGINT   NOT NULL,
	fence    BIGINT   NOT NULL,
	since    BIGINT   NOT NULL,
	expires  BIGINT   NOT NULL,
	mode     SMALLINT NOT NULL,
	most     INTEGER  NOT NULL,
	slot     INTEGER  NOT NULL,
	mark     SMALLINT NOT NULL,
	inbox    TEXT     NOT NULL,
	PRIMARY KEY (lock_key, owner)
);
CREATE SEQUENCE IF NOT EXISTS hasp_fence INCREMENT BY 1024 CACHE 1;
SELECT setval('hasp_fence', most + 1073741824) FROM (SELECT GREATEST((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 1125899906842624,
	(SELECT MAX(fence) FROM hasp_key), (SELECT MAX(fence) FROM hasp_lease)) AS most) m WHERE (SELECT last_value FROM hasp_fence) < most;
CREATE TABLE IF NOT EXISTS hasp_meta (
	id      SMALLINT PRIMARY KEY CHECK (id = 1),
	version INTEGER  NOT NULL
);
INSERT INTO hasp_meta (id, version) VALUES (1, 1) ON CONFLICT (id) DO NOTHING;
`

// postgresSafe is 0 where the server answers a commit before it has written it.
const postgresSafe = `(CASE WHEN current_setting('synchronous_commit') = 'off' THEN 0 ELSE 1 END)`

// postgresMode is a serverMode. A standby's transactions are all read-only.
const postgresMode = `(CASE WHEN current_setting('synchronous_commit') = 'off' THEN 0 WHEN current_setting('transaction_read_only') = 'on' THEN 1 ELSE 2 END)`

// postgresNow is exact to the microsecond: a float has 53 bits, and is computed with faster than the
// decimal number that extract returns.
const postgresNow = `((date_part('epoch', clock_timestamp()) * 1000000)::bigint * 1000 - 1577836800000000000)`

// postgresFence is a new one, larger than another by as many as a grant may have, or the statement fails (22012): a
// sequence may have been left behind when the tables were moved, and then knows nothing of keys without a row either.
const postgresFence = `CASE WHEN nextval('hasp_fence') >= GREATEST({than}, 1125899906842624) + 1024 THEN currval('hasp_fence')
			ELSE 1 / (currval('hasp_fence') - currval('hasp_fence')) END`

func postgresFenceAbove(than string) string { return strings.Replace(postgresFence, "{than}", than, 1) }

// postgresNext is a fence where the key may be granted.
const postgresNext = `(CASE WHEN k.held = 1 AND k.owner <> '' AND k.expires > c.now OR current_setting('transaction_read_only') = 'on' THEN 0 ELSE nextval('hasp_fence') END)`

// postgresEngine is made for the first Server: most programs have none.
var postgresEngine = sync.OnceValue(func() *engine {
	return &engine{
		name:     "postgres",
		schema:   PostgresSchema,
		settings: postgresSettings, clock: postgresClock, judge: judgePostgres,
		explain:  explainPostgres,
		overtook: func(err error) bool { return in(sqlState(err), "40001", "40P01") },
		raise:    ", or by hand: SELECT setval('hasp_fence', (SELECT GREATEST((extract(epoch FROM now()) * 1000000)::bigint, MAX(fence)) FROM hasp_key))",
		fences:   "SELECT last_value, (SELECT COALESCE(MAX(fence), 0) FROM hasp_key) FROM hasp_fence",
		sequence: true,
		whole:    wholePostgres,
		byHand: func(key string) []string {
			const query = "SELECT held, owner, convert_from(label, 'LATIN1') AS label, fence, to_timestamp(expires / 1e9 + 1577836800) AS expires FROM "
			return []string{
				fmt.Sprintf(`%shasp_key WHERE lock_key = '\x%x';`, query, key),
				fmt.Sprintf(`%shasp_lease WHERE lock_key = '\x%x' AND kind <> 'gone' ORDER BY kind, seq;`, strings.Replace(query, "held", "kind", 1), key),
			}
		},
		text: written(postgresText, strings.NewReplacer("{now}", postgresNow, "{safe}", postgresSafe, "{mode}", postgresMode, "{div}", "/", "{next}", postgresNext,
			"{text}", "?::text", "{bytes}", "?::bytea", "{int}", "?::bigint"), true),
	}
})

var postgresText = map[statement]string{
	sBegin: `BEGIN ISOLATION LEVEL READ COMMITTED`,

	// A transaction whose client stops within it ends, so that others get the row. The advisory lock, whose
	// first number is "hasp", is a queue: transactions that wait for a row that others keep changing get it in any
	// order. WHERE FALSE: of a row that is there nothing is written, it is locked.
	sLock: `INSERT INTO hasp_key AS k (lock_key, keep)
		SELECT $1::bytea, {now} / 60000000000 + 2
		FROM (SELECT set_config('idle_in_transaction_session_timeout', '5s', true) AS set,
			pg_advisory_xact_lock(1751217008, hashtext(encode($1::bytea, 'hex'))) IS NULL AS lock) s WHERE s.set IS NOT NULL AND s.lock IS NOT NULL
		ON CONFLICT (lock_key) DO UPDATE SET keep = k.keep WHERE FALSE`,

	// key, the largest fence
	sBury: `WITH k AS (DELETE FROM hasp_key WHERE lock_key = ? AND fence <= ? AND keep < {now} / 60000000000 RETURNING lock_key)
		DELETE FROM hasp_lease l USING k WHERE l.lock_key = k.lock_key`,

	// owner, label, span of the ttl, ttl, for how long its row is kept, key, the key and the same, key
	//
	// The clock and the sequence are read when the row is locked, and once more where that
	// had to be waited for. Only a new row's are older than its right to be there: by no more
	// than half of what a row is kept for after its key was held, or it fails (22012); so
	// none can have been made, held and swept in between, and had a larger fence. A fence that is too small fails
	// likewise, and then choose says so.
	sGrant: `WITH u AS (UPDATE hasp_key SET held = 1, owner = ?, label = ?, fence = ` + postgresFenceAbove("fence") + `,
			since = {now} + ?, expires = {now} + ?, keep = GREATEST(keep, ({now} + ?) / 60000000000 + 1)
			WHERE lock_key = ? AND held = 0 AND others = 0 AND {safe} = 1 RETURNING fence),
		i AS (INSERT INTO hasp_key (lock_key, held, owner, label, fence, since, expires, keep)
			SELECT ?::bytea, 1, ?::text, ?::bytea, ` + postgresFenceAbove("0") + `, {now} + ?::bigint, {now} + ?::bigint, ({now} + ?::bigint) / 60000000000 + 1
			WHERE NOT EXISTS (SELECT 1 FROM u) AND NOT EXISTS (SELECT 1 FROM hasp_key WHERE lock_key = ?::bytea) AND {safe} = 1
			ON CONFLICT (lock_key) DO NOTHING
			RETURNING fence, 1 / (CASE WHEN clock_timestamp() - statement_timestamp() < interval '30 s' THEN 1 ELSE 0 END) AS new)
		SELECT fence, 0 FROM u UNION ALL SELECT fence, new FROM i`,

	// A row that is locked is passed over: others' leases do not wait for it.
	sRenewMany: `WITH f AS (SELECT lock_key FROM hasp_key WHERE ` + serverMany + ` FOR UPDATE SKIP LOCKED)
		UPDATE hasp_key AS k SET since = ` + spanRaised + `, expires = GREATEST(k.expires, {now} + ?), keep = GREATEST(k.keep, ({now} + ?) / 60000000000 + 1)
		FROM f WHERE k.lock_key = f.lock_key`,

	// key, key, key
	sNotify: `SELECT pg_notify(q.inbox, q.owner) FROM (SELECT inbox, owner, seq, mode FROM hasp_lease
			WHERE lock_key = ? AND kind = 'queue' AND expires > {now} ORDER BY seq LIMIT 16) q
		WHERE q.inbox <> '' AND (q.seq = (SELECT MIN(f.seq) FROM hasp_lease f WHERE f.lock_key = ? AND f.kind = 'queue' AND f.expires > {now})
			OR q.seq < (SELECT COALESCE(MIN(x.seq), 9223372036854775807) FROM hasp_lease x
				WHERE x.lock_key = ? AND x.kind = 'queue' AND x.expires > {now} AND x.mode = 0))`,

	sSelf: `SELECT pg_notify(?, ?)`,
}

// wholePostgres needs a Pipeliner. What follows where the key is not as it was seen does nothing.
func wholePostgres(c *conn, lock, same Step, writes []Step) (able, done bool, err error) {
	if c.s.pipe == nil {
		return false, false, nil
	}
	var seen int64
	same.Text, same.Rows = `SELECT set_config('hasp.same', '1', true) WHERE EXISTS (`+same.Text+`)`, &seen
	steps := []Step{{Text: c.s.eng.text[sBegin]}, lock, same}
	for _, w := range writes {
		w.Text += ` AND current_setting('hasp.same', true) = '1'`
		steps = append(steps, w)
	}
	steps = append(steps, Step{Text: `COMMIT`})
	err = c.sql.Raw(func(conn any) (err error) {
		able, err = c.s.pipe.Pipeline(c.ctx, conn, steps)
		return err
	})
	return able || err != nil, seen == 1, err
}

func explainPostgres(err error) error {
	if errors.Is(err, errForgets) {
		return &storeError{class: driver.ClassMisconfigured, err: errors.New("synchronous_commit is off"),
			advice: adviceForget + "set it to on for this user or database (ALTER ROLE ... SET synchronous_commit = on)"}
	}
	state := sqlState(err)
	e := &storeError{err: err}
	switch {
	case errors.Is(err, errAlone):
		e.class, e.advice = driver.ClassUnreachable, "so it does not count: look at the synchronous standbys"
	case in(state, "42P01", "42703"): // no such table, column
		e.class, e.advice = driver.ClassMisconfigured, adviceTables
	case state == "3F000":
		e.class, e.advice = driver.ClassMisconfigured, "the search_path of this user names no schema that exists"
	case state == "42883":
		e.class, e.advice = driver.ClassMisconfigured, "the server lacks a function of PostgreSQL's, or the search_path of this user hides it: is it another product?"
	case state == "42501":
		e.class, e.advice = driver.ClassDenied, adviceDenied+"SELECT on hasp_meta, USAGE on the sequence hasp_fence and on their schema, and what "+
			"PostgreSQL allows everybody: EXECUTE of its own functions. To make the tables it needs CREATE on the schema"
	case strings.HasPrefix(state, "28"):
		e.class, e.advice = driver.ClassLogin, "the server does not let this user in: look at the name, the password and pg_hba.conf"
	case state == "3D000":
		e.class, e.advice = driver.ClassMisconfigured, "the database does not exist"
	case in(state, "26000", "42P05"):
		e.class, e.advice = driver.ClassMisconfigured, "a pooler of connections in between gives each transaction another session: have the client prepare no "+
			"statements (pgx: default_query_exec_mode=exec)"
	case state == "53100":
		e.class, e.advice = driver.ClassFull, "the server's disk is full"
	case state == "25006" || errors.Is(err, errDemoted):
		e.class, e.advice = driver.ClassReadOnly, adviceReadOnly+" (default_transaction_read_only)"
	case state == "0A000":
		e.class, e.advice = driver.ClassUnreachable, "the server cannot do that at present: it is a standby that has serializable as its default isolation, or the tables were changed meanwhile"
	case in(state, "55P03", "57014"):
		e.class, e.advice = driver.ClassUnreachable, "a statement took longer than lock_timeout or statement_timeout of this user allow, or somebody cancelled it"
	case state != "" && in(state[:2], "08", "40", "53", "57", "58") || in(state, "25P03", "55000"):
		e.class, e.advice = driver.ClassUnreachable, "the server, or a pooler in between, is starting, stopping, overloaded or without a disk, or ended the connection"
	default:
		return nil
	}
	return e
}

// A user without the right to see the standbys still sees their number. Their clocks are as old as their latest replies: 10 s at most.
var postgresSettings = []string{`SELECT name, current_setting(name) FROM unnest(ARRAY['server_version', 'fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', 'statement_timeout',
		'default_transaction_isolation', 'default_transaction_read_only', 'max_connections']) AS name
	UNION ALL SELECT 'standby', pg_is_in_recovery()::text
	UNION ALL SELECT 'connections', SUM(numbackends)::text FROM pg_stat_database
	UNION ALL SELECT 'standbys', count(*)::text FROM pg_stat_replication
	UNION ALL SELECT 'ahead', max(extract(epoch FROM reply_time - clock_timestamp()))::text FROM pg_stat_replication`}

const postgresClock = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

func judgePostgres(v settings) []operator.Finding {
	found := []operator.Finding{finding(operator.LevelOK, "version", "PostgreSQL %s", v["server_version"])}
	switch commit := v["synchronous_commit"]; {
	case v["fsync"] == "off":
		found = append(found, repeats("fsync", "fsync is off: when the machine crashes, leases and fences may be lost with the rest of the database. Set fsync = on, and restart the server"))
	case v["full_page_writes"] == "off":
		found = append(found, repeats("fsync", "full_page_writes is off: when the machine crashes, pages may be torn, and leases and fences lost. Set full_page_writes = on, and reload"))
	case commit == "off":
		found = append(found, finding(operator.LevelFail, "synchronous_commit", "synchronous_commit is off: a commit is answered before it is on the disk, and a lease would be forgotten "+
			"in a crash, so none is granted. Set it to on for this user or database (ALTER ROLE … SET synchronous_commit = on)"))
	default:
		found = append(found, finding(operator.LevelOK, "synchronous_commit", "synchronous_commit is %s, fsync on: a lease is on the disk before it is granted", commit))
	}
	switch {
	case v["standby"] == "true":
		found = append(found, finding(operator.LevelFail, "role", "it is a standby, which grants no locks: name its primary"))
	case v["default_transaction_read_only"] == "on":
		found = append(found, finding(operator.LevelFail, "role", "default_transaction_read_only is on for this user or database: locks must be written. Set it to off for this user"))
	default:
		found = append(found, judgeStandbys(v))
		if v["standbys"] != "0" {
			found = append(found, judgeAhead(v["ahead"]))
		}
	}
	return append(found, judgeIsolation(v["default_transaction_isolation"]), judgeConnections(v["connections"], v["max_connections"]))
}

// awaited finds in synchronous_standby_names for how many standbys each commit waits: for one where it says no number.
var awaited = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)^\s*(?:(?:FIRST|ANY)\s+)?([0-9]+)\s*\(`) })

// judgeStandbys is about those that may be promoted.
func judgeStandbys(v settings) operator.Finding {
	const promoted = "a standby that is promoted may not have received every lock, and there can be two holders, and fences may repeat"
	names, commit, waits := v["synchronous_standby_names"], v["synchronous_commit"], 1
	if n := awaited().FindStringSubmatch(names); n != nil {
		waits, _ = strconv.Atoi(n[1])
	}
	switch n, _ := strconv.Atoi(v["standbys"]); {
	case n == 0 && names != "" && commit != "local" && commit != "off":
		return finding(operator.LevelWarn, "role", "it is a primary whose commits wait for a standby (synchronous_standby_names), and none is connected: nothing is granted before one is")
	case n == 0:
		return finding(operator.LevelOK, "role", "it is a primary without standbys")
	case names == "":
		return repeats("role", "%d standbys receive its commits later, and synchronous_standby_names is empty: %s. Name there those that may be promoted", n, promoted)
	case commit == "local" || commit == "off":
		return repeats("role", "synchronous_commit is %s, and so its commits wait for no standby: %s. Set it to on for this user", commit, promoted)
	case n > waits:
		return repeats("role", "its commits wait for %d of its %d standbys: %s. Set synchronous_standby_names to FIRST n (…) of all n that may be promoted, "+
			"or take a failover tool that promotes the one that received most", waits, n, promoted)
	case v["statement_timeout"] != "0":
		return finding(operator.LevelWarn, "role", "its commits wait for standbys, but statement_timeout is %s for this user: it ends that wait, and what it ends is committed on this server alone. "+
			"This command does not take it for granted, but a program may whose client hears no warnings. Set it to 0 for this user", v["statement_timeout"])
	}
	return finding(operator.LevelOK, "role", "it is a primary, whose commits wait for all of its standbys (%s)", v["standbys"])
}

// drift is how far ahead the clock of a server that takes over may be, for a lease of 30 s.
const drift = 302 * time.Millisecond

// judgeAhead is about the seconds by which a standby's clock, when it last replied, was ahead of now.
func judgeAhead(seconds string) operator.Finding {
	const ends = "leases end early when such a standby is promoted, and there can be two holders"
	ahead, err := strconv.ParseFloat(seconds, 64)
	switch by := time.Duration(ahead * float64(time.Second)); {
	case err != nil:
		return finding(operator.LevelWarn, "skew", "this user may not see whether the clock of a standby is more than %v ahead: %s. GRANT pg_read_all_stats to this user, or compare the clocks by hand", drift, ends)
	case by > drift:
		return finding(operator.LevelWarn, "skew", "the clock of a standby is %v ahead of its own, or more: %s. Synchronise both with NTP, by slewing", by.Round(time.Millisecond), ends)
	}
	return finding(operator.LevelOK, "skew", "no standby's clock is seen more than %v ahead (by its latest reply, which may be 10 s old)", drift)
}
