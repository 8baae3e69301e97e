// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
)

// What a sequence asks for, by a letter each.
const (
	opTry     = 't'
	opQueue   = 'q'
	opConvert = 'v'
	opRenew   = 'n'
	opKeep    = 'k' // the place in the queue
	opRelease = 'r'
	opGiveUp  = 'g' // a Release that a Try may come after
	opAbandon = 'a' // a Release of one that did not finish
	opUnused  = 'u'

	opLow     = 'l' // a Try with a fence that is not above the last one
	opRaise   = 'e' // a Try that raises the fence
	opRestore = 's' // a Try that restores the lease with the last fence
	opUpTo    = 'o' // a Release of all but a lease with a larger fence than the first one

	opShort = '.' // the claim times have passed
	opLong  = '_' // the leases and the places have expired
)

const (
	equalTTL      = 60500 * time.Millisecond // between whole seconds: which is first at the very moment is the engine's affair
	equalPatience = 40500 * time.Millisecond
	equalMaxTTL   = 61 * time.Second
	shortGap      = maxClaim + time.Second
	longGap       = 61 * time.Second
)

// sequence lists requests: in "AtBq .Ar" A tries, B queues, the claim times pass,
// and A release.
type sequence string

// sequences are all of n requests, but those that differ from another by who is who.
func sequences(modes string, n int, node bool) (all []sequence) {
	ops := "tqvnkrgau"
	if node {
		ops += "leso"
	}
	var extend func(seq sequence)
	extend = func(seq sequence) {
		if len(seq) == 2*n {
			all = append(all, seq)
			return
		}
		if len(seq) > 0 {
			extend(seq + " .")
			extend(seq + " _")
		}
		for i := range modes {
			who := string(rune('A' + i))
			twin := strings.LastIndexByte(modes[:i], modes[i])
			asked := strings.Contains(string(seq), who)
			if !asked && twin >= 0 && !strings.Contains(string(seq), string(rune('A'+twin))) {
				continue
			}
			for _, op := range ops {
				begins := op == opTry || op == opQueue || op == opGiveUp || op == opRestore
				if (asked || begins) && (op != opConvert || modes[i] == 'X') {
					extend(seq + sequence(who) + sequence(op))
				}
			}
		}
	}
	extend("")
	return all
}

func (s sequence) at(i int) (who int, op byte) { return int(s[2*i]) - 'A', s[2*i+1] }

// gaps is when time passes.
func (s sequence) gaps() string {
	gaps := make([]byte, len(s)/2)
	for i := range gaps {
		if _, op := s.at(i); op == opShort || op == opLong {
			gaps[i] = op
		} else {
			gaps[i] = '-'
		}
	}
	return string(gaps)
}

// course is a sequence on one store.
type course struct {
	seq    sequence
	modes  string
	owners []contend.Owner
	had    []uint64 // the fence of each owner
	seen   []uint64 // all fences
	heard  string   // the last answer, and the state after it
	over   bool     // from here on the engines may differ
}

func newCourse(seq sequence, modes, key string) *course {
	c := &course{seq: seq, modes: modes, had: make([]uint64, len(modes))}
	for i, m := range modes {
		r := contend.Owner{
			Key: key, Owner: strings.Repeat(string(rune('A'+i)), driver.OwnerLen), Label: "{}",
			TTL: equalTTL, Patience: equalPatience,
		}
		if m != 'X' {
			r.Mode = driver.Shared
		}
		if m == '1' || m == '2' {
			r.Limit = int(m - '0')
		}
		c.owners = append(c.owners, r)
	}
	return c
}

// contender is a store, with a client of each owner.
type contender struct {
	node bool
	ds   []driver.Driver
}

// step continues a course with its i-th request.
func (x *contender) step(t *testing.T, c *course, i int, now time.Time) {
	t.Helper()
	if c.over {
		return
	}
	c.heard = ""
	if who, op := c.seq.at(i); op != opShort && op != opLong {
		c.heard = x.ask(t.Context(), c, who, op, uint64(now.UnixMicro())+1000+uint64(i))
	}
	if 2*i+2 == len(c.seq) && !c.over { // what came before is a sequence of its own
		info, err := x.ds[0].Inspect(t.Context(), c.owners[0].Key)
		c.heard += c.state(info, err)
	}
}

func (x *contender) ask(ctx context.Context, c *course, who int, op byte, fence uint64) (heard string) {
	d, r := x.ds[who], c.owners[who]
	switch op {
	case opTry, opQueue, opLow, opRaise, opRestore, opConvert:
		r.Queue = op == opQueue
		if x.node {
			r.Fence = fence
		}
		switch op {
		case opLow:
			if r.Fence = fence - 3_600_000_000; len(c.seen) > 0 {
				r.Fence = slices.Max(c.seen)
			}
		case opRaise:
			r.Raise = true
		case opRestore:
			r.Restore, r.Fence = true, max(c.had[who], 1)
		case opConvert:
			r.Mode, r.Convert, r.Fence = driver.Shared, true, 0
		}
		res, err := contend.Try(ctx, d, r)
		if res.Granted && op == opConvert {
			c.owners[who].Mode = driver.Shared
		}
		if res.Granted {
			c.had[who] = res.Fence
		}
		c.over = res.Why == voting.FenceTooLow && r.Queue // this owner may be in the queue then
		return c.tried(res, err)
	case opRenew, opKeep:
		r.Queue = op == opKeep
		if x.node && !r.Queue {
			r.Fence = c.had[who]
		}
		contend.Renew(ctx, d, []contend.Owner{r}, func(_ int, a driver.Renewal) {
			heard = fmt.Sprint(said(a.Err), " ", a.TTL, " wanted ", a.Wanted)
		})
		return heard
	}
	r.Settled = op != opGiveUp
	switch op {
	case opAbandon:
		r.End = driver.EndUnfinished
	case opUnused:
		r.End = driver.EndUnused
	case opUpTo:
		if r.UpTo = 1; len(c.seen) > 0 {
			r.UpTo = c.seen[0]
		}
	}
	return said(contend.Release(ctx, d, r))
}

func (c *course) tried(res driver.Result, err error) string {
	switch {
	case err != nil:
		return "error: " + err.Error()
	case res.Granted:
		return fmt.Sprintf("granted %s x%d for %v slot %d abandoned %v", c.name(res.Fence), max(res.Fences, 1), res.TTL, res.Slot, res.Abandoned)
	case res.Why == voting.FenceTooLow: // what else it says is the engine's affair
		return "too low"
	}
	return fmt.Sprintf("refused %d ahead %d left %v holder %s", res.Why, res.Ahead, left(res.Left), any1(res.Holder))
}

// name distinguishes fences, and says whether one is not above earlier ones.
func (c *course) name(fence uint64) string {
	i := slices.Index(c.seen, fence)
	switch {
	case fence == 0:
		return "none"
	case i >= 0:
		return fmt.Sprint("f", i)
	}
	down := ""
	if len(c.seen) > 0 && fence < slices.Max(c.seen) {
		down = " down"
	}
	c.seen = append(c.seen, fence)
	return fmt.Sprint("f", len(c.seen)-1, down)
}

// left is what is left: an engine gives as long as it likes to claim the key.
func left(d time.Duration) string {
	if 0 < d && d <= maxClaim {
		return "a claim"
	}
	return d.String()
}

func who(h driver.Holder) string {
	if h.Owner == "" {
		return "nobody"
	}
	return fmt.Sprintf("%.1s mode %d limit %d slot %d", h.Owner, h.Mode, h.Limit, h.Slot)
}

// any1 is the holder that a refusal names: any of them, where they share the key.
func any1(h driver.Holder) string {
	if h.Mode == driver.Shared {
		return "a sharer"
	}
	return who(h)
}

func (c *course) state(info driver.Info, err error) string {
	if err != nil {
		return "\nerror: " + err.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d hold", info.Leases)
	slices.SortFunc(info.Holders, func(a, b driver.Holding) int { return strings.Compare(a.Holder.Owner, b.Holder.Owner) }) // those of one moment are in no order
	for _, h := range info.Holders {
		if left := left(h.Left); left == "a claim" { // and has its fence when the engine likes
			fmt.Fprintf(&b, "; %s claims it", who(h.Holder))
		} else {
			fmt.Fprintf(&b, "; %s %s %v", who(h.Holder), c.name(h.Fence), left)
		}
	}
	fmt.Fprintf(&b, ", %d wait", info.Waiters)
	for _, h := range info.Queue {
		fmt.Fprintf(&b, "; %s", who(h))
	}
	return b.String()
}

func said(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, driver.ErrNotHeld):
		return "not held"
	}
	return "error: " + err.Error()
}
