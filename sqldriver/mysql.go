// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
)

// NewMySQL returns a driver that keeps locks in a database of MariaDB 10.6 or later, or
// MySQL 8, in which [Server.Init] made the tables, or a person did with [MySQLSchema].
// They are in the database that db's connections use.
//
// db stays the caller's: hasp.Client.Close does not close it. It is tested with
// github.com/go-sql-driver/mysql and MariaDB 10.11; for MySQL 8 it is written, not tested.
func NewMySQL(db *sql.DB) *Server { return newServer(db, mysqlEngine()) }

// MySQLSchema makes the tables in MariaDB or MySQL, where they are missing, as
// [Server.Init] does.
const MySQLSchema = `CREATE TABLE IF NOT EXISTS hasp_key (
	lock_key VARBINARY(512) NOT NULL PRIMARY KEY,
	held     SMALLINT       NOT NULL DEFAULT 0,
	owner    VARBINARY(26)  NOT NULL DEFAULT '',
	label    VARBINARY(512) NOT NULL DEFAULT '',
	fence    BIGINT         NOT NULL DEFAULT 0,
	since    BIGINT         NOT NULL DEFAULT 0,
	expires  BIGINT         NOT NULL DEFAULT 0,
	most     INTEGER        NOT NULL DEFAULT 0,
	mark     SMALLINT       NOT NULL DEFAULT 0,
	others   SMALLINT       NOT NULL DEFAULT 0,
	keep     BIGINT         NOT NULL,
	KEY hasp_key_keep (keep)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS hasp_lease (
	lock_key VARBINARY(512) NOT NULL,
	owner    VARBINARY(26)  NOT NULL,
	label    VARBINARY(512) NOT NULL,
	kind     VARCHAR(5) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	seq      BIGINT         NOT NULL,
	fence    BIGINT         NOT NULL,
	since    BIGINT         NOT NULL,
	expires  BIGINT         NOT NULL,
	mode     SMALLINT       NOT NULL,
	most     INTEGER        NOT NULL,
	slot     INTEGER        NOT NULL,
	mark     SMALLINT       NOT NULL,
	inbox    VARBINARY(63)  NOT NULL,
	PRIMARY KEY (lock_key, owner)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS hasp_meta (
	id      SMALLINT NOT NULL PRIMARY KEY CHECK (id = 1),
	version INTEGER  NOT NULL,
	fence   BIGINT   NOT NULL
) ENGINE = InnoDB;
INSERT INTO hasp_meta (id, version, fence) VALUES (1, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence));
`

// mysqlSafe is 0 where the server answers a commit before it has written it, or where
// the connection would not commit a statement by itself.
const mysqlSafe = `(@@autocommit = 1 AND @@innodb_flush_log_at_trx_commit > 0)`

// mysqlMode is a serverMode.
const mysqlMode = `(CASE WHEN ` + mysqlSafe + ` THEN CASE WHEN @@read_only THEN 1 ELSE 2 END ELSE 0 END)`

// mysqlNow is the moment at which the statement began: where it waited for a row it is
// from before, and so no lease counts as over that is not.
const mysqlNow = `(TIMESTAMPDIFF(MICROSECOND, '2020-01-01', UTC_TIMESTAMP(6)) * 1000)`

// mysqlEngine is made for the first Server: most programs have none.
var mysqlEngine = sync.OnceValue(func() *engine {
	return &engine{
		name:     "mysql",
		schema:   MySQLSchema,
		settings: mysqlSettings, clock: mysqlClock, judge: judgeMySQL,
		explain: explainMySQL,
		// A deadlock; a row that changed since the transaction's snapshot (MariaDB).
		overtook: func(err error) bool { return in(mysqlNumber(err), 1213, 1020) },
		raise:    ", or by hand: UPDATE hasp_meta SET fence = UNIX_TIMESTAMP() * 1000000",
		fences:   "SELECT fence, 0 FROM hasp_meta",
		literals: true,
		isolate:  mysqlIsolation,
		whole:    wholeMySQL,
		byHand: func(key string) []string {
			const query = "SELECT held, owner, label, fence, FROM_UNIXTIME(expires / 1e9 + 1577836800) AS expires FROM "
			return []string{
				fmt.Sprintf(`%shasp_key WHERE lock_key = X'%x';`, query, key),
				fmt.Sprintf(`%shasp_lease WHERE lock_key = X'%x' AND kind <> 'gone' ORDER BY kind, seq;`, strings.Replace(query, "held", "kind", 1), key),
			}
		},
		text: written(mysqlText, strings.NewReplacer("{now}", mysqlNow, "{safe}", mysqlSafe, "{mode}", mysqlMode, "{div}", "DIV",
			"{next}", `(SELECT m.fence FROM hasp_meta m WHERE m.id = 1)`, "{text}", "?", "{bytes}", "?", "{int}", "?"), false),
	}
})

var mysqlText = map[statement]string{
	sBegin: `START TRANSACTION`,

	// Of a row that is there nothing changes, it is locked.
	sLock: `INSERT INTO hasp_key (lock_key, keep) VALUES (?, {now} DIV 60000000000 + 2) ON DUPLICATE KEY UPDATE keep = keep`,

	// owner, label, how many fences, span of the ttl, ttl, for how long its row is kept, key
	sGrant: `UPDATE hasp_key SET held = 1, owner = ?, label = ?, fence = LAST_INSERT_ID(fence + ?),
			since = {now} + ?, expires = {now} + ?, keep = GREATEST(keep, ({now} + ?) DIV 60000000000 + 1)
		WHERE lock_key = ? AND held = 0 AND others = 0 AND fence > 0 AND {safe} = 1`,

	// A row that is locked is passed over: others' leases do not wait for it. LIMIT keeps the
	// inner SELECT one of its own.
	sRenewMany: `UPDATE (SELECT lock_key FROM hasp_key WHERE ` + serverMany + ` LIMIT 1000 FOR UPDATE SKIP LOCKED) AS f STRAIGHT_JOIN hasp_key AS k
			ON k.lock_key = f.lock_key
		SET k.since = k.` + spanRaised + `, k.expires = GREATEST(k.expires, {now} + ?), k.keep = GREATEST(k.keep, ({now} + ?) DIV 60000000000 + 1)`,

	// key, the largest fence
	sBury: `DELETE k, l FROM hasp_key k LEFT JOIN hasp_lease l ON l.lock_key = k.lock_key
		WHERE k.lock_key = ? AND k.fence <= ? AND k.keep < {now} DIV 60000000000`,

	sRaise: `UPDATE hasp_meta SET fence = GREATEST(fence, ?) WHERE id = 1`,
}

// mysqlIsolation is for the next transaction alone. In another isolation it would lock the gaps beside
// what it deletes, where others insert.
const mysqlIsolation = `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`

// wholeMySQL is for MariaDB: MySQL has no such statement outside of a procedure, and says so by 1064.
func wholeMySQL(c *conn, lock, same Step, writes []Step) (able, done bool, err error) {
	var b strings.Builder
	b.WriteString(`BEGIN NOT ATOMIC DECLARE same INT DEFAULT 0; DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; `)
	fmt.Fprintf(&b, `%s; %s; %s; SELECT COUNT(*) INTO same FROM (%s) s; IF same = 1 THEN `, mysqlIsolation, c.s.eng.text[sBegin], lock.Text, same.Text)
	for _, w := range writes {
		b.WriteString(w.Text + `; `)
	}
	b.WriteString(`END IF; COMMIT; SELECT same; END`)
	err = c.sql.QueryRowContext(c.ctx, b.String()).Scan(&done)
	if mysqlNumber(err) == 1064 {
		return false, false, nil
	}
	return true, done, err
}

func explainMySQL(err error) error {
	if errors.Is(err, errForgets) {
		return &storeError{class: driver.ClassMisconfigured, err: errors.New("innodb_flush_log_at_trx_commit is 0, or autocommit is off"),
			advice: adviceForget + "set innodb_flush_log_at_trx_commit to 1 and leave autocommit on"}
	}
	e := &storeError{err: err}
	switch n := mysqlNumber(err); {
	case in(n, 1146, 1054): // no such table, column
		e.class, e.advice = driver.ClassMisconfigured, adviceTables
	case in(n, 1049, 1046):
		e.class, e.advice = driver.ClassMisconfigured, "the database does not exist, or the data source name does not say which"
	case n == 1044:
		e.class, e.advice = driver.ClassDenied, "this user may not use the database, or does not exist in it: GRANT it rights there"
	case in(n, 1142, 1143, 1370):
		e.class, e.advice = driver.ClassDenied, adviceDenied+"and SELECT and UPDATE on hasp_meta; to make the tables, CREATE"
	case in(n, 1045, 1698):
		e.class, e.advice = driver.ClassLogin, "the server does not let this user in: look at the name and the password"
	case n == 1130:
		e.class, e.advice = driver.ClassDenied, "the server lets no user in from this host"
	case in(n, 1114, 1021, 1030):
		e.class, e.advice = driver.ClassFull, "the server's disk is full"
	case in(n, 1290, 1836, 1792) || errors.Is(err, errDemoted):
		e.class, e.advice = driver.ClassReadOnly, adviceReadOnly+" (read_only)"
	case n == 1665:
		e.class, e.advice = driver.ClassMisconfigured, "binlog_format is STATEMENT; it must be MIXED or ROW"
	case n == 1226:
		e.class, e.advice = driver.ClassUnreachable, "this user has as many connections, or asked as often, as the server allows it (max_user_connections, MAX_QUERIES_PER_HOUR)"
	case n == 1047:
		e.class, e.advice = driver.ClassUnreachable, "this node of a Galera cluster is not ready: it is joining, or without a majority"
	case in(n, 1040, 1203, 1205, 1213, 1969, 3024): // overload
		e.class, e.advice = driver.ClassUnreachable, "the server is overloaded, or somebody stopped within a transaction (SHOW PROCESSLIST)"
	case in(n, 1053, 1129, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 2002, 2003, 2006, 2013, 3032, 3100, 3101, 3169, 4031) || 9000 <= n && n < 9100: // ProxySQL's own
		e.class, e.advice = driver.ClassUnreachable, "the server, or a proxy in between, is starting or stopping, or ended the connection"
	default:
		return nil
	}
	return e
}

// A user that may see the threads of others sees the replicas. MariaDB and MySQL have two names for the isolation.
var mysqlSettings = []string{`SHOW VARIABLES WHERE Variable_name IN ('version', 'max_connections', 'innodb_flush_log_at_trx_commit', 'autocommit', 'tx_isolation', 'transaction_isolation')`,
	`SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'wsrep_on') OR Variable_name RLIKE '^rpl_semi_sync_(master|source)_(enabled|timeout)$'`,
	`SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_cluster_size', 'Threads_connected') OR Variable_name RLIKE '^rpl_semi_sync_(master|source)_status$'`,
	`SELECT 'replicas', COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'`}

const mysqlClock = `SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

func judgeMySQL(v settings) []operator.Finding {
	found := []operator.Finding{finding(operator.LevelOK, "version", "%s", v["version"])}
	const flush = "innodb_flush_log_at_trx_commit"
	switch v[flush] {
	case "0":
		found = append(found, finding(operator.LevelFail, flush, "%s is 0: a commit is answered before it is written, and a lease would be forgotten in a crash, so none is granted. Set it to 1", flush))
	case "2":
		found = append(found, repeats(flush, "%s is 2: when the machine crashes, leases and fences of the last second may be lost. Set it to 1", flush))
	default:
		found = append(found, finding(operator.LevelOK, flush, "%s is %s: a lease is on the disk before it is granted", flush, v[flush]))
	}
	if v["autocommit"] == "OFF" {
		found = append(found, finding(operator.LevelFail, "autocommit", "autocommit is off for this user: statements of locks would not be committed, so none is granted. Leave it on (init_connect)"))
	}
	found = append(found, judgeReplicas(v))
	if v["wsrep_on"] == "ON" && v["wsrep_cluster_size"] != "1" {
		found = append(found, finding(operator.LevelWarn, "galera", "it is one of %s nodes of a Galera cluster, each of which measures leases by its own clock: where those differ, there can be two holders. "+
			"All programs must use one node only, and another when that is gone for longer than their leases last (in a proxy: one writer, the others as backups)", v["wsrep_cluster_size"]))
	}
	return append(found, judgeIsolation(cmp.Or(v["transaction_isolation"], v["tx_isolation"])), judgeConnections(v["threads_connected"], v["max_connections"]))
}

func judgeReplicas(v settings) operator.Finding {
	const promoted = "a replica that is promoted may not have received every lock, and there can be two holders, and fences may repeat"
	either := func(what string) string {
		return cmp.Or(v["rpl_semi_sync_master_"+what], v["rpl_semi_sync_source_"+what])
	}
	switch {
	case v["read_only"] != "OFF":
		return finding(operator.LevelFail, "role", "it is read-only, as a replica is: name the server that takes writes")
	case either("enabled") == "ON" && either("status") == "OFF":
		return repeats("role", "semi-synchronous replication is on, but at present no replica is waited for, since none answered in time or is there: %s", promoted)
	case either("enabled") == "ON":
		return repeats("role", "semi-synchronous replication waits for a replica for %s ms, and commits without a replica after that, of which this server says nothing: %s. "+
			"Set rpl_semi_sync_master_timeout to longer than a replica is ever away", either("timeout"), promoted)
	case v["replicas"] != "0":
		return repeats("role", "%s replicas receive its commits later: %s. Semi-synchronous replication (AFTER_SYNC) prevents that, as long as it does not time out", v["replicas"], promoted)
	}
	return finding(operator.LevelOK, "role", "it takes writes, and no replica is seen (without the right PROCESS, none is)")
}
