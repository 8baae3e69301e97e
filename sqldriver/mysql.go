// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// NewMySQL returns a driver that keeps locks in a database of MariaDB 10.6 or later, or
// MySQL 8, in which [Server.Init] made the tables, or somebody did with [MySQLSchema].
// They are in the database that db's connections use.
//
// db stays the caller's: hasp.Client.Close does not close it. It is tested with
// github.com/go-sql-driver/mysql and MariaDB 10.11; for MySQL 8 it is written, not tested.
func NewMySQL(db *sql.DB) *Server { return newServer(db, &mysqlEngine) }

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

var mysqlEngine = engine{
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

var mysqlText = map[statement]string{
	sBegin: `START TRANSACTION`,

	// Of a row that is there nothing changes, it is locked.
	sLock: `INSERT INTO hasp_key (lock_key, keep) VALUES (?, {now} DIV 60000000000 + 2) ON DUPLICATE KEY UPDATE keep = keep`,

	// owner, label, how many fences, span of the ttl, ttl, for how long its row is kept, key
	sGrant: `UPDATE hasp_key SET held = 1, owner = ?, label = ?, fence = LAST_INSERT_ID(fence + ?),
			since = {now} + ?, expires = {now} + ?, keep = GREATEST(keep, ({now} + ?) DIV 60000000000 + 1)
		WHERE lock_key = ? AND held = 0 AND others = 0 AND fence > 0 AND {safe} = 1`,

	// A row that somebody has locked is passed over: others' leases do not wait for it. LIMIT keeps the
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

// literal writes the arguments of a statement into it, so that it needs no preparation,
// which would take a request more: bytes in hexadecimal, so that nothing in them can be
// taken for SQL.
func literal(text string, args []any) string {
	if len(args) == 0 {
		return text
	}
	parts := strings.Split(text, "?")
	var b strings.Builder
	for i, p := range parts {
		b.WriteString(p)
		if i == len(parts)-1 {
			break
		}
		switch a := args[i].(type) {
		case []byte:
			fmt.Fprintf(&b, "X'%x'", a)
		case string:
			fmt.Fprintf(&b, "X'%x'", a)
		case int64:
			b.WriteString(strconv.FormatInt(a, 10))
		case int:
			b.WriteString(strconv.Itoa(a))
		}
	}
	return b.String()
}

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
