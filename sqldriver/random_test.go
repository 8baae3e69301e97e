// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// model is the rule of one key in plain words, against which the statements are
// held.
type model struct {
	holders, queue []*part
	mark           bool
	newest         uint64
}

// part is a lease or a place.
type part struct {
	r      contend.Owner
	until  time.Duration
	slot   int
	marked bool
	fence  uint64 // 0: the lease is new
}

func (p *part) reads() bool { return p.r.Mode == driver.Shared && p.r.Limit == 0 }

func (p *part) last(until time.Duration) { p.until = max(p.until, until) }

// sign is the sign of life of a place.
func (p *part) sign(now time.Duration) {
	if (rules.Row{Expires: p.until}).WorthWriting(p.r.Patience, now) {
		p.last(now + p.r.Patience)
	}
}

func find(parts []*part, r contend.Owner) int {
	return slices.IndexFunc(parts, func(p *part) bool { return p.r.Owner == r.Owner })
}

// expire returns those that have ended.
func (m *model) expire(now time.Duration) (over []contend.Owner) {
	ends := func(p *part) bool {
		if p.until <= now {
			over = append(over, p.r)
		}
		return p.until <= now
	}
	m.queue = slices.DeleteFunc(m.queue, ends)
	m.holders = slices.DeleteFunc(m.holders, func(h *part) bool {
		m.mark = m.mark || h.until <= now && !h.reads()
		return ends(h)
	})
	return over
}

// admits says whether r, with so many before it in the queue, can have the key now.
func (m *model) admits(r contend.Owner, ahead int) bool {
	others := slices.Concat(m.holders, m.queue[:ahead])
	if r.Mode == driver.Exclusive {
		return len(others) == 0
	}
	limit := r.Limit
	for _, p := range others {
		if p.r.Mode == driver.Exclusive {
			return false
		}
		if p.r.Limit > 0 && (limit == 0 || p.r.Limit < limit) {
			limit = p.r.Limit
		}
	}
	return limit == 0 || len(others) < limit
}

// try returns the lease that a Try is granted, or how many are before r in the queue.
func (m *model) try(r contend.Owner, now time.Duration) (granted *part, ahead int) {
	if h := find(m.holders, r); h >= 0 {
		p := m.holders[h]
		switch {
		case r.Convert && p.r.Mode == driver.Exclusive:
			r.Convert = false
			p.r, p.marked = r, false
		case !r.Convert && p.r.Mode != r.Mode:
			return nil, 0
		}
		p.last(now + r.TTL)
		return p, 0
	}
	place := find(m.queue, r)
	if ahead = place; place < 0 {
		ahead = len(m.queue)
	}
	switch {
	case r.Convert:
	case m.admits(r, ahead):
		if place >= 0 {
			m.queue = slices.Delete(m.queue, place, place+1)
		}
		return m.grant(r, now), 0
	case r.Queue && place < 0:
		m.queue = append(m.queue, &part{r: r, until: now + r.Patience})
	case r.Queue:
		m.queue[place].sign(now)
	}
	return nil, ahead
}

func (m *model) grant(r contend.Owner, now time.Duration) *part {
	p := &part{r: r, until: now + r.TTL, marked: m.mark}
	taken := func(h *part) bool { return h.r.Limit > 0 && h.slot == p.slot }
	for r.Limit > 0 && slices.ContainsFunc(m.holders, taken) {
		p.slot++
	}
	m.mark = m.mark && p.reads()
	m.holders = append(m.holders, p)
	return p
}

func (m *model) release(r contend.Owner) {
	if i := find(m.queue, r); i >= 0 {
		m.queue = slices.Delete(m.queue, i, i+1)
		return
	}
	i := find(m.holders, r)
	p := m.holders[i]
	m.mark = m.mark || !p.reads() && (r.End == driver.EndUnfinished || r.End == driver.EndUnused && p.marked)
	m.holders = slices.Delete(m.holders, i, i+1)
}

// check fails unless Inspect says what the model does.
func (m *model) check(t *testing.T, info driver.Info, now time.Duration) {
	t.Helper()
	var got, want strings.Builder
	for _, l := range info.Holders {
		fmt.Fprintln(&got, l.Holder.Owner, l.Holder.Mode, l.Holder.Limit, l.Holder.Slot, l.Left, l.Fence)
	}
	for _, p := range m.holders {
		fmt.Fprintln(&want, p.r.Owner, p.r.Mode, p.r.Limit, p.slot, p.until-now, p.fence)
	}
	for _, h := range info.Queue {
		fmt.Fprintln(&got, h.Owner, h.Mode, h.Limit)
	}
	for _, p := range m.queue {
		fmt.Fprintln(&want, p.r.Owner, p.r.Mode, p.r.Limit)
	}
	if got.String() != want.String() {
		t.Fatalf("Inspect says\n%swant\n%s", got.String(), want.String())
	}
}

// mixed is a driver and what it must do.
type mixed struct {
	*testing.T
	*rand.Rand
	d      *Driver
	clock  *machine
	m      model
	before []contend.Owner // whose leases and places are over
}

// ask is a Try, and compares the answer.
func (x *mixed) ask(r contend.Owner) {
	x.Helper()
	m, now := &x.m, x.clock.up
	holds := find(m.holders, r) >= 0
	got := try(x, x.d, r)
	x.Logf("%v: %+v: %+v", now, r, got)
	p, ahead := m.try(r, now)
	switch {
	case got.Granted != (p != nil):
		x.Fatalf("%+v: %+v, want granted: %v", r, got, p != nil)
	case p == nil:
		if !holds && got.Ahead != ahead {
			x.Fatalf("%+v: %+v, want %d ahead", r, got, ahead)
		}
		return
	case p.fence == 0 && got.Fence > m.newest:
		m.newest, p.fence = got.Fence, got.Fence
	}
	if got.Slot != p.slot || got.Abandoned != p.marked || got.TTL != p.until-now || got.Fence != p.fence {
		x.Fatalf("%+v: %+v, want %+v", r, got, p)
	}
}

// known continues a lease or a place.
func (x *mixed) known(p *part, holds bool) {
	x.Helper()
	r := p.r
	switch x.IntN(6) {
	case 0, 1:
		r.Settled, r.End = x.IntN(2) == 0, driver.End(x.IntN(3))
		must(x, contend.Release(x.Context(), x.d, r))
		x.m.release(r)
		x.Logf("%v: release %+v", x.clock.up, r)
		if !r.Settled {
			refused(x, x.d, queued(r))
			x.before = slices.DeleteFunc(x.before, func(b contend.Owner) bool { return b.Owner == r.Owner })
		}
	case 2:
		r.Queue = !holds
		a := renewed(x, x.d, r)
		x.Logf("%v: renew %+v: %+v", x.clock.up, r, a)
		if !holds {
			p.sign(x.clock.up)
			return
		}
		p.last(x.clock.up + r.TTL)
		if a.TTL != p.until-x.clock.up || a.Wanted != (len(x.m.queue) > 0) {
			x.Fatalf("Renew: %+v, want %v, and %d wait", a, p.until-x.clock.up, len(x.m.queue))
		}
	case 3:
		x.ask(converting(r, x.IntN(3)))
	case 4:
		if holds {
			r.Mode = 1 - r.Mode
		}
		x.ask(queued(r))
	default:
		x.ask(r)
	}
}

func (x *mixed) fresh() contend.Owner {
	if n := len(x.before); n > 0 && x.IntN(3) == 0 {
		return x.before[x.IntN(n)]
	}
	r := request("k")
	r.TTL, r.Patience = time.Duration(x.IntN(4)+1)*time.Second, time.Duration(x.IntN(3)+1)*time.Second
	r.Queue = x.IntN(3) > 0
	if x.IntN(3) > 0 {
		r.Mode, r.Limit = driver.Shared, x.IntN(4)
	}
	return r
}

// Rule: whatever clients do, in whichever order, each gets the answer that the
// rule of the lock demands, and the tables say who has the key and who waits.
func TestRandomModes(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	clock := newMachine("one")
	x := &mixed{T: t, Rand: rand.New(rand.NewPCG(seed, 0)), clock: clock, d: clock.open(t, newFile(t))}
	start := clock.up
	for clock.up-start < rules.KeepFence { // so that no mark is forgotten
		if x.IntN(3) == 0 {
			clock.pass(time.Duration(x.Int64N(int64(800 * time.Millisecond))))
		}
		x.before = append(x.before, x.m.expire(clock.up)...)
		parts := slices.Concat(x.m.holders, x.m.queue)
		if i := x.IntN(len(parts) + 3); i < len(parts) {
			x.known(parts[i], i < len(x.m.holders))
		} else {
			x.ask(x.fresh())
		}
		x.m.check(t, inspect(t, x.d, "k"), clock.up)
	}
}
