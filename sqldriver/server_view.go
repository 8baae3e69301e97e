// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"database/sql"
	"errors"
	"math"
	"time"

	"github.com/hasplock/hasp/driver"
)

// keyView is what a request reads of its key.
type keyView struct {
	view
	now reading

	key      row   // the key's own; of no kind when it only remembers a fence
	others   bool  // as its row says
	keep     int64 // as its row says: the minute from which on nothing of it matters
	there    bool  // it has a row
	stale    bool  // the server takes no writes, and what it says may be over
	ownRow   bool  // the owner has a row beside the key's own
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

// serverMode is what a server says of itself.
type serverMode int

const (
	forgets  serverMode = iota // it answers a commit before it is safe
	readOnly                   // it takes no writes, or only those of some users
	writes
)

var errForgets = errors.New("the database answers a commit before it is safe")

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
	err := c.scan(sLook, []any{key, claim.Owner, claim.Owner, key, key}, &s.now.up, &mode,
		&held, &k.owner, &k.label, &k.fence, &k.since, &k.expires, &k.most, &k.mark, &others, &keep,
		&own.kind, &own.label, &own.fence, &own.since, &own.expires, &own.mode, &own.most, &own.slot, &own.mark, &inbox, &place,
		&s.rows, &s.over, &s.seq, (*int64)(&s.last), &s.waiting, &s.hinted, &s.ahead, &s.barred, &s.least, &s.next)
	if err != nil {
		return s, err
	}
	if mode == forgets {
		return s, errForgets
	}
	s.stale = mode == readOnly
	c.s.crowd.at(claim.Key).Store(others.Int64 != 0)
	s.there, s.others, s.keep, s.ownInbox = held.Valid, others.Int64 != 0, keep.Int64, inbox.String
	s.key = k.row("")
	if held.Int64 != 0 {
		s.key.kind = kindHeld
		s.holder = s.key
		s.holder.mode = driver.Exclusive
	}
	s.gone = s.key.fence
	if own.kind.Valid {
		s.ownRow, s.own = true, own.row(own.kind.String)
		s.own.owner, s.ends = claim.Owner, s.own.expires
	} else if s.key.kind != "" && s.key.owner == claim.Owner {
		s.own = s.holder
	}
	s.took = time.Since(c.began)
	s.least = smaller(s.least, claim.Limit)
	if s.others {
		err = c.lookBeside(claim, &s)
	}
	in := int64(noPlace)
	if s.own.kind == kindQueued && s.own.live(s.now.up) && claim.Mode == driver.Exclusive && !s.view.hints {
		in = place.Int64
	}
	s.behind = c.s.lines.behind(claim.Key, claim.Owner, in) && s.ahead > 0
	return s, err
}

// lookBeside reads those who share a key, as far as a claim has to know them.
func (c *conn) lookBeside(claim driver.Claim, s *keyView) error {
	s.view.hints = s.ownInbox != "" && s.ownInbox == c.s.hints.inbox(claim.Owner)
	n := s.needs(claim, s.now.up)
	if n == 0 {
		return nil
	}
	if n < 0 {
		n = math.MaxInt32
	}
	rows, err := c.query(sBeside, []byte(claim.Key), int64(s.now.up), n)
	if err == nil {
		s.beside, err = readRows(rows)
	}
	return err
}
