// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// Verdict is what becomes of a Try.
type Verdict int

// The verdicts.
const (
	Refuse  Verdict = iota // nothing changes
	Join                   // refused, and put at the end of the queue
	Touch                  // refused, with a sign of life for its place
	Extend                 // it is the holder
	Convert                // the holder shares the key from now on
	Grant
	TooLow // nothing changes: the proposed fence cannot be granted
)

// Decide is the rule of the lock. It runs twice: on a mere read, which settles most refusals,
// and again in the transaction that writes.
func (v *View) Decide(r voting.VoteRequest, now Now) Verdict {
	own := v.Own.Live(now.At)
	holds := own && v.Own.Kind == Held
	free := v.admits(r.Claim, now.At)
	switch {
	case own && (v.Own.Label != r.Label || v.Own.Kind == Gone):
		return Refuse // another owner's, with the same random id; or late
	case r.Convert && (!holds || uint64(v.Own.Fence) < r.Fence):
		return Refuse
	case r.Convert && v.Mode(r.Owner) == driver.Exclusive:
		return Convert
	case holds && v.Mode(r.Owner) != r.Mode:
		return Refuse // overtaken by the request that converted the lease
	case holds && v.raisable(r, now):
		return Extend
	case !holds && free && v.acceptable(r, now):
		return Grant
	case holds, free:
		return TooLow
	case !r.Queue:
		return Refuse
	case !own:
		return Join
	case v.Own.WorthWriting(r.Patience, now.At):
		return Touch
	}
	return Refuse
}

// Ending names the rows of holders whose leases are over that are to be deleted.
type Ending int

// The endings.
const (
	NoHolders  Ending = iota
	AllHolders        // of whatever mode, the key's own row included
	Sharers           // that share the key, and whose end leaves a mark
)

// A Plan is what is to be written of a key, in the order of its fields. The zero Plan writes
// nothing.
type Plan struct {
	End   Ending
	Own   *Row  // what the owner's row becomes: the holder, or the last that shares the key, or that waits
	Key   *Row  // what the key's own row becomes
	Wrote int64 // with Key: the largest fence granted Exclusive; for a driver that takes proposals

	OwnUntil, KeyUntil time.Duration // how long the owner's row, and the key's, last at least; 0: as before
	Fence              int64         // with them: what their fence is at least; for a driver that takes proposals

	Leave *Leaving
}

// Leaving is what the key's own row has to say when an owner that shared the key has gone.
type Leaving struct {
	Until time.Duration // when its lease would have ended
	Mark  bool          // its end leaves a mark
}

// Fences returns the fence of a grant, and how many the grant has with those just below it,
// which no other grant had.
type Fences func(v *View, r voting.VoteRequest) (fence int64, fences int, err error)

// Try decides on a Try, and says what to write. The error is that of choose.
func (v *View) Try(r voting.VoteRequest, now Now, choose Fences) (driver.Result, Plan, error) {
	switch v.Decide(r, now) {
	case Grant:
		return v.grant(r, now, choose)
	case Extend:
		return v.extend(r, now, choose)
	case Convert:
		res, p := v.convert(r, now)
		return res, p, nil
	case TooLow:
		return v.TooLow(r, now), Plan{}, nil
	case Join:
		return v.Refused(r, now, v.Hears), v.join(r, now), nil
	case Touch:
		return v.Refused(r, now, v.Hears), Plan{OwnUntil: now.After(r.Patience)}, nil
	}
	return v.Refused(r, now, v.Hints), Plan{}, nil
}

func (v *View) granted(fence int64, until time.Duration, now Now) driver.Result {
	return driver.Result{Granted: true, Fence: uint64(fence), TTL: until - now.At, Run: v.Run}
}

func (v *View) extend(r voting.VoteRequest, now Now, choose Fences) (res driver.Result, p Plan, err error) {
	p = Plan{Fence: v.Own.Fence, OwnUntil: max(v.Own.Expires, now.After(r.TTL))}
	if v.raises(r) {
		if p.Fence, _, err = choose(v, r); err != nil {
			return res, Plan{}, err
		}
	}
	res = v.granted(p.Fence, p.OwnUntil, now)
	res.Slot, res.Abandoned = v.Own.Slot, v.Holder.Mark
	if v.Shared() {
		res.Abandoned, p.KeyUntil = v.Own.Mark, p.OwnUntil
	}
	return res, p, nil
}

// grant is for a key that is free, or shared with room for another owner.
func (v *View) grant(r voting.VoteRequest, now Now, choose Fences) (driver.Result, Plan, error) {
	fence, fences, err := choose(v, r)
	if err != nil {
		return driver.Result{}, Plan{}, err
	}
	res := v.granted(fence, now.After(r.TTL), now)
	res.Fences, res.Abandoned = fences, v.abandoned(now.At)
	own := &Row{Kind: Held, Owner: r.Owner, Label: r.Label, Mode: r.Mode, Fence: fence, Since: now.At, Expires: now.After(r.TTL)}
	p := Plan{Own: own}
	if v.Holder.Kind != "" && !v.Holder.Live(now.At) {
		p.End = AllHolders
	}
	if r.Mode == driver.Shared {
		key := Row{Since: now.At}
		if v.Holder.Live(now.At) {
			if key = v.Holder; key.Limit > 0 {
				p.End, res.Abandoned = Sharers, res.Abandoned || v.Ended
			}
		}
		key.Fence, key.Expires = max(int64(v.Newest()), fence), max(key.Expires, own.Expires)
		key.Limit, key.Mark = least(v.Beside, r.Limit), res.Abandoned && r.Limit == 0
		p.Key, p.Wrote = &key, v.Wrote
		res.Slot = freeSlot(v.Beside, r.Limit)
		own.Limit, own.Slot = r.Limit, res.Slot
	}
	own.Mark = res.Abandoned
	return res, p, nil
}

// convert makes the holder share the key. It keeps its fence, and the mark that it took over is
// cleared.
func (v *View) convert(r voting.VoteRequest, now Now) (driver.Result, Plan) {
	own := Row{Kind: Held, Owner: r.Owner, Label: r.Label, Mode: driver.Shared, Limit: r.Limit,
		Fence: v.Own.Fence, Since: v.Own.Since, Expires: max(v.Own.Expires, now.After(r.TTL))}
	key := Row{Fence: max(int64(v.Newest()), own.Fence), Since: own.Since, Expires: own.Expires, Limit: r.Limit}
	return v.granted(own.Fence, own.Expires, now), Plan{Own: &own, Key: &key, Wrote: v.Wrote}
}

// join puts an owner at the end of the queue. Where its lease is over, its row becomes its place,
// so the key's own has to keep what it says. A reader's says nothing: the rows that leave a mark
// stay beside its place, as long as fences are remembered.
func (v *View) join(r voting.VoteRequest, now Now) (p Plan) {
	p.Own = &Row{Kind: Queued, Owner: r.Owner, Label: r.Label, Since: now.At, Expires: now.After(r.Patience), Mode: r.Mode, Limit: limit(r.Claim)}
	switch own := v.Own; {
	case own.Kind != Held:
	case v.Mode(r.Owner) == driver.Exclusive:
		p.Key, p.Wrote = &Row{Fence: own.Fence, Since: own.Since, Expires: own.Expires, Mark: true}, own.Fence
	case own.Limit > 0:
		p.End, p.Leave = Sharers, &Leaving{Mark: true}
	}
	return p
}

// limit is how many may hold the key with c, 0 for any number, or for c alone.
func limit(c driver.Claim) int {
	if c.Mode == driver.Shared {
		return c.Limit
	}
	return 0
}

// Renew prolongs what an owner has; wanted is Renewal.Wanted. Of a key that is shared its own row lasts as
// long.
func (v *View) Renew(r driver.RenewRequest, now Now, wanted bool) (driver.Renewal, Plan) {
	own := v.Own
	switch {
	case r.Queue:
		return v.RenewPlace(r, now)
	case own.Kind != Held || !own.Live(now.At) || own.Label != r.Label || uint64(own.Fence) < r.Fence:
		return driver.Renewal{Err: driver.ErrNotHeld}, Plan{}
	}
	p := Plan{OwnUntil: max(own.Expires, now.After(r.TTL))}
	if v.Mode(r.Owner) == driver.Shared {
		p.KeyUntil = p.OwnUntil
	}
	return driver.Renewal{TTL: p.OwnUntil - now.At, Wanted: wanted}, p
}

// RenewPlace prolongs a place. An owner whose turn it is should ask at once.
func (v *View) RenewPlace(r driver.RenewRequest, now Now) (driver.Renewal, Plan) {
	if !v.Own.Live(now.At) || v.Own.Kind != Queued || v.Own.Label != r.Label {
		return driver.Renewal{Err: driver.ErrNotHeld}, Plan{}
	}
	hints, p := v.Hints, Plan{}
	if v.Own.WorthWriting(r.Patience, now.At) {
		p.OwnUntil, hints = now.After(r.Patience), v.Hears
	}
	return driver.Renewal{RetryIn: v.Refusal(r.Claim, now, hints).RetryIn}, p
}

// Depart says what the key's own row has to say of a lease that was given up. Of a place there is
// nothing to say.
func (r Row) Depart(end driver.End, now Now) Plan {
	switch marks := r.leaves(end); {
	case r.Fence == 0:
		return Plan{}
	case r.Mode == driver.Shared:
		return Plan{Leave: &Leaving{Until: r.Expires, Mark: marks}}
	case marks:
		return Plan{Key: &Row{Fence: r.Fence, Since: now.At, Expires: now.At, Mark: true}, Wrote: r.Fence}
	}
	return Plan{}
}

// leaves reports whether the end of a lease leaves the mark of Result.Abandoned.
func (r Row) leaves(end driver.End) bool {
	switch {
	case r.Mode == driver.Shared && r.Limit == 0: // it only read
		return false
	case end == driver.EndUnused:
		return r.Mark
	}
	return end == driver.EndUnfinished
}

// Refused is the refusal of a Vote; hints as in Refusal.
func (v *View) Refused(r voting.VoteRequest, now Now, hints bool) driver.Result {
	res := v.Refusal(r.Claim, now, hints)
	if r.Proposal != 0 {
		res.Fence = v.Floor(r.Mode, now)
	}
	return res
}

// Refusal says what is in the way of a claim. Where its place gets hints, now that the answer is
// written, it asks again only for the end of a lease, of which there is none.
func (v *View) Refusal(c driver.Claim, now Now, hints bool) driver.Result {
	res := driver.Result{Why: driver.WhyHeld, Ahead: v.Ahead, Run: v.Run}
	switch {
	case !v.Own.Live(now.At):
	case v.Own.Kind == Held:
		res.Ahead = 0
	case v.Own.Kind == Gone:
		res.Why = driver.WhyReleased
	}
	var held time.Duration
	if v.Holder.Live(now.At) {
		held, res.Left = now.At-v.Holder.Since, v.opens(c)-now.At
		switch {
		case !v.Shared():
			res.Holder = v.Holder.Holder(now)
		case len(v.Beside) > 0:
			res.Holder = v.Beside[0].Holder(now)
		}
	}
	switch {
	case !hints && !v.Behind:
		res.RetryIn = nextLook(v.Ahead, held, res.Left, v.Took)
	case v.Ahead == 0:
		res.RetryIn = max(res.Left, time.Millisecond)
	}
	return res
}

// TooLow is the refusal of a fence.
func (v *View) TooLow(r voting.VoteRequest, now Now) driver.Result {
	lowest := v.Floor(r.Mode, now)
	if v.Own.Live(now.At) && v.Own.Kind == Held { // beside others its own may be above what is compared
		lowest = max(lowest, uint64(v.Own.Fence))
	}
	return driver.Result{Why: voting.FenceTooLow, Fence: lowest, Run: v.Run}
}

// opens is when c can have the key if none of its holders renews. A claim that only has to wait
// for others in the queue can when the last lease ends.
func (v *View) opens(c driver.Claim) time.Duration {
	if c.Mode == driver.Shared && !room(v.Beside, 0, c.Limit) {
		beside := slices.SortedFunc(slices.Values(v.Beside), func(a, b Row) int { return cmp.Compare(a.Expires, b.Expires) })
		for i, h := range beside {
			if room(beside[i+1:], 0, c.Limit) {
				return h.Expires
			}
		}
	}
	return v.Holder.Expires
}

// The rhythm of waiting; see nextLook.
const (
	lookFirst = 5 * time.Millisecond
	lookLate  = 25 * time.Millisecond
	lookLast  = time.Second
)

// nextLook is when a waiter without hints should ask again, so it polls: soon for a key that was
// granted a moment ago, every 25 ms for a key that has been held for long. It waits longer the
// more are before it, since each of them must ask first; so the sum of all polls grows with the
// logarithm of the queue, and the last of many still asks soon after its turn has come. For each
// before it, it waits for as long as it took to ask, at least: else many waiters use up a pool of
// connections, or a slow server, that the next holder needs.
func nextLook(ahead int, held, left, took time.Duration) time.Duration {
	in := min(max(held/4, lookFirst), lookLate)
	if ahead > 0 {
		in = max(in, took) * time.Duration(ahead+1)
	}
	if ahead == 0 && left > 0 {
		in = min(in, left)
	}
	return max(min(in, lookLast), time.Millisecond)
}
