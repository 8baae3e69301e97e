// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"errors"
	"hash/crc32"
	"math"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
)

// A transaction of several requests keeps the key's row locked for as many round trips, while all others wait for
// it. So what there is of a key is read without a lock, what comes of it is decided here, and one request then
// locks the row, and writes that if the key is still as it was seen: it is as if all had been done when
// the key was read.

var (
	// errAsks is of a step of a transaction that needs an answer, in one that is sent whole.
	errAsks = errors.New("it cannot be told without the lock")
)

const (
	// wholeLimit is how long after it was read a key may be written.
	wholeLimit = 5 * time.Second
)

// whole is onKey in one request after a read. done is false, and nothing is, where it cannot be.
func (c *conn) whole(claim driver.Claim, seen *keyView, f func(t *keyTx) error) (done bool, err error) {
	if claim.Mode == driver.Shared {
		return false, nil
	}
	for again := attempts; again > 0 && !c.s.parts.Load(); again-- {
		if seen == nil || !seen.there {
			switch seen, err = c.lookAgain(claim, seen); {
			case c.s.eng.overtook(err): // where each statement is serializable by default
				seen = nil
				continue
			case err != nil:
				return false, err
			}
		}
		if seen.stale || seen.mayLast() { // a write says so, or mends it
			return false, nil
		}
		t := &keyTx{c: c, claim: claim, inbox: c.s.hints.inbox(claim.Owner), keyView: *seen, blind: true, again: again < attempts}
		t.table = t
		done, err := t.whole(seen, f)
		switch {
		case errors.Is(err, errAsks):
			return false, nil
		case err != nil:
			return false, err
		case done:
			c.made += t.rowsMade
			c.s.crowd.at(claim.Key).Store(t.rows > 0)
			return true, nil
		}
		seen = nil
	}
	return false, nil
}

// lookAgain reads a key, whose row it makes when there is none.
func (c *conn) lookAgain(claim driver.Claim, seen *keyView) (*keyView, error) {
	if seen != nil {
		if _, err := c.exec(sLock, []byte(claim.Key)); err != nil {
			return nil, err
		}
	}
	v, err := c.look(claim)
	return &v, err
}

// whole sends what f does where the key is as it was seen.
func (t *keyTx) whole(seen *keyView, f func(t *keyTx) error) (done bool, err error) {
	c := t.c
	c.todo = nil
	t.endOver()
	if err := f(t); err != nil {
		return false, err
	}
	t.flush()
	if len(c.todo) == 0 {
		return true, nil
	}
	return c.send([]byte(t.claim.Key), t.same(seen))
}

// send sends what was put off, to be done where same finds a row once the key's is locked.
func (c *conn) send(key []byte, same Step) (done bool, err error) {
	writes := c.todo
	c.todo, c.sent, c.open = nil, true, true
	able, done, err := c.s.eng.whole(c, c.step(sLock, key), same, writes)
	switch {
	case err == nil:
		c.sent, c.open = false, false
	case c.s.eng.overtook(err):
		if c.rollback(); !c.open {
			c.sent, err = false, nil
		}
	}
	if !able && err == nil {
		c.s.parts.Store(true)
	}
	return done && err == nil, err
}

// crowds remembers, more or less, which keys others wait for, so that no request is wasted on what
// is only done where nobody does.
type crowds [256]atomic.Bool

func (c *crowds) at(key string) *atomic.Bool {
	return &c[crc32.ChecksumIEEE([]byte(key))%uint32(len(c))]
}

// same returns what finds a row where the key is as it was seen. Of one who stands behind others in the
// queue only that matters, and that they know of it.
func (t *keyTx) same(seen *keyView) Step {
	k, now := seen.key, int64(seen.now.up)
	if t.joins {
		others, keep := 1, seen.keep
		if t.moves {
			others, keep = 0, 0
		}
		return t.c.step(sCrowded, []byte(t.claim.Key), now+int64(wholeLimit), others, keep, t.claim.Owner, t.claim.Owner, flag(t.again), int64(k.expires))
	}
	own, last := row{}, int64(math.MaxInt64)
	if t.lower {
		last = int64(seen.last)
	}
	if seen.ownRow {
		own = seen.own
	}
	return t.c.step(sSame, t.claim.Owner, []byte(t.claim.Key), now+int64(wholeLimit), flag(seen.others), seen.keep,
		flag(!t.moves && seen.ahead > 0), t.claim.Owner, flag(k.kind != ""), k.owner, k.fence, int64(k.since), int64(k.expires), k.most, flag(k.mark),
		own.kind, int64(own.expires), flag(seen.ahead > 0), t.claim.Owner, now, now, last, t.claim.Owner)
}
