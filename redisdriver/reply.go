// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// answer is what try.lua says.
type answer struct {
	granted   bool
	fence     uint64 // of a refusal: what a proposal must be above, or 0
	fences    int    // how many were granted
	abandoned bool   // a previous holder did not finish
	slot      int
	lasts     time.Duration // 0: as long as was asked
	waited    time.Duration // since it was handed the key; 0: it was not

	why   driver.Why
	most  time.Duration // with TTLTooLong
	value string        // of the holder
	left  time.Duration // or free, or forever
	ahead int
	grant grant
	next  int64         // what became of the search for the next in the queue: nextFound…
	at    time.Duration // the server's clock, of a Try that queues
	keeps bool          // a holder would give the key back

	kind string // the lock key holds something of this type
}

// What try.lua says of the next in the queue.
const (
	nextFound  = iota // or was not looked for
	nextMute          // it could not get a hint
	nextMore          // the search goes on with the next call
	nextHanded        // it has the key now
)

func parseTry(v any) (answer, error) {
	var a answer
	if text, ok := v.(string); ok { // of a key that was free: all else is as usual
		fence, err := strconv.ParseUint(text, 10, 64)
		if err != nil || fence == 0 {
			return answer{}, wire.ErrReply
		}
		return answer{granted: true, fence: fence, fences: 1}, nil
	}
	r := wire.NewReply(v)
	switch code := wire.Next[int64](r); code {
	case 1:
		a.granted = true
		a.fence = parseFence(wire.Next[string](r), r)
		a.abandoned = wire.Next[int64](r) == 1
		a.lasts = wire.Span(wire.Next[int64](r))
		a.fences = int(wire.Next[int64](r))
		a.waited = wire.Span(wire.Next[int64](r))
		if len(r.Fields) > 0 {
			a.slot = int(wire.Next[int64](r))
		}
		r.Bad = r.Bad || a.fences < 1
	case -1:
		a.kind = wire.Next[string](r)
		r.Bad = r.Bad || a.kind == ""
	case 4:
		a.why = driver.NotVoting
	case 5:
		a.why = driver.TTLTooLong
		a.most = wire.Span(wire.Next[int64](r))
	case 2, 3, 0:
		switch code {
		case 2:
			a.why = driver.Released
		case 3:
			a.why = driver.FenceTooLow
		}
		a.value = wire.Next[string](r)
		a.left = wire.Span(wire.Next[int64](r))
		a.ahead = int(wire.Next[int64](r))
		a.grant = parseGrant(wire.Next[string](r))
		a.next = wire.Next[int64](r)
		switch least := wire.Next[string](r); least {
		case "":
		case "keeps":
			a.keeps = true
		default:
			var err error // of a key without fences it is 0
			a.fence, err = strconv.ParseUint(least, 10, 64)
			r.Bad = r.Bad || err != nil
		}
		if len(r.Fields) > 0 {
			a.at = time.Duration(parseFence(wire.Next[string](r), r)) * time.Microsecond
		}
	default:
		r.Bad = true
	}
	if r.Bad || len(r.Fields) > 0 {
		return answer{}, wire.ErrReply
	}
	return a, nil
}

func parseFence(s string, r *wire.Reply) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	r.Bad = r.Bad || err != nil || n == 0
	return n
}

// grant is the head of a grant record, see queue.lua, or of one of the leases of
// a key that is shared, see key.lua.
type grant struct {
	owner string
	fence uint64
	since time.Time
	state byte // 'h', 'm', 'c', 'H', 'M', 'C'; 0 when there is no record of a holder

	mode  driver.Mode
	limit int
	slot  int
}

// parseGrant reads the first 59 bytes of a grant record, and behind them limit
// and slot of a lease that is shared; anything else is no record.
func parseGrant(s string) grant {
	if len(s) > 59 {
		g := parseGrant(s[:59])
		limit, slot, ok := strings.Cut(s[60:], " ")
		slot, _, _ = strings.Cut(slot, " ") // what else the lease says
		var err, err2 error
		g.mode = driver.Shared
		g.limit, err = strconv.Atoi(limit)
		g.slot, err2 = strconv.Atoi(slot)
		if s[59] != ' ' || !ok || err != nil || err2 != nil || g.state == 0 {
			return grant{}
		}
		return g
	}
	if len(s) != 59 || s[26] != ' ' || s[43] != ' ' || s[57] != ' ' || !driver.ValidOwner(s[:26]) {
		return grant{}
	}
	fence, err := strconv.ParseUint(s[27:43], 10, 64)
	ms, err2 := strconv.ParseUint(s[44:57], 10, 63)
	if err != nil || err2 != nil {
		return grant{}
	}
	switch s[58] {
	case 'C':
		fence = 0 // of a holder before
		fallthrough
	case 'h', 'm', 'c', 'H', 'M':
		return grant{owner: s[:26], fence: fence, since: time.UnixMilli(int64(ms)), state: s[58]}
	}
	return grant{}
}

// holder adds what the grant record knows, if it is about this holder.
func (g grant) holder(value string) driver.Holder {
	h := holderOf(value)
	if !h.Foreign && h.Owner == g.owner && h.Owner != "" {
		h.Since, h.Mode, h.Limit, h.Slot = g.since, g.mode, g.limit, g.slot
	}
	return h
}

// refusal turns the answer of a Try that was not granted into a Result.
func (a answer) refusal(hinted bool) driver.Result {
	r := driver.Result{Why: a.why, Fence: a.fence, Ahead: a.ahead, Keeps: a.keeps}
	switch a.why {
	case driver.NotVoting:
		r.RetryIn = pollMax
		return r
	case driver.TTLTooLong:
		r.TTL = a.most
		return r
	case driver.FenceTooLow:
		r.RetryIn = lookAfter
		return r
	case driver.Held, driver.Released:
	}
	if a.left != wire.Free {
		r.Holder = a.grant.holder(a.value)
		r.Left = max(a.left, 0)
	}
	if a.why == driver.Held {
		r.RetryIn = a.retryIn(r, hinted)
	}
	return r
}

// looksAfterClaim: the client that handed the key over sees whether it is claimed, and may
// have lost the answer that says so, or asked again: the few behind that waiter look, too.
func (a answer) looksAfterClaim() bool {
	return a.ahead <= 3 && (a.grant.state == 'c' || a.grant.state == 'C')
}

// retryIn says when to try again without a hint. Only the first in the queue looks
// after the holder; a waiter that gets no hints has to poll.
func (a answer) retryIn(r driver.Result, hinted bool) time.Duration {
	expiry := lookAfter
	if a.left != wire.Forever { // 0: it ends within this millisecond
		expiry = a.left + time.Millisecond
	}
	silent := r.Holder.Foreign || a.grant.state == 'm' || a.grant.state == 'M' || a.grant.owner != r.Holder.Owner
	switch {
	case a.next == nextMore:
		return moreAfter
	case a.left == wire.Free || a.next == nextMute: // free, but not for us: the next in the queue could not get a hint
		return lookAfter
	case !hinted:
		return min(expiry, pollStep*time.Duration(a.ahead+1), pollMax)
	case a.ahead > 0 && a.next != nextHanded && !a.looksAfterClaim():
		return 0
	case silent:
		return min(expiry, lookAfter)
	}
	return expiry
}
