// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// schemaVersion is written to hasp_meta. A process refuses tables of another version, as it
// cannot know what the rows mean. 5 is the first that a release writes.
const schemaVersion = 5

// sqliteTables makes the tables. An acquisition is one row for all
// of its life: it waits ('queue'), holds ('held'), was released ('gone'), and is
// swept when it has been over for a while.
//
// hasp_lease_queue is what makes two holders impossible by the database's own
// rule: a holder's seq is 0, a place's is its turn in the queue of the key, a
// tombstone's is NULL, which is never equal to another, or the fence that was given up.
// A tombstone without an owner, the key's mark, is there for that fence only.
//
// Of a key that is shared the 'held' row
// with seq 0 has no owner: it is the key's own row, which keeps others out until
// the last of the owners that share it is gone, and says by itself that they exist. It
// is the same row that is 'gone' where it only remembers a fence. The owners that share
// the key are 'held' with a seq of 1 and more, in the order of their grants.
//
// mode and most are those of Claim. slot is Result.Slot. mark is that of
// Result.Abandoned: of the key's row that it is on the key, of a lease that it was
// granted with it. wrote, of the key's row, is the largest fence granted Exclusive.
//
// Of the key's row most is the smallest of those whose rows are there, also when
// they are over: where it is not 0 and the row is over, one of them was not
// released.
//
// since and expires are nanoseconds of the boot that hasp_meta names. before
// is the boot that came before it. clock is a reading of the clock, about a second
// older than the last write at most, and wall the wall clock at that moment, in
// microseconds; 0: not known yet. fence, old, mid and at are those of floors. node is a
// random name of the file.
const sqliteTables = `
CREATE TABLE IF NOT EXISTS hasp_meta (
	id      INTEGER PRIMARY KEY CHECK (id = 1),
	version INTEGER NOT NULL,
	boot    TEXT    NOT NULL,
	before  TEXT    NOT NULL,
	clock   INTEGER NOT NULL,
	fence   INTEGER NOT NULL,
	old     INTEGER NOT NULL,
	mid     INTEGER NOT NULL,
	at      INTEGER NOT NULL,
	node    TEXT    NOT NULL,
	wall    INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS hasp_lease (
	key     BLOB    NOT NULL,
	owner   TEXT    NOT NULL,
	label   TEXT    NOT NULL,
	kind    TEXT    NOT NULL CHECK (kind IN ('held', 'queue', 'gone')),
	seq     INTEGER,
	fence   INTEGER NOT NULL,
	since   INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	mode    INTEGER NOT NULL DEFAULT 0,
	most    INTEGER NOT NULL DEFAULT 0,
	slot    INTEGER NOT NULL DEFAULT 0,
	mark    INTEGER NOT NULL DEFAULT 0,
	wrote   INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (key, owner)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS hasp_lease_queue ON hasp_lease (key, kind, seq);
CREATE INDEX IF NOT EXISTS hasp_lease_over ON hasp_lease (kind, expires);
`

// sqliteFirst makes the row of hasp_meta. Fences begin at the wall clock, above those of a
// file that was there before.
//
// ?1 version ?2 wall clock ?3 node
const sqliteFirst = `INSERT OR IGNORE INTO hasp_meta (id, version, boot, before, clock, fence, old, mid, at, node, wall)
	VALUES (1, ?1, '', '', 0, ?2, ?2, ?2, 0, ?3, 0)`

const sqliteWipe = `DELETE FROM hasp_lease`

// sqliteShift moves all times to another clock. Some are as long as can be.
//
// ?1 by how much
const sqliteShift = `UPDATE hasp_lease SET since = since + ?1,
	expires = iif(?1 > 0 AND expires > 9223372036854775807 - ?1, 9223372036854775807, expires + ?1)`

// sqliteView and sqliteRows are what a Try reads of a key; sqliteBeside is what
// a Try that would share it reads, too.
//
// ?1 key ?2 owner ?3 now
const (
	sqliteAhead = ` FROM hasp_lease q WHERE q.key = ?1 AND q.kind = 'queue' AND +q.expires > ?3
			AND q.seq < coalesce(iif(p.expires > ?3, p.seq, NULL), 9223372036854775807)`
	sqliteView = `h.owner, h.label, h.fence, h.since, h.expires, h.mark, h.most,
		p.kind, p.label, p.fence, p.since, p.expires, p.most,
		(SELECT coalesce(max(g.seq), 0) FROM hasp_lease g WHERE g.key = ?1 AND g.kind = 'gone'),
		(SELECT count(*)` + sqliteAhead + `)`
	sqliteBeside = `,
		(SELECT coalesce(max(q.mode = 0), 0)` + sqliteAhead + `),
		(SELECT coalesce(min(nullif(q.most, 0)), 0)` + sqliteAhead + `),
		coalesce(p.mark, 0), coalesce(p.slot, 0),
		coalesce((SELECT k.wrote FROM hasp_lease k WHERE k.key = ?1 AND k.owner = ''), 0),
		(SELECT coalesce(max(g.seq), 0) FROM hasp_lease g WHERE g.key = ?1 AND g.kind = 'gone' AND g.owner <> ''),
		EXISTS (SELECT 1 FROM hasp_lease e WHERE e.key = ?1 AND e.kind = 'held' AND e.seq > 0 AND e.most > 0 AND +e.expires <= ?3)`
	sqliteHead = `m.version, m.boot, m.before, m.clock, (SELECT journal_mode FROM pragma_journal_mode), m.fence, m.old, m.mid, m.at, m.node, m.wall`
	sqliteRows = `
		LEFT JOIN hasp_lease h ON h.key = ?1 AND h.kind = 'held' AND h.seq = 0
		LEFT JOIN hasp_lease p ON p.key = ?1 AND p.owner = ?2`
)

// sqliteSettings are what a connection runs with.
const sqliteSettings = `(SELECT synchronous FROM pragma_synchronous), (SELECT timeout FROM pragma_busy_timeout)`

// A query names a statement of the transactions and reads.
type query int

// The arguments of each are in sqliteText, by number.
const (
	qLock        query = iota // take the right to write
	qHead                     // the row of hasp_meta, and what the connection runs with
	qLook                     // what a Try decides upon
	qLookBeside               // what a Try decides upon that would share the key
	qView                     // qLook without the row of hasp_meta
	qViewBeside               // qLookBeside without the row of hasp_meta
	qBeside                   // the owners that share a key, in the order of their grants
	qPut                      // write an owner's row, or the key's own
	qExtend                   // prolong a row, and raise its fence
	qEndHolders               // delete the rows of holders whose leases have expired
	qEndSharers               // the same for those that share the key and whose end leaves a mark
	qRenew                    // prolong a lease by its owner and label
	qRelease                  // turn a lease or a place, expired or not, into a tombstone
	qRefuseLater              // leave a tombstone where there was neither
	qRetire                   // turn an exclusive lease, over or not, into the key's own row
	qLeave                    // take away a place, or a lease that is shared
	qDepart                   // bring the key's own row up to date when an owner that shared it has gone
	qSweep                    // delete a few rows that are over
	qMark                     // write the row of hasp_meta
	qKey                      // all that have or want a key
	qKeys                     // a page of keys

	queries
)

// A + before a column keeps it out of the choice of an index: of all that is
// held, most is not over, and little of it is of one key. A parameter in a LIMIT is never
// alone: SQLite looks at the value of such a one, and prepares the statement again for each.
var sqliteText = [queries]string{
	// Changes nothing: every Go driver begins a transaction in its own way, and
	// most don't lock. It fails where a table is missing.
	qLock: `DELETE FROM hasp_meta WHERE id = 0 AND EXISTS (SELECT 1 FROM hasp_lease)`,

	qHead: `SELECT ` + sqliteHead + `, ` + sqliteSettings + ` FROM hasp_meta m WHERE m.id = 1`,

	// ?1 key ?2 owner ?3 now
	qLook:       `SELECT ` + sqliteView + `, ` + sqliteHead + ` FROM hasp_meta m` + sqliteRows + ` WHERE m.id = 1`,
	qLookBeside: `SELECT ` + sqliteView + sqliteBeside + `, ` + sqliteHead + ` FROM hasp_meta m` + sqliteRows + ` WHERE m.id = 1`,

	// The same.
	qView:       `SELECT ` + sqliteView + ` FROM (SELECT 1) ` + sqliteRows,
	qViewBeside: `SELECT ` + sqliteView + sqliteBeside + ` FROM (SELECT 1) ` + sqliteRows,

	// ?1 key ?2 now ?3 how many, -1 for all
	qBeside: `SELECT owner, label, fence, since, expires, mode, most, slot FROM hasp_lease
		WHERE key = ?1 AND kind = 'held' AND seq > 0 AND +expires > ?2 ORDER BY seq LIMIT ?3 + 0`,

	// ?1 key ?2 owner ?3 label ?4 kind ?5 1 to come after all others of that, with a seq ?6 fence ?7 since ?8 expires
	// ?9 mode ?10 most ?11 slot ?12 mark ?13 wrote
	qPut: `INSERT INTO hasp_lease VALUES (?1, ?2, ?3, ?4,
		iif(?5, (SELECT coalesce(max(seq), 0) + 1 FROM hasp_lease WHERE key = ?1 AND kind = ?4), 0),
		?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
		ON CONFLICT (key, owner) DO UPDATE SET label = excluded.label, kind = excluded.kind, seq = excluded.seq,
		fence = excluded.fence, since = excluded.since, expires = excluded.expires,
		mode = excluded.mode, most = excluded.most, slot = excluded.slot, mark = excluded.mark, wrote = excluded.wrote`,

	// ?1 key ?2 owner ?3 expires ?4 fence
	qExtend: `UPDATE hasp_lease SET expires = max(expires, ?3), fence = max(fence, ?4) WHERE key = ?1 AND owner = ?2`,

	// ?1 key ?2 now
	qEndHolders: `DELETE FROM hasp_lease WHERE key = ?1 AND kind = 'held' AND +expires <= ?2`,

	// ?1 key ?2 now. Those that only read leave no mark.
	qEndSharers: `DELETE FROM hasp_lease WHERE key = ?1 AND kind = 'held' AND seq > 0 AND most > 0 AND +expires <= ?2`,

	// ?1 key ?2 owner ?3 label ?4 now ?5 expires ?6 the fence held, or 0
	qRenew: `UPDATE hasp_lease SET expires = max(expires, ?5)
		WHERE key = ?1 AND owner = ?2 AND label = ?3 AND kind = 'held' AND expires > ?4 AND fence >= ?6
		RETURNING expires,
		EXISTS (SELECT 1 FROM hasp_lease q WHERE q.key = ?1 AND q.kind = 'queue' AND +q.expires > ?4), mode`,

	// ?1 key ?2 owner ?3 label ?4 up to which fence ?5 expires, with a fence that
	// the key's row doesn't know ?6 without. Only a lease that was restored can have
	// the fence of another row, whose owner is never restored.
	qRelease: `UPDATE OR REPLACE hasp_lease SET kind = 'gone', seq = iif(kind = 'held' AND mode = 0, fence, NULL),
		since = expires, expires = iif(kind = 'held' AND mode = 0, ?5, ?6)
		WHERE key = ?1 AND owner = ?2 AND label = ?3 AND kind <> 'gone' AND fence <= ?4
		RETURNING since, fence, mode, most, mark`,

	// ?1 key ?2 owner ?3 label ?4 now ?5 expires
	qRefuseLater: `INSERT INTO hasp_lease (key, owner, label, kind, fence, since, expires)
		VALUES (?1, ?2, ?3, 'gone', 0, ?4, ?5)
		ON CONFLICT (key, owner) DO UPDATE SET expires = max(expires, excluded.expires)
		WHERE label = excluded.label AND kind = 'gone'`,

	// ?1 key ?2 owner ?3 label ?4 up to which fence ?5 expires. A holder's fence is
	// never below that of the key's row that this replaces.
	qRetire: `UPDATE OR REPLACE hasp_lease
		SET owner = '', label = '', kind = 'gone', seq = fence, wrote = fence, since = expires, expires = ?5
		WHERE key = ?1 AND owner = ?2 AND label = ?3 AND kind = 'held' AND mode = 0 AND fence <= ?4
		RETURNING since, fence, mode, most, mark`,

	// ?1 key ?2 owner ?3 label ?4 up to which fence
	qLeave: `DELETE FROM hasp_lease WHERE key = ?1 AND owner = ?2 AND label = ?3 AND kind <> 'gone' AND fence <= ?4
		RETURNING expires, fence, mode, most, mark`,

	// ?1 key ?2 when its lease would have ended ?3 now ?4 mark. The key's row ends
	// with the last lease that ends.
	qDepart: `UPDATE hasp_lease SET
		expires = iif(expires > ?2, expires, max(min(?2, ?3), coalesce((SELECT max(s.expires) FROM hasp_lease s
			WHERE s.key = ?1 AND s.kind = 'held' AND s.seq > 0), 0))),
		most = iif(most = 0, 0, coalesce((SELECT min(s.most) FROM hasp_lease s
			WHERE s.key = ?1 AND s.kind = 'held' AND s.seq > 0 AND s.most > 0), 0)),
		mark = max(mark, ?4)
		WHERE key = ?1 AND owner = '' AND kind = 'held'`,

	// ?1 leases that are over since ?2 now ?3 how many
	qSweep: `DELETE FROM hasp_lease WHERE (key, owner) IN
		(SELECT key, owner FROM hasp_lease WHERE kind = 'held' AND expires <= ?1
		UNION ALL SELECT key, owner FROM hasp_lease WHERE kind IN ('queue', 'gone') AND expires <= ?2 LIMIT ?3 + 0)`,

	qMark: `UPDATE hasp_meta SET boot = ?1, before = ?2, clock = ?3, fence = ?4,
		old = ?5, mid = ?6, at = ?7, wall = ?8 WHERE id = 1`,

	// ?1 key ?2 now. 'held' sorts before 'queue'.
	qKey: `SELECT kind, owner, label, fence, since, expires, mode, most, slot FROM hasp_lease
		WHERE key = ?1 AND kind <> 'gone' AND owner <> '' AND expires > ?2 ORDER BY kind, seq`,

	// ?1 first key ?2 last key ?3 now ?4 how many. The first is left out when
	// ?5 is 1.
	qKeys: `SELECT k.key, k.waiters, k.holds, h.owner, h.label, h.fence, h.since, h.expires, h.mode, h.most, h.slot
		FROM (SELECT key, sum(kind = 'queue') AS waiters, sum(kind = 'held') AS holds,
			min(iif(kind = 'held', seq, NULL)) AS first FROM hasp_lease
			WHERE key >= ?1 AND key <= ?2 AND kind <> 'gone' AND owner <> '' AND expires > ?3 AND (?5 = 0 OR key > ?1)
			GROUP BY key ORDER BY key LIMIT ?4 + 0) k
		LEFT JOIN hasp_lease h ON h.key = k.key AND h.kind = 'held' AND h.seq = k.first
		ORDER BY k.key`,
}

// prepared are the statements of a driver that it prepared.
type prepared struct {
	db    *sql.DB
	mu    sync.Mutex
	stmts [queries]*sql.Stmt
	asked [queries]int // how often, while it was not prepared
}

// get returns a prepared statement. The tables must exist.
//
// Preparing takes a connection of the pool, and the goroutine that has the only one may
// be about to ask for a statement: so nothing is locked meanwhile.
func (p *prepared) get(ctx context.Context, q query) (*sql.Stmt, error) {
	if stmt := p.known(q); stmt != nil {
		return stmt, nil
	}
	stmt, err := p.db.PrepareContext(ctx, sqliteText[q])
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stmts[q] != nil { // another goroutine was faster
		return p.stmts[q], stmt.Close()
	}
	p.stmts[q] = stmt
	return stmt, nil
}

// known returns a statement that was prepared, or nil.
func (p *prepared) known(q query) *sql.Stmt {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stmts[q] == nil {
		p.asked[q]++
	}
	return p.stmts[q]
}

// prepare prepares the statements that transactions asked for again and again. It does so
// before a transaction begins, which then needs no second connection of the pool. A program that
// runs two or three transactions, as hasp run does, prepares those that each begins with, and no others.
func (p *prepared) prepare(ctx context.Context) error {
	p.mu.Lock()
	asked := p.asked
	p.mu.Unlock()
	for q, times := range asked {
		if times <= 3 && query(q) != qLock && query(q) != qHead {
			continue
		}
		if _, err := p.get(ctx, query(q)); err != nil {
			return err
		}
	}
	return nil
}

func (p *prepared) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for q, stmt := range p.stmts {
		if stmt != nil {
			errs = append(errs, stmt.Close())
			p.stmts[q] = nil
		}
	}
	return errors.Join(errs...)
}
