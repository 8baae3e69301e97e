// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"math"
	"math/bits"
	"time"
)

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
func (r row) stamped(now time.Duration) row {
	if r.since == now {
		r.since += span(r.expires - now)
	} else {
		r.since = raised(r.since, r.expires-now)
	}
	return r
}

// tooLong says whether more is left of a row than was ever asked for.
func (r row) tooLong(now time.Duration) bool { return r.kind != "" && r.expires-now > spanOf(r.since) }

// cut shortens what lasts too long.
func (s *keyView) cut() (changed bool) {
	if !s.key.tooLong(s.now.up) {
		return false
	}
	s.key.expires = s.now.up + spanOf(s.key.since)
	s.holder.expires = s.key.expires
	if s.own.kind == kindHeld && !s.ownRow {
		s.own.expires = s.key.expires
	}
	return true
}

// farOff is how far a row beside the key's own may expire without a look at whether it lasts too long.
const farOff = time.Minute

// mayLast says whether a row of the key lasts too long, or may.
func (s *keyView) mayLast() bool {
	return s.key.tooLong(s.now.up) || max(s.last, s.ends)-s.now.up > farOff
}

// cut does the same to all of the key's rows, in the transaction.
func (t *keyTx) cut() error {
	t.dirty = t.keyView.cut()
	if !t.dirty && !t.mayLast() {
		return nil
	}
	now := int64(t.keyView.now.up)
	n, err := t.c.count(sCut, now, []byte(t.claim.Key), now)
	if err != nil || n == 0 {
		return err
	}
	t.keyView, err = t.c.look(t.claim)
	t.dirty = t.keyView.cut()
	return err
}
