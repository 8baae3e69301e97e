// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"cmp"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
)

// A key that is shared has a row of its own where an exclusive holder has its
// lease: so the two cannot be there at once, and whoever wants the key alone
// needs to look at one row. It ends when the last lease of those who share the
// key ends, whose rows stand beside it.

// shared says whether the holder's row is the key's own.
func (v view) shared() bool { return v.holder.kind != "" && v.holder.owner == "" }

// mode is how an owner holds the key, if it does.
func (v view) mode(owner string) driver.Mode {
	if v.holder.owner == owner {
		return driver.Exclusive
	}
	return driver.Shared
}

// abandoned says whether the key has the mark of Result.Abandoned. Of leases that
// are over the key's own row says only that some of them leave one.
func (v view) abandoned(now time.Duration) bool {
	h := v.holder
	return h.mark && v.shared() || h.kind != "" && !h.live(now) && (h.owner != "" || h.most > 0)
}

// needs is how many of those who share the key c must know, -1 for all.
func (v view) needs(c driver.Claim, now time.Duration) int {
	switch {
	case !v.shared() || !v.holder.live(now):
		return 0
	case c.Mode == driver.Shared && (v.least > 0 || v.holder.most > 0):
		return -1
	case c.Mode == driver.Shared && !v.barred: // it is let in
		return 0
	}
	return 1
}

// admits reports whether c can have the key beside its holders. Waiters before it that
// can have it too, and have not asked yet, do not delay it: they count as holders.
func (v view) admits(c driver.Claim, now time.Duration) bool {
	if c.Mode != driver.Shared {
		return v.ahead == 0 && !v.holder.live(now)
	}
	return !v.barred && (v.shared() || !v.holder.live(now)) && room(v.beside, v.ahead, v.least)
}

// room says whether one more can share a key, with so many others who are about
// to. Where nobody has a limit, those who share it need not be known.
func room(beside []row, others, limit int) bool {
	limit = least(beside, limit)
	return limit == 0 || len(beside)+others < limit
}

// least returns the smallest limit.
func least(beside []row, limit int) int {
	for _, h := range beside {
		limit = smaller(limit, h.most)
	}
	return limit
}

// smaller returns the smaller limit, where 0 is none.
func smaller(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// opens is when c can have the key if none of its holders renews; of one that
// only has to wait for others in the queue, when the last lease ends.
func (v view) opens(c driver.Claim) time.Duration {
	if c.Mode == driver.Shared && !room(v.beside, 0, c.Limit) {
		beside := slices.SortedFunc(slices.Values(v.beside), func(a, b row) int { return cmp.Compare(a.expires, b.expires) })
		for i, h := range beside {
			if room(beside[i+1:], 0, c.Limit) {
				return h.expires
			}
		}
	}
	return v.holder.expires
}

// freeSlot is the smallest number that no holder has. It is below the limit
// where there is room.
func freeSlot(beside []row, limit int) int {
	if limit == 0 {
		return 0
	}
	taken := make([]bool, len(beside)+1)
	for _, h := range beside {
		if h.most > 0 && h.slot < len(taken) {
			taken[h.slot] = true
		}
	}
	return slices.Index(taken, false)
}

// share grants a key that is free, or shared with room for one more.
func (t *rules) share(v *view, r driver.VoteRequest) (driver.Result, error) {
	key := row{since: t.up, mark: v.abandoned(t.up)}
	if v.holder.live(t.up) {
		key = v.holder
		if key.most > 0 {
			marked, err := t.endSharers(r.Key)
			if err != nil {
				return driver.Result{}, err
			}
			key.mark = key.mark || marked
		}
	}
	t.rowsMade += 2
	fence, fences, err := t.choose(v, r)
	if err != nil {
		return driver.Result{}, err
	}
	until, slot, abandoned := t.after(r.TTL), freeSlot(v.beside, r.Limit), key.mark
	key.fence, key.expires = max(int64(v.newest()), fence), max(key.expires, until)
	key.most, key.mark = least(v.beside, r.Limit), key.mark && r.Limit == 0
	if err := t.setKey(r.Key, key, v.wrote); err != nil {
		return driver.Result{}, err
	}
	err = t.shares(r.Claim, row{fence: fence, since: t.up, expires: until, slot: slot, mark: abandoned})
	return driver.Result{Granted: true, Fence: uint64(fence), Fences: fences, TTL: until - t.up,
		Slot: slot, Abandoned: abandoned, Node: t.node}, err
}

// convert makes the holder share the key. It keeps its fence, and the mark that it
// took over is cleared.
func (t *rules) convert(v *view, r driver.VoteRequest) (driver.Result, error) {
	t.rowsMade++
	key := row{fence: max(int64(v.newest()), v.own.fence), since: v.own.since, expires: max(v.own.expires, t.after(r.TTL)), most: r.Limit}
	err := t.shares(r.Claim, row{fence: v.own.fence, since: key.since, expires: key.expires})
	if err != nil {
		return driver.Result{}, err
	}
	return driver.Result{Granted: true, Fence: uint64(v.own.fence), TTL: key.expires - t.up, Node: t.node},
		t.setKey(r.Key, key, v.wrote)
}

// back is for an owner whose lease is over and who joins the queue again: its row
// becomes its place, so the key's own has to keep what it says.
func (t *rules) back(v *view, c driver.Claim) error {
	if v.mode(c.Owner) == driver.Exclusive {
		return t.remember(c.Key)
	}
	marked, err := t.endSharers(c.Key)
	if marked && err == nil {
		err = t.left(c.Key, 0, true)
	}
	return err
}
