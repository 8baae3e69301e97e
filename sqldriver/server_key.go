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
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// A keyTx is a transaction that has locked the row of a key, and with it all of the
// key's rows; or, where it is blind, a transaction that is sent whole.
type keyTx struct {
	keyView
	c     *conn
	claim driver.Claim
	made  int    // rows that were made, more or less
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
		c.made += t.made
	}
	return err
}

// errLocked is for a key whose row is locked, or not there, see conn.passOver.
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
	t.Hears = t.inbox != ""
	if t.over == 0 {
		return
	}
	t.c.later(sEndOver, []byte(t.claim.Key), int64(t.now.At))
	t.rows -= t.over
	if t.Own.Kind != rules.Held && !t.Own.Live(t.now.At) {
		t.ownRow = false
	}
}

// flush writes the key's row, and sends hints to the waiters that may be granted it.
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
	t.c.later(sWrite, flag(k.Kind != ""), k.Owner, []byte(k.Label), k.Fence, int64(k.Since), int64(k.Expires),
		k.Limit, flag(k.Mark), keep, key)
	t.lower = keep < t.keep
}

// keepUntil is the minute from which on nothing of the key matters any more. It changes
// as seldom as possible, since there is an index of it.
func (t *keyTx) keepUntil() int64 {
	last := max(t.now.At, t.key.Expires)
	if t.rows > 0 {
		last = max(last, t.last)
	}
	if t.ownRow {
		last = max(last, t.ends)
	}
	keep := int64(last+min(rules.KeepFence, math.MaxInt64-last))/minute + 1
	if keep <= t.keep && t.keep < keep+10 {
		return t.keep
	}
	return keep
}

// try decides, and does it.
func (t *keyTx) try(r voting.VoteRequest) (driver.Result, error) {
	res, plan, err := t.Try(r, t.now, t.choose)
	if err != nil {
		return driver.Result{}, err
	}
	return res, t.write(plan)
}

func (t *keyTx) renew(r driver.RenewRequest) (driver.Renewal, error) {
	out, plan := t.Renew(r, t.now, t.waiting > 0)
	return out, t.write(plan)
}

// release ends what an owner has, and reports whether it had anything.
func (t *keyTx) release(r voting.WithdrawRequest) (had bool, err error) {
	t.made++
	was, err := t.end(r)
	if err == nil {
		err = t.write(was.Depart(r.End, t.now))
	}
	return was.Expires > t.now.At, err
}

// write carries out a plan for the claim's owner.
func (t *keyTx) write(p rules.Plan) (err error) {
	switch p.End {
	case rules.AllHolders:
		err = t.endHolders()
	case rules.Sharers:
		err = t.endSharers()
	}
	if err == nil && p.Own != nil {
		err = t.own(*p.Own)
	}
	if p.Key != nil {
		t.made++
		key := *p.Key
		key.Kind, key.Owner, key.Label = rules.Held, "", ""
		t.key, t.dirty = stamped(key, t.now.At), true
	}
	if p.OwnUntil != 0 {
		t.prolong(t.claim.Owner, p.OwnUntil)
	}
	if p.KeyUntil != 0 {
		t.prolong("", p.KeyUntil)
	}
	if err == nil && p.Leave != nil {
		err = t.left(*p.Leave)
	}
	return err
}

func (t *keyTx) choose(v *rules.View, r voting.VoteRequest) (fence int64, fences int, err error) {
	fences = max(r.Fences, 1)
	newest := int64(v.Newest())
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
		err:    fmt.Errorf("no fence for the key %q: %s %d, and there were larger ones (%d)", t.claim.Key, what, fence, max(t.key.Fence, fenceLeast)),
		advice: "the tables were moved without it, or it was changed by hand: raise it with Init of the driver (hasp init)" + t.c.s.eng.raise}
}

// put writes the owner's row beside the key's own.
func (t *keyTx) put(r rules.Row, seq int64, inbox string) error {
	r = stamped(r, t.now.At)
	key := []byte(t.claim.Key)
	rest := []any{r.Fence, int64(r.Since), int64(r.Expires), int(r.Mode), r.Limit, r.Slot, flag(r.Mark), inbox, key, r.Owner}
	switch {
	case !t.ownRow:
		t.rows++
		t.c.later(sInsert, append([]any{r.Kind, []byte(r.Label), flag(seq > 0), key}, rest...)...)
	case t.blind && seq > 0:
		return errAsks
	default:
		t.c.later(sUpdate, append([]any{r.Kind, []byte(r.Label), seq}, rest...)...)
	}
	t.ownRow, t.ends = true, r.Expires
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
	if t.Own.Live(t.now.At) && t.Own.Kind == rules.Queued && t.ownInbox != "" {
		t.hinted--
	}
}

// own makes an owner's row what it says: the holder's is the key's own, others come after all that
// are there.
func (t *keyTx) own(r rules.Row) error {
	t.made++
	switch {
	case r.Kind == rules.Queued:
		t.joins = t.blind && !t.dirty && t.Own.Kind == ""
		return t.put(r, t.seq+1, t.inbox)
	case r.Mode == driver.Shared:
		t.leaves()
		return t.put(r, t.seq+1, "")
	}
	t.leaves() // the new first in the queue learns when the lease ends
	t.key, t.dirty = stamped(r, t.now.At), true
	return t.drop()
}

// prolong moves the expiry of a row to the later of what it is and until. No owner: the key's own.
func (t *keyTx) prolong(owner string, until time.Duration) {
	if owner == "" || owner == t.key.Owner {
		t.key.Since = raised(t.key.Since, until-t.now.At)
		t.key.Expires, t.dirty = max(t.key.Expires, until), true
		return
	}
	since := raised(t.Own.Since, until-t.now.At)
	t.ends = max(until, t.Own.Expires)
	inbox := ""
	if t.Own.Kind == rules.Queued {
		inbox = t.inbox
	}
	t.c.later(sProlong, int64(t.ends), int64(since), inbox, []byte(t.claim.Key), owner)
}

// endHolders deletes the rows of holders whose leases have expired.
func (t *keyTx) endHolders() error {
	if t.key.Kind != "" && !t.key.Live(t.now.At) {
		t.free()
	}
	switch {
	case t.rows == 0 || t.blind && !t.Shared(): // no other holds it beside an exclusive holder
		return nil
	case t.blind:
		return errAsks
	}
	n, err := t.c.count(sEndHolders, []byte(t.claim.Key), int64(t.now.At))
	t.ended(n, t.Own.Kind == rules.Held)
	return err
}

// endSharers deletes those of them that share the key and whose end leaves a mark.
func (t *keyTx) endSharers() error {
	if t.blind {
		return errAsks
	}
	n, err := t.c.count(sEndSharers, []byte(t.claim.Key), int64(t.now.At))
	t.ended(n, t.Own.Kind == rules.Held && t.Own.Limit > 0)
	return err
}

// ended notes that n rows of leases that are over were deleted, perhaps the owner's.
func (t *keyTx) ended(n int, own bool) {
	t.rows -= n
	if own && !t.Own.Live(t.now.At) {
		t.ownRow = false
	}
}

// free has the key's row only remember its fence.
func (t *keyTx) free() {
	t.key, t.dirty = rules.Row{Fence: t.key.Fence}, true
}

// left brings the key's own row up to date when an owner that shared it has gone.
func (t *keyTx) left(l rules.Leaving) error {
	switch {
	case t.key.Kind == "" || t.key.Owner != "":
		return nil
	case t.blind:
		return errAsks
	}
	var last time.Duration
	var most int
	if err := t.c.scan(sSharers, []any{[]byte(t.claim.Key)}, &last, &most); err != nil {
		return err
	}
	if t.key.Expires <= l.Until {
		t.key.Expires = max(min(l.Until, t.now.At), last)
	}
	if t.key.Limit != 0 {
		t.key.Limit = most
	}
	t.key.Mark, t.dirty = t.key.Mark || l.Mark, true
	return nil
}

// end takes away what an owner has, and returns what that was. Unless it is settled the owner is
// remembered, also when it had nothing.
func (t *keyTx) end(r voting.WithdrawRequest) (was rules.Row, err error) {
	late := rules.Row{Kind: rules.Gone, Owner: r.Owner, Label: r.Label, Since: t.now.At, Expires: t.now.After(rules.GoneFor)}
	own := t.Own
	switch {
	case own.Kind == "" || own.Label != r.Label || own.Kind == rules.Gone:
		mine := own.Kind == "" || !t.ownRow && own.Kind != rules.Held || own.Kind == rules.Gone && own.Label == r.Label
		if r.Settled || !mine {
			return rules.Row{}, nil
		}
		late.Expires = max(late.Expires, own.Expires)
		return rules.Row{}, t.put(late, 0, "")
	case own.Owner == t.key.Owner:
		own.Mode = driver.Exclusive
		t.free()
	default:
		own.Mode = driver.Shared
	}
	t.leaves()
	if r.Settled {
		return own, t.drop()
	}
	return own, t.put(late, 0, "")
}

// cut does the same to all of the key's rows, in the transaction.
func (t *keyTx) cut() error {
	t.dirty = t.keyView.cut()
	if !t.dirty && !t.mayLast() {
		return nil
	}
	now := int64(t.now.At)
	n, err := t.c.count(sCut, now, []byte(t.claim.Key), now)
	if err != nil || n == 0 {
		return err
	}
	t.keyView, err = t.c.look(t.claim)
	t.dirty = t.keyView.cut()
	return err
}

// A transaction of several requests keeps the key's row locked for as many round trips, while all others wait for
// it. So what there is of a key is read without a lock, what comes of it is decided here, and one request then
// locks the row, and writes that if the key is still as it was seen: it is as if all had been done when
// the key was read.

var (
	// errAsks is of a step that needs an answer, in a transaction that is sent whole.
	errAsks = errors.New("it is not known without the lock")
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
		done, err := t.whole(seen, f)
		switch {
		case errors.Is(err, errAsks):
			return false, nil
		case err != nil:
			return false, err
		case done:
			c.made += t.made
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

// same returns what finds a row where the key is as it was seen. Of an owner that stands behind
// others in the queue only that matters, and that they know of it.
func (t *keyTx) same(seen *keyView) Step {
	k, now := seen.key, int64(seen.now.At)
	if t.joins {
		others, keep := 1, seen.keep
		if t.moves {
			others, keep = 0, 0
		}
		return t.c.step(sCrowded, []byte(t.claim.Key), now+int64(wholeLimit), others, keep, t.claim.Owner, t.claim.Owner, flag(t.again), int64(k.Expires))
	}
	own, last := rules.Row{}, int64(math.MaxInt64)
	if t.lower {
		last = int64(seen.last)
	}
	if seen.ownRow {
		own = seen.Own
	}
	return t.c.step(sSame, t.claim.Owner, []byte(t.claim.Key), now+int64(wholeLimit), flag(seen.others), seen.keep,
		flag(!t.moves && seen.Ahead > 0), t.claim.Owner, flag(k.Kind != ""), k.Owner, k.Fence, int64(k.Since), int64(k.Expires), k.Limit, flag(k.Mark),
		own.Kind, int64(own.Expires), flag(seen.Ahead > 0), t.claim.Owner, now, now, last, t.claim.Owner)
}
