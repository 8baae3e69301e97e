// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"database/sql"
	"math"
	"math/bits"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// keyView is what a request reads of its key.
type keyView struct {
	rules.View
	now rules.Now

	key      rules.Row // the key's own; of no kind when it only remembers a fence
	others   bool      // as its row says
	keep     int64     // as its row says: the minute from which on nothing of it matters
	there    bool      // it has a row
	stale    bool      // the server takes no writes, and what it says may be over
	ownRow   bool      // the owner has a row beside the key's own
	ownInbox string

	rows    int // beside the key's own
	over    int // of them, places and tombstones that are over
	seq     int64
	last    time.Duration // the last of them expires, but for the owner's
	ends    time.Duration // the owner's expires
	waiting int           // live places
	hinted  int           // of them, of those that hear hints
	next    int64         // as the engine has it: a fence for a grant, or what it must be above
}

// today is a reading of a server's clock, which has no date, before it is read.
func today() rules.Now { return rules.Now{Wall: time.Now().UnixMicro()} }

// look reads what there is of a key. Within a transaction that has locked the key's row
// that is one moment; else what comes of it can be a refusal only.
func (c *conn) look(claim driver.Claim) (keyView, error) {
	var s keyView
	if err := c.known(); err != nil {
		return s, err
	}
	var k, own nullRow
	var held, others, keep sql.NullInt64
	var inbox sql.NullString
	var place sql.NullInt64
	var mode serverMode
	key := []byte(claim.Key)
	err := c.scan(sLook, []any{key, claim.Owner, claim.Owner, key, key}, &s.now.At, &mode,
		&held, &k.owner, &k.label, &k.fence, &k.since, &k.expires, &k.most, &k.mark, &others, &keep,
		&own.kind, &own.label, &own.fence, &own.since, &own.expires, &own.mode, &own.most, &own.slot, &own.mark, &inbox, &place,
		&s.rows, &s.over, &s.seq, (*int64)(&s.last), &s.waiting, &s.hinted, &s.Ahead, &s.Barred, &s.Least, &s.Ended, &s.next)
	if err != nil {
		return s, err
	}
	if mode == forgets {
		return s, errForgets
	}
	s.now.Wall = time.Now().UnixMicro() // the answer may have waited for the row
	s.stale = mode == readOnly
	c.s.crowd.at(claim.Key).Store(others.Int64 != 0)
	s.there, s.others, s.keep, s.ownInbox = held.Valid, others.Int64 != 0, keep.Int64, inbox.String
	s.key = k.row("")
	if held.Int64 != 0 {
		s.key.Kind = rules.Held
		s.Holder = s.key
		s.Holder.Mode = driver.Exclusive
	}
	s.Gone = s.key.Fence
	if own.kind.Valid {
		s.ownRow, s.Own = true, own.row(own.kind.String)
		s.Own.Owner, s.ends = claim.Owner, s.Own.Expires
	} else if s.key.Kind != "" && s.key.Owner == claim.Owner {
		s.Own = s.Holder
	}
	s.Took = time.Since(c.began)
	s.Least = rules.Smaller(s.Least, claim.Limit)
	if s.others {
		err = c.lookBeside(claim, &s)
	}
	in := int64(noPlace)
	if s.Own.Kind == rules.Queued && s.Own.Live(s.now.At) && claim.Mode == driver.Exclusive && !s.Hints {
		in = place.Int64
	}
	s.Behind = c.s.lines.behind(claim.Key, claim.Owner, in) && s.Ahead > 0
	return s, err
}

// lookBeside reads the owners that share a key, as far as a claim has to know them.
func (c *conn) lookBeside(claim driver.Claim, s *keyView) error {
	s.Hints = s.ownInbox != "" && s.ownInbox == c.s.hints.inbox(claim.Owner)
	n := s.Needs(claim, s.now.At)
	if n == 0 {
		return nil
	}
	if n < 0 {
		n = math.MaxInt32
	}
	var err error
	s.Beside, err = readRows(c.query(sBeside, []byte(claim.Key), int64(s.now.At), n))
	return err
}

// What is left of a lease or a place is never more than the longest TTL that was asked for it: a server's clock may have
// been ahead for a while when it was written. The row says it in the last three digits of since, whose moment is exact to
// the microsecond: 0 for unknown, as builds before this wrote it, else a number of 16 steps for each doubling.

// spanUnit is the power of two that the first step begins at, some 65 µs.
const spanUnit = 16

// span returns the digits of the shortest time that is not below ttl.
func span(ttl time.Duration) time.Duration {
	for e := max(bits.Len64(uint64(max(ttl, 0)))-5-spanUnit, 0); e+spanUnit < 58; e++ {
		if units := (int64(max(ttl, 0))-1)>>(e+spanUnit) + 1; units < 32 {
			return time.Duration(16*e) + time.Duration(max(units, 16)) - 15
		}
	}
	return 0
}

// spanSQL is spanOf in SQL, of digits that are not 0.
const spanSQL = `((since % 1000 + 15) % 16 + 16) * POWER(2, (since % 1000 - 1) {div} 16 + 16)`

// spanOf returns the time that the digits of a moment say.
func spanOf(since time.Duration) time.Duration {
	digits := since % 1000
	if digits <= 0 {
		return math.MaxInt64
	}
	return (16 + (digits-1)%16) << ((digits-1)/16 + spanUnit)
}

// raised is the moment of a lease that is prolonged for ttl.
func raised(since, ttl time.Duration) time.Duration {
	if digits := since % 1000; digits > 0 && spanOf(since) < ttl {
		return since - digits + span(ttl)
	}
	return since
}

// stamped returns a row that was made now, or brought up to date, with how long it may last.
func stamped(r rules.Row, now time.Duration) rules.Row {
	if r.Since == now {
		r.Since += span(r.Expires - now)
	} else {
		r.Since = raised(r.Since, r.Expires-now)
	}
	return r
}

// tooLong says whether more is left of a row than was ever asked for.
func tooLong(r rules.Row, now time.Duration) bool {
	return r.Kind != "" && r.Expires-now > spanOf(r.Since)
}

// cut shortens what lasts too long.
func (s *keyView) cut() (changed bool) {
	if !tooLong(s.key, s.now.At) {
		return false
	}
	s.key.Expires = s.now.At + spanOf(s.key.Since)
	s.Holder.Expires = s.key.Expires
	if s.Own.Kind == rules.Held && !s.ownRow {
		s.Own.Expires = s.key.Expires
	}
	return true
}

// farOff is how far a row beside the key's own may expire without a look at whether it lasts too long.
const farOff = time.Minute

// mayLast says whether a row of the key lasts too long, or may.
func (s *keyView) mayLast() bool {
	return tooLong(s.key, s.now.At) || max(s.last, s.ends)-s.now.At > farOff
}
