// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// serverVersion is written to hasp_meta. A program meets another one with an error, as
// it cannot know what the rows mean.
const serverVersion = 1

// A statement names what a database server is sent.
type statement int

const (
	sVersion    statement = iota // the version of the tables, and the server's mode
	sMode                        // the server's mode
	sBegin                       // begin a transaction in which each statement sees what was committed before it
	sLock                        // make sure that a key has a row, and lock that
	sFree                        // whether a key's row is there, and not locked
	sSame                        // whether a key is still as it was seen
	sCrowded                     // whether an owner that has nothing of a key has to wait for it, as it was seen
	sWaited                      // note that an owner waits
	sLook                        // a key's row, an owner's, and what is to be known of the others
	sBeside                      // the owners that share a key, in the order of their grants
	sSharers                     // until when they share it, and the smallest limit
	sWrite                       // write a key's own row
	sInsert                      // make a row
	sUpdate                      // write a row
	sProlong                     // prolong the life of a row
	sCut                         // shorten leases, places and tombstones that last longer than was ever asked for
	sDelete                      // delete a row
	sEndOver                     // delete places and tombstones that are over
	sEndHolders                  // delete leases beside the key's own row that are over
	sEndSharers                  // those of them whose end leaves a mark
	sGrant                       // all of a grant, where nothing stands in its way
	sHolds                       // whether an owner has a key that it can release
	sHandOn                      // release that, where others wait
	sRelease                     // all of a release, where none waits
	sRenew                       // all of a renewal, where none waits
	sShares                      // whether an owner shares a key
	sShareOn                     // prolong that lease
	sLastOn                      // have the key's row last as long
	sRenewMany                   // all of many, of one TTL, that are held alone
	sRenewed                     // what became of them
	sDead                        // a few keys of which everything is over, and that are not locked
	sRaise                       // raise the fence that those without a row must be above
	sBury                        // delete such a key's rows
	sNotify                      // send hints to the waiters that can be granted a key
	sSelf                        // send a message to a channel
	sKey                         // all that have or want a key
	sKeys                        // a page of keys

	statements
)

// A minute of the store's clock is what keep counts; the index of it changes when it does.
const minute = int64(60e9)

// serverText are the statements that are the same for all servers but for the notation:
// {now} is the clock in nanoseconds since 2020 (so that a
// lease may last for three hundred years, less some), {safe} is 1 where a commit is not
// forgotten when the server is killed, {mode} is a serverMode.
//
// A key's own row is that of its holder; where the key is shared it stands for all of
// them, without an owner, until the last of their leases ends; where it is not held
// (held is 0) it is kept for its fence. Rows of hasp_lease (of owners that share the
// key, wait, or were released) are read and written only by a transaction that has locked the key's
// own, whose column others says whether there are any.
var serverText = [statements]string{
	sVersion: `SELECT version, {mode} FROM hasp_meta WHERE id = 1`,
	sMode:    `SELECT {mode}`,

	sFree: `SELECT others FROM hasp_key WHERE lock_key = ? FOR UPDATE SKIP LOCKED`,

	// key, owner, owner, key, key
	sLook: `WITH c AS (SELECT {now} AS now),
		p AS (SELECT * FROM hasp_lease WHERE lock_key = ? AND owner = ?),
		o AS (SELECT COUNT(*) AS found, COUNT(CASE WHEN l.kind <> 'held' AND l.expires <= c.now THEN 1 END) AS past, COALESCE(MAX(l.seq), 0) AS seq,
				COALESCE(MAX(CASE WHEN l.owner <> ? THEN l.expires END), 0) AS last,
				COUNT(CASE WHEN l.kind = 'queue' AND l.expires > c.now THEN 1 END) AS waiting,
				COUNT(CASE WHEN l.kind = 'queue' AND l.expires > c.now AND l.inbox <> '' THEN 1 END) AS hinted,
				COUNT(CASE WHEN l.kind = 'queue' AND l.expires > c.now AND l.seq < w.seq THEN 1 END) AS ahead,
				COALESCE(MAX(CASE WHEN l.kind = 'queue' AND l.expires > c.now AND l.seq < w.seq AND l.mode = 0 THEN 1 END), 0) AS barred,
				COALESCE(MIN(CASE WHEN l.kind = 'queue' AND l.expires > c.now AND l.seq < w.seq AND l.most > 0 THEN l.most END), 0) AS least,
				COALESCE(MAX(CASE WHEN l.kind = 'held' AND l.most > 0 AND l.expires <= c.now THEN 1 END), 0) AS unfinished
			FROM c CROSS JOIN (SELECT COALESCE(MAX(CASE WHEN p.kind = 'queue' AND p.expires > c.now THEN p.seq END), 9223372036854775807) AS seq
					FROM c LEFT JOIN p ON 1 = 1) w
				CROSS JOIN hasp_lease l WHERE l.lock_key = ?)
		SELECT c.now, {mode}, k.held, k.owner, k.label, k.fence, k.since, k.expires, k.most, k.mark, k.others, k.keep,
			p.kind, p.label, p.fence, p.since, p.expires, p.mode, p.most, p.slot, p.mark, p.inbox, p.seq,
			o.found, o.past, o.seq, o.last, o.waiting, o.hinted, o.ahead, o.barred, o.least, o.unfinished, {next}
		FROM c CROSS JOIN o LEFT JOIN hasp_key k ON k.lock_key = ? LEFT JOIN p ON p.lock_key = k.lock_key`,

	// owner, key, when it is too late, others, keep, 1 where the rest of the key's row may differ unless the owner has the key, owner, held, its owner, fence, since,
	// expires, most, mark, the owner's kind and expires, 1 where there were places before it, owner, now, now,
	// the latest end of the others' rows, owner
	sSame: `SELECT 1 FROM hasp_key k LEFT JOIN hasp_lease p ON p.lock_key = k.lock_key AND p.owner = ?
		WHERE k.lock_key = ? AND {now} < ? AND k.others = ? AND k.keep = ? AND (? = 1 AND NOT (k.held = 1 AND k.owner = ?) OR k.held = ? AND k.owner = ? AND k.fence = ? AND k.since = ?
			AND k.expires = ? AND k.most = ? AND k.mark = ?)
		AND COALESCE(p.kind, '') = ? AND COALESCE(p.expires, 0) = ?
		AND ? = (CASE WHEN EXISTS (SELECT 1 FROM hasp_lease q WHERE q.lock_key = k.lock_key AND q.owner <> ? AND q.kind = 'queue' AND q.expires > ?
			AND q.seq < COALESCE(CASE WHEN p.kind = 'queue' AND p.expires > ? THEN p.seq END, 9223372036854775807)) THEN 1 ELSE 0 END)
		AND ? >= COALESCE((SELECT MAX(l.expires) FROM hasp_lease l WHERE l.lock_key = k.lock_key AND l.owner <> ?), 0)`,

	// key, when it is too late, others and keep at least, owner, owner, whether it may be free, when the lease ends at the earliest
	//
	// A holder that comes later is none that the waiter would not wait for, so a key that others take again and again can be joined.
	sCrowded: `SELECT 1 FROM hasp_key k WHERE k.lock_key = ? AND {now} < ? AND k.others >= ? AND k.keep >= ? AND NOT (k.held = 1 AND k.owner = ?)
		AND NOT EXISTS (SELECT 1 FROM hasp_lease p WHERE p.lock_key = k.lock_key AND p.owner = ?)
		AND (? = 1 OR k.held = 1 AND k.expires > {now} AND k.expires >= ? OR EXISTS (SELECT 1 FROM hasp_lease q
			WHERE q.lock_key = k.lock_key AND q.kind = 'queue' AND q.expires > {now}))`,

	// keep, key
	sWaited: `UPDATE hasp_key SET others = 1, keep = GREATEST(keep, ?) WHERE lock_key = ?`,

	// key, now, how many
	sBeside: `SELECT owner, label, fence, since, expires, mode, most, slot FROM hasp_lease
		WHERE lock_key = ? AND kind = 'held' AND expires > ? ORDER BY seq LIMIT ?`,

	// key
	sSharers: `SELECT COALESCE(MAX(expires), 0), COALESCE(MIN(CASE WHEN most > 0 THEN most END), 0) FROM hasp_lease
		WHERE lock_key = ? AND kind = 'held'`,

	sWrite: `UPDATE hasp_key SET held = ?, owner = ?, label = ?, fence = ?, since = ?, expires = ?, most = ?, mark = ?, keep = ?,
			others = (CASE WHEN EXISTS (SELECT 1 FROM hasp_lease l WHERE l.lock_key = hasp_key.lock_key) THEN 1 ELSE 0 END)
		WHERE lock_key = ?`,

	// An owner that joins, or shares, comes after all others: seq is 1 then, else 0.
	sInsert: `INSERT INTO hasp_lease (kind, label, seq, fence, since, expires, mode, most, slot, mark, inbox, lock_key, owner)
		SELECT {text}, {bytes}, {int} * (SELECT COALESCE(MAX(l.seq), 0) + 1 FROM hasp_lease l WHERE l.lock_key = {bytes}),
			{int}, {int}, {int}, {int}, {int}, {int}, {int}, {text}, {bytes}, {text} FROM hasp_meta m WHERE m.id = 1`,

	sUpdate: `UPDATE hasp_lease SET kind = ?, label = ?, seq = ?, fence = ?, since = ?, expires = ?, mode = ?, most = ?, slot = ?, mark = ?, inbox = ?
		WHERE lock_key = ? AND owner = ?`,

	// now, key, now
	sCut: `UPDATE hasp_lease SET expires = ? + ` + spanSQL + ` WHERE lock_key = ? AND since % 1000 > 0 AND expires - ` + spanSQL + ` > ?`,

	// expires, since, inbox, key, owner
	sProlong: `UPDATE hasp_lease SET expires = ?, since = ?, inbox = ? WHERE lock_key = ? AND owner = ?`,

	sDelete: `DELETE FROM hasp_lease WHERE lock_key = ? AND owner = ?`,

	// key, now
	sEndOver:    `DELETE FROM hasp_lease WHERE lock_key = ? AND kind <> 'held' AND expires <= ?`,
	sEndHolders: `DELETE FROM hasp_lease WHERE lock_key = ? AND kind = 'held' AND expires <= ?`,
	sEndSharers: `DELETE FROM hasp_lease WHERE lock_key = ? AND kind = 'held' AND most > 0 AND expires <= ?`,

	// key, owner, label, whether a mark is cleared
	sHolds: `SELECT 1 FROM hasp_key WHERE lock_key = ? AND owner = ? AND label = ? AND held = 1 AND mark <= ? AND expires > {now} AND {safe} = 1`,

	// key
	sHandOn: `UPDATE hasp_key SET held = 0, owner = '', label = '', mark = 0 WHERE lock_key = ?`,

	// for how long the fence is kept, the same, key, owner, label, whether a mark is cleared
	sRelease: `UPDATE hasp_key SET held = 0, owner = '', label = '', mark = 0,
			keep = LEAST(GREATEST(keep, ({now} + ?) {div} 60000000000 + 1), ({now} + ?) {div} 60000000000 + 10)
		WHERE lock_key = ? AND owner = ? AND label = ? AND held = 1 AND others = 0 AND mark <= ? AND expires > {now} AND {safe} = 1`,

	// span of the ttl, the same, ttl, for how long its row is kept, key, owner, label, the fence held
	sRenew: `UPDATE hasp_key SET since = ` + spanRaised + `, expires = GREATEST(expires, {now} + ?), keep = GREATEST(keep, ({now} + ?) {div} 60000000000 + 1)
		WHERE lock_key = ? AND owner = ? AND label = ? AND fence >= ? AND held = 1 AND others = 0 AND expires > {now} AND {safe} = 1`,

	// key, owner, label, the fence held
	sShares: `SELECT 1 FROM hasp_lease p JOIN hasp_key k ON k.lock_key = p.lock_key WHERE p.lock_key = ? AND p.owner = ? AND p.label = ?
		AND p.fence >= ? AND p.kind = 'held' AND p.expires > {now} AND k.held = 1 AND k.owner = '' AND {safe} = 1`,

	// span of the ttl, the same, ttl, key, owner
	sShareOn: `UPDATE hasp_lease SET since = ` + spanRaised + `, expires = GREATEST(expires, {now} + ?) WHERE lock_key = ? AND owner = ?`,

	// span of the ttl, the same, owner, owner, for how long the fence is kept, key
	sLastOn: `UPDATE hasp_key SET since = ` + spanRaised + `, expires = GREATEST(expires, (` + sharedUntil + `)),
			keep = GREATEST(keep, ((` + sharedUntil + `) + ?) {div} 60000000000 + 1) WHERE lock_key = ?`,

	// keys, keys with owners and labels; sRenewMany, which is each server's own, then has the span of the ttl,
	// twice, the ttl, and for how long a row is kept. The keys are named twice for the index.
	sRenewed: `SELECT lock_key, owner, expires - {now}, CASE WHEN EXISTS (SELECT 1 FROM hasp_lease q
			WHERE q.lock_key = hasp_key.lock_key AND q.kind = 'queue' AND q.expires > {now}) THEN 1 ELSE 0 END FROM hasp_key WHERE ` + serverMany,

	// how many
	sDead: `SELECT lock_key, fence FROM hasp_key WHERE keep < {now} {div} 60000000000 ORDER BY keep LIMIT ? FOR UPDATE SKIP LOCKED`,

	// key, key
	sKey: `WITH c AS (SELECT {now} AS now)
		SELECT c.now AS now, 'held' AS kind, 0 AS seq, k.owner, k.label, k.fence, k.since, k.expires, 0 AS mode, 0 AS most, 0 AS slot
			FROM c JOIN hasp_key k ON k.lock_key = ? AND k.held = 1 AND k.owner <> '' AND k.expires > c.now
		UNION ALL SELECT c.now, l.kind, l.seq, l.owner, l.label, l.fence, l.since, l.expires, l.mode, l.most, l.slot
			FROM c JOIN hasp_lease l ON l.lock_key = ? AND l.kind <> 'gone' AND l.expires > c.now
		ORDER BY kind, seq`,

	// first key, 1 to leave that out, first key, last key, how many
	sKeys: `WITH c AS (SELECT {now} AS now)
		SELECT c.now, k.lock_key, k.held, k.owner, k.label, k.fence, k.since, k.expires,
			(SELECT COUNT(*) FROM hasp_lease q WHERE q.lock_key = k.lock_key AND q.kind = 'queue' AND q.expires > c.now),
			(SELECT COUNT(*) FROM hasp_lease q WHERE q.lock_key = k.lock_key AND q.kind = 'held' AND q.expires > c.now),
			h.owner, h.label, h.fence, h.since, h.expires, h.mode, h.most, h.slot
		FROM c JOIN hasp_key k ON k.lock_key >= ? AND (k.lock_key > ? OR ? = 0) AND k.lock_key <= ?
		LEFT JOIN hasp_lease h ON h.lock_key = k.lock_key AND h.kind = 'held' AND k.others = 1 AND h.seq =
			(SELECT MIN(f.seq) FROM hasp_lease f WHERE f.lock_key = k.lock_key AND f.kind = 'held' AND f.expires > c.now)
		ORDER BY k.lock_key LIMIT ?`,
}

const sharedUntil = `SELECT l.expires FROM hasp_lease l WHERE l.lock_key = hasp_key.lock_key AND l.owner = ?`

// spanRaised is raised in SQL.
const spanRaised = `since + CASE WHEN since % 1000 BETWEEN 1 AND ? THEN ? - since % 1000 ELSE 0 END`

const serverMany = `lock_key IN ({keys}) AND (lock_key, owner, label) IN ({ids}) AND held = 1 AND expires > {now} AND {safe} = 1`

// The numbers of leases that one statement renews: few, since servers keep what they know
// of each text.
var renewSizes = []int{4, 32, 128}

// listed returns a statement for n leases, not yet numbered.
func listed(text string, n int) string {
	return strings.NewReplacer("{keys}", list("?", n), "{ids}", list("(?, ?, ?)", n)).Replace(text)
}

func list(one string, n int) string { return strings.Repeat(one+", ", n-1) + one }

// written returns the statements in a server's notation.
func written(own map[statement]string, notation *strings.Replacer, numbered bool) (out [statements]string) {
	for s, text := range serverText {
		if t, ok := own[statement(s)]; ok {
			text = t
		}
		text = notation.Replace(text)
		if numbered && !strings.Contains(text, "{keys}") {
			text = withNumbers(text)
		}
		out[s] = text
	}
	return out
}

// withNumbers names the arguments as PostgreSQL does.
func withNumbers(text string) string {
	var b strings.Builder
	for i, part := range strings.Split(text, "?") {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}

// serverMode is what a server says of itself.
type serverMode int

const (
	forgets  serverMode = iota // it answers a commit before it is safe
	readOnly                   // it takes no writes, or only those of some users
	writes
)

// fencesAtOnce is the increment of the sequence: how many fences a grant may have.
const fencesAtOnce = 1024

// fenceLeast is below all fences: they began with the microseconds of a clock, in 2005 or later.
const fenceLeast = 1 << 50

// literal writes the arguments of a statement into it, so that it needs no preparation,
// which would take a request more: bytes in hexadecimal, so that nothing in them can be
// taken for SQL.
func literal(text string, args []any) string {
	b := make([]byte, 0, 2*len(text))
	for _, arg := range args {
		before, after, _ := strings.Cut(text, "?")
		b, text = append(b, before...), after
		switch a := arg.(type) {
		case []byte:
			b = append(hex.AppendEncode(append(b, "X'"...), a), '\'')
		case string:
			b = append(hex.AppendEncode(append(b, "X'"...), []byte(a)), '\'')
		case int64:
			b = strconv.AppendInt(b, a, 10)
		case int:
			b = strconv.AppendInt(b, int64(a), 10)
		}
	}
	return string(append(b, text...))
}
