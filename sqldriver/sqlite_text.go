// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

// schemaVersion is written to hasp_meta. A process meets a newer one with an
// error, as it cannot know what the rows mean.
const schemaVersion = 2

// sqliteTables makes the tables of version 1. An acquisition is one row for all
// of its life: it waits ('line'), holds ('held'), was released ('gone'), and is
// swept when it has been over for a while.
//
// hasp_lease_line is what makes two holders impossible by the database's own
// rule: a holder's seq is 0, a place's is its turn in the line of the key, a
// tombstone's is NULL, which is never equal to another, or a fence.
//
// since and expires are nanoseconds of the boot that hasp_meta names. before
// is the boot that came before it. clock is the latest reading of the clock,
// kept on systems that don't name their boots.
const sqliteTables = `
CREATE TABLE IF NOT EXISTS hasp_meta (
	id      INTEGER PRIMARY KEY CHECK (id = 1),
	version INTEGER NOT NULL,
	boot    TEXT    NOT NULL,
	before  TEXT    NOT NULL,
	clock   INTEGER NOT NULL,
	fence   INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS hasp_lease (
	key     BLOB    NOT NULL,
	owner   TEXT    NOT NULL,
	label   TEXT    NOT NULL,
	kind    TEXT    NOT NULL CHECK (kind IN ('held', 'line', 'gone')),
	seq     INTEGER,
	fence   INTEGER NOT NULL,
	since   INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	PRIMARY KEY (key, owner)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS hasp_lease_line ON hasp_lease (key, kind, seq);
CREATE INDEX IF NOT EXISTS hasp_lease_over ON hasp_lease (kind, expires);
INSERT OR IGNORE INTO hasp_meta (id, version, boot, before, clock, fence) VALUES (1, 1, '', '', 0, 0);
`

// sqliteProposals makes version 2 of version 1. fence, old, mid and at are those
// of floors. node is a random name of the file.
//
// In hasp_lease the seq of a 'gone' row is the fence that was given up, if any;
// one without an owner, the key's mark, is there for that only.
const sqliteProposals = `
ALTER TABLE hasp_meta ADD COLUMN old INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hasp_meta ADD COLUMN mid INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hasp_meta ADD COLUMN at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hasp_meta ADD COLUMN node TEXT NOT NULL DEFAULT '';
`

// sqliteFirst is the end of that. Fences begin at the wall clock, above those of
// a file that was there before, and above those that version 1 has forgotten.
//
// ?1 wall clock ?2 node
const sqliteFirst = `UPDATE hasp_meta SET version = 2,
	fence = max(fence, ?1), old = max(fence, ?1), mid = max(fence, ?1), node = ?2 WHERE id = 1`

const sqliteWipe = `DELETE FROM hasp_lease`

// sqliteView and sqliteRows are what a Try reads of a key.
//
// ?1 key ?2 owner ?3 now
const (
	sqliteView = `h.owner, h.label, h.fence, h.since, h.expires,
		p.kind, p.label, p.fence, p.since, p.expires,
		(SELECT coalesce(max(g.seq), 0) FROM hasp_lease g WHERE g.key = ?1 AND g.kind = 'gone'),
		(SELECT count(*) FROM hasp_lease q
			WHERE q.key = ?1 AND q.kind = 'line' AND +q.expires > ?3
			AND q.seq < coalesce(iif(p.expires > ?3, p.seq, NULL), 9223372036854775807))`
	sqliteRows = `
		LEFT JOIN hasp_lease h ON h.key = ?1 AND h.kind = 'held' AND h.seq = 0
		LEFT JOIN hasp_lease p ON p.key = ?1 AND p.owner = ?2`
)

// A + before a column keeps it out of the choice of an index: of all that is
// held, most is not over, and little of it is of one key.
var sqliteText = [queries]string{
	qSettings: `SELECT
		(SELECT synchronous FROM pragma_synchronous),
		(SELECT timeout FROM pragma_busy_timeout),
		(SELECT journal_mode FROM pragma_journal_mode)`,

	// Changes nothing: every Go driver begins a transaction in its own way, and
	// most don't lock.
	qLock: `DELETE FROM hasp_meta WHERE id = 0`,

	qHead: `SELECT version, boot, before, clock, fence, old, mid, at, node FROM hasp_meta WHERE id = 1`,

	qBoot: `SELECT version, boot, before, clock FROM hasp_meta WHERE id = 1`,

	// ?1 key ?2 owner ?3 now
	qLook: `SELECT ` + sqliteView + `, m.version, m.boot, m.before, m.clock, m.fence, m.old, m.mid, m.at, m.node
		FROM hasp_meta m ` + sqliteRows + ` WHERE m.id = 1`,

	// The same.
	qView: `SELECT ` + sqliteView + ` FROM (SELECT 1) ` + sqliteRows,

	// ?1 key ?2 owner ?3 label ?4 fence ?5 now ?6 expires
	qGrant: `INSERT INTO hasp_lease VALUES (?1, ?2, ?3, 'held', 0, ?4, ?5, ?6)
		ON CONFLICT (key, owner) DO UPDATE SET label = excluded.label, kind = 'held', seq = 0,
		fence = excluded.fence, since = excluded.since, expires = excluded.expires`,

	// ?1 key ?2 owner ?3 expires ?4 fence
	qExtend: `UPDATE hasp_lease SET expires = max(expires, ?3), fence = max(fence, ?4) WHERE key = ?1 AND owner = ?2`,

	// ?1 key ?2 now
	qUsurp: `DELETE FROM hasp_lease WHERE key = ?1 AND kind = 'held' AND seq = 0 AND +expires <= ?2`,

	// ?1 key ?2 owner ?3 label ?4 now ?5 expires
	qJoin: `INSERT INTO hasp_lease VALUES (?1, ?2, ?3, 'line',
		(SELECT coalesce(max(seq), 0) + 1 FROM hasp_lease WHERE key = ?1 AND kind = 'line'), 0, ?4, ?5)
		ON CONFLICT (key, owner) DO UPDATE SET label = excluded.label, kind = 'line', seq = excluded.seq,
		fence = 0, since = excluded.since, expires = excluded.expires`,

	// ?1 key ?2 owner ?3 label ?4 now ?5 expires ?6 the fence held, or 0
	qRenew: `UPDATE hasp_lease SET expires = max(expires, ?5)
		WHERE key = ?1 AND owner = ?2 AND label = ?3 AND kind = 'held' AND expires > ?4 AND fence >= ?6
		RETURNING expires,
		EXISTS (SELECT 1 FROM hasp_lease q WHERE q.key = ?1 AND q.kind = 'line' AND +q.expires > ?4)`,

	// ?1 key ?2 owner ?3 label ?4 now ?5 up to which fence ?6 expires, with a fence
	// ?7 without. Only a lease that was restored can have the fence of another
	// row, whose owner is never restored.
	qGiveUp: `UPDATE OR REPLACE hasp_lease SET kind = 'gone', seq = iif(kind = 'held', fence, NULL),
		since = expires > ?4, expires = iif(kind = 'held', ?6, ?7)
		WHERE key = ?1 AND owner = ?2 AND label = ?3 AND kind <> 'gone' AND fence <= ?5
		RETURNING since`,

	// ?1 key ?2 owner ?3 label ?4 now ?5 expires
	qBar: `INSERT INTO hasp_lease VALUES (?1, ?2, ?3, 'gone', NULL, 0, ?4, ?5)
		ON CONFLICT (key, owner) DO UPDATE SET expires = max(expires, excluded.expires)
		WHERE label = excluded.label AND kind = 'gone'`,

	// ?1 key ?2 owner ?3 label ?4 now ?5 up to which fence ?6 expires. A holder's
	// fence is never below the mark that this replaces.
	qRetire: `UPDATE OR REPLACE hasp_lease
		SET owner = '', label = '', kind = 'gone', seq = fence, since = expires > ?4, expires = ?6
		WHERE key = ?1 AND owner = ?2 AND label = ?3 AND kind = 'held' AND fence <= ?5
		RETURNING since`,

	// ?1 key ?2 owner ?3 label ?4 now
	qLeave: `DELETE FROM hasp_lease WHERE key = ?1 AND owner = ?2 AND label = ?3 AND kind = 'line'
		RETURNING expires > ?4`,

	// ?1 key ?2 expires
	qRemember: `INSERT OR REPLACE INTO hasp_lease SELECT key, '', '', 'gone', fence, fence, 0, ?2 FROM hasp_lease
		WHERE key = ?1 AND kind = 'held' AND seq = 0`,

	// ?1 kind ?2 over since ?3 how many
	qSweep: `DELETE FROM hasp_lease WHERE (key, owner) IN
		(SELECT key, owner FROM hasp_lease WHERE kind = ?1 AND expires <= ?2 LIMIT ?3)`,

	qMark: `UPDATE hasp_meta SET boot = ?1, before = ?2, clock = ?3, fence = ?4,
		old = ?5, mid = ?6, at = ?7 WHERE id = 1`,

	// ?1 key ?2 now. 'held' sorts before 'line'.
	qKey: `SELECT kind, owner, label, fence, since, expires FROM hasp_lease
		WHERE key = ?1 AND kind <> 'gone' AND expires > ?2 ORDER BY kind, seq`,

	// ?1 first key ?2 last key ?3 now ?4 how many. The first is left out when
	// ?5 is 1.
	qKeys: `SELECT k.key, k.waiters, h.owner, h.label, h.fence, h.since, h.expires
		FROM (SELECT key, sum(kind = 'line') AS waiters FROM hasp_lease
			WHERE key >= ?1 AND key <= ?2 AND kind <> 'gone' AND expires > ?3 AND (?5 = 0 OR key > ?1)
			GROUP BY key ORDER BY key LIMIT ?4) k
		LEFT JOIN hasp_lease h ON h.key = k.key AND h.kind = 'held' AND h.seq = 0 AND +h.expires > ?3
		ORDER BY k.key`,
}
