// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hasplock/hasp/driver"
)

// A keyTx is a transaction that has locked the row of a key, and with it all of the
// key's rows; or, where it is blind, one that is sent whole.
type keyTx struct {
	rules
	c     *conn
	claim driver.Claim
	keyView
	blind bool   // the row is not locked: what needs an answer is errAsks
	inbox string // where the owner hears hints, if it does
	dirty bool   // the key's row has to be written
	moves bool   // it is
	lower bool   // with an earlier end than it had
	tell  bool   // others may be granted the key now
	again bool   // others have overtaken it: it joins also a key that is free by then
	joins bool   // nothing happens but that the owner, which has nothing of the key, joins the queue
}

// onKey runs f on a claim's key; seen is what was read of that just now, if it was. f may run again.
func (c *conn) onKey(claim driver.Claim, seen *keyView, f func(t *keyTx) error) error {
	if err := c.unlocked(claim.Key); err != nil {
		return err
	}
	if done, err := c.whole(claim, seen, f); done || err != nil {
		return err
	}
	return c.locked(claim, f)
}

// unlocked is errLocked where a key that is locked is to be passed over.
func (c *conn) unlocked(key string) error {
	if !c.passOver {
		return nil
	}
	var others int
	err := c.scan(sFree, []any{[]byte(key)}, &others)
	if errors.Is(err, sql.ErrNoRows) {
		return errLocked
	}
	return err
}

// locked runs f in a transaction that has locked the row of a claim's key.
func (c *conn) locked(claim driver.Claim, f func(t *keyTx) error) error {
	var t *keyTx
	err := c.transact(func() error {
		t = &keyTx{c: c, claim: claim, inbox: c.s.hints.inbox(claim.Owner)}
		t.table = t
		if err := t.open(); err != nil {
			return err
		}
		if err := f(t); err != nil {
			return err
		}
		t.flush()
		return nil
	})
	if err == nil {
		c.made += t.rowsMade
	}
	return err
}

// errLocked is for a key whose row somebody has locked, or that has none, see conn.passOver.
var errLocked = errors.New("the key's row is locked, or not there")

// open locks the row, and only then reads the clock and what others wrote.
func (t *keyTx) open() error {
	t.c.later(sLock, []byte(t.claim.Key))
	var err error
	if t.keyView, err = t.c.look(t.claim); err != nil {
		return err
	}
	if err := t.cut(); err != nil {
		return err
	}
	t.endOver()
	return nil
}

// endOver deletes places and tombstones that are over.
func (t *keyTx) endOver() {
	t.reading = t.keyView.now
	if t.over == 0 {
		return
	}
	t.c.later(sEndOver, []byte(t.claim.Key), int64(t.up))
	t.rows -= t.over
	if t.own.kind != kindHeld && !t.own.live(t.up) {
		t.ownRow = false
	}
}

// flush writes the key's row, and tells those who may be granted it.
func (t *keyTx) flush() {
	key := []byte(t.claim.Key)
	if t.tell && (t.hinted > 0 || t.blind) && t.c.s.eng.text[sNotify] != "" {
		t.c.later(sNotify, key, key, key)
	}
	others, keep := t.rows > 0, t.keepUntil()
	if !t.dirty && others == t.others && keep == t.keep {
		return
	}
	if t.moves = true; t.joins {
		t.c.later(sWaited, keep, key)
		return
	}
	k := t.key
	t.c.later(sWrite, flag(k.kind != ""), k.owner, []byte(k.label), k.fence, int64(k.since), int64(k.expires),
		k.most, flag(k.mark), keep, key)
	t.lower = keep < t.keep
}

// keepUntil is the minute from which on nothing of the key matters any more. It changes
// as seldom as possible, since there is an index of it.
func (t *keyTx) keepUntil() int64 {
	last := max(t.up, t.key.expires)
	if t.rows > 0 {
		last = max(last, t.last)
	}
	if t.ownRow {
		last = max(last, t.ends)
	}
	keep := int64(last+min(keepFence, math.MaxInt64-last))/minute + 1
	if keep <= t.keep && t.keep < keep+10 {
		return t.keep
	}
	return keep
}

func (t *keyTx) view(driver.Claim) (*view, error) { return &t.keyView.view, nil }

func (t *keyTx) choose(v *view, r driver.VoteRequest) (fence int64, fences int, err error) {
	fences = max(r.Fences, 1)
	newest := int64(v.newest())
	if t.c.s.eng.sequence {
		if t.next-fencesAtOnce < max(newest, fenceLeast) {
			err = t.leftBehind("the sequence hasp_fence gives", t.next)
		}
		return t.next, min(fences, fencesAtOnce), err
	}
	floor := newest
	if floor == 0 { // the key's row was made after any other was swept
		floor = t.next
	}
	if floor < fenceLeast {
		return 0, 0, t.leftBehind("hasp_meta, or the key's row, says", floor)
	}
	return floor + int64(fences), fences, nil
}

// leftBehind is of fences that a guard would refuse for ever.
func (t *keyTx) leftBehind(what string, fence int64) error {
	return &storeError{class: driver.ClassMisconfigured,
		err:    fmt.Errorf("no fence for the key %q: %s %d, and there were larger ones (%d)", t.claim.Key, what, fence, max(t.key.fence, fenceLeast)),
		advice: "the tables were moved without it, or it was changed by hand: raise it with Init of the driver (hasp init)" + t.c.s.eng.raise}
}

// put writes the owner's row beside the key's own.
func (t *keyTx) put(r row, seq int64, inbox string) error {
	r = r.stamped(t.up)
	key := []byte(t.claim.Key)
	rest := []any{r.fence, int64(r.since), int64(r.expires), int(r.mode), r.most, r.slot, flag(r.mark), inbox, key, r.owner}
	switch {
	case !t.ownRow:
		t.rows++
		t.c.later(sInsert, append([]any{r.kind, []byte(r.label), flag(seq > 0), key}, rest...)...)
	case t.blind && seq > 0:
		return errAsks
	default:
		t.c.later(sUpdate, append([]any{r.kind, []byte(r.label), seq}, rest...)...)
	}
	t.ownRow, t.ends = true, r.expires
	return nil
}

// drop deletes the owner's row beside the key's own, if there is one.
func (t *keyTx) drop() error {
	if !t.ownRow {
		return nil
	}
	t.ownRow = false
	t.rows--
	t.c.later(sDelete, []byte(t.claim.Key), t.claim.Owner)
	return nil
}

// leaves notes that the owner's place is not one any more.
func (t *keyTx) leaves() {
	t.tell = true
	if t.own.live(t.up) && t.own.kind == kindQueued && t.ownInbox != "" {
		t.hinted--
	}
}

func (t *keyTx) hold(c driver.Claim, fence int64, until time.Duration, mark bool) error {
	t.leaves() // the new first in the queue learns when the lease ends
	t.key = row{kind: kindHeld, owner: c.Owner, label: c.Label, fence: fence, since: t.up, expires: until, mark: mark}.stamped(t.up)
	t.dirty = true
	return t.drop()
}

func (t *keyTx) shares(c driver.Claim, r row) error {
	t.leaves()
	r.kind, r.owner, r.label, r.mode, r.most = kindHeld, c.Owner, c.Label, driver.Shared, c.Limit
	return t.put(r, t.seq+1, "")
}

func (t *keyTx) setKey(_ string, r row, _ int64) error {
	r.kind, r.owner, r.label = kindHeld, "", ""
	t.key, t.dirty = r.stamped(t.up), true
	return nil
}

func (t *keyTx) prolong(key, owner string, until time.Duration, _ int64) error {
	if owner == "" || owner == t.key.owner {
		t.key.since = raised(t.key.since, until-t.up)
		t.key.expires, t.dirty = max(t.key.expires, until), true
		return nil
	}
	since := raised(t.own.since, until-t.up)
	until = max(until, t.own.expires)
	t.ends = until
	inbox := ""
	if t.own.kind == kindQueued {
		inbox, t.hints = t.inbox, t.inbox != ""
	}
	t.c.later(sProlong, int64(until), int64(since), inbox, []byte(key), owner)
	return nil
}

func (t *keyTx) queue(c driver.Claim, until time.Duration) error {
	t.hints = t.inbox != ""
	t.joins = t.blind && !t.dirty && t.own.kind == ""
	return t.put(row{kind: kindQueued, owner: c.Owner, label: c.Label, since: t.up, expires: until, mode: c.Mode, most: limit(c)}, t.seq+1, t.inbox)
}

func (t *keyTx) endHolders(key string) error {
	if t.key.kind != "" && !t.key.live(t.up) {
		t.free()
	}
	switch {
	case t.rows == 0 || t.blind && !t.shared(): // beside one who has it alone nobody holds it
		return nil
	case t.blind:
		return errAsks
	}
	n, err := t.c.count(sEndHolders, []byte(key), int64(t.up))
	t.ended(n, t.own.kind == kindHeld)
	return err
}

func (t *keyTx) endSharers(key string) (bool, error) {
	if t.blind {
		return false, errAsks
	}
	n, err := t.c.count(sEndSharers, []byte(key), int64(t.up))
	t.ended(n, t.own.kind == kindHeld && t.own.most > 0)
	return n > 0, err
}

// ended notes that n rows of leases that are over were deleted, perhaps the owner's.
func (t *keyTx) ended(n int, own bool) {
	t.rows -= n
	if own && !t.own.live(t.up) {
		t.ownRow = false
	}
}

// free makes the key's row one that only remembers.
func (t *keyTx) free() {
	t.key, t.dirty = row{fence: t.key.fence}, true
}

func (t *keyTx) remember(string) error {
	t.key.owner, t.key.label, t.key.mark, t.dirty = "", "", true, true
	return nil
}

func (t *keyTx) left(key string, until time.Duration, mark bool) error {
	switch {
	case t.key.kind == "" || t.key.owner != "":
		return nil
	case t.blind:
		return errAsks
	}
	var last time.Duration
	var most int
	if err := t.c.scan(sSharers, []any{[]byte(key)}, (*int64)(&last), &most); err != nil {
		return err
	}
	if t.key.expires <= until {
		t.key.expires = max(min(until, t.up), last)
	}
	if t.key.most != 0 {
		t.key.most = most
	}
	t.key.mark, t.dirty = t.key.mark || mark, true
	return nil
}

func (t *keyTx) renewLease(r driver.RenewRequest, until time.Duration) (lease prolonged, ok bool, err error) {
	own := t.own
	if own.kind != kindHeld || !own.live(t.up) || own.label != r.Label || uint64(own.fence) < r.Fence {
		return prolonged{}, false, nil
	}
	lease = prolonged{expires: max(own.expires, until), wanted: t.waiting > 0, mode: t.mode(r.Owner)}
	return lease, true, t.prolong(r.Key, r.Owner, lease.expires, 0)
}

func (t *keyTx) end(r driver.WithdrawRequest) (was departed, ok bool, err error) {
	late := row{kind: kindGone, owner: r.Owner, label: r.Label, since: t.up, expires: t.after(goneFor)}
	own := t.own
	switch {
	case own.kind == "" || own.label != r.Label || own.kind == kindGone:
		mine := own.kind == "" || !t.ownRow && own.kind != kindHeld || own.kind == kindGone && own.label == r.Label
		if r.Settled || !mine {
			return departed{}, false, nil
		}
		late.expires = max(late.expires, own.expires)
		return departed{}, false, t.put(late, 0, "")
	case own.owner == t.key.owner:
		own.mode = driver.Exclusive
		t.free()
	default:
		own.mode = driver.Shared
	}
	t.leaves()
	was = departed{key: r.Key, row: own}
	if r.Settled {
		return was, true, t.drop()
	}
	return was, true, t.put(late, 0, "")
}
