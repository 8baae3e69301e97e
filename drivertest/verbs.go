// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// asks are words about a request.
var asks = map[string]func(p *player, r *contend.Owner, value string){
	"brief":      func(p *player, r *contend.Owner, _ string) { *r = p.brief(*r) }, // a TTL and a patience whose end the case waits for
	"mortal":     func(p *player, r *contend.Owner, _ string) { r.TTL = p.ttl },    // such a TTL only
	"half":       func(p *player, r *contend.Owner, _ string) { r.TTL = p.long / 2 },
	"quarter":    func(p *player, r *contend.Owner, _ string) { r.TTL = p.long / 4 },
	"longer":     func(p *player, r *contend.Owner, _ string) { r.TTL = 2 * p.long },
	"queued":     func(_ *player, r *contend.Owner, _ string) { r.Queue = true },
	"settled":    func(_ *player, r *contend.Owner, _ string) { r.Settled = true },
	"unused":     func(_ *player, r *contend.Owner, _ string) { r.End = driver.Unused },
	"unfinished": func(_ *player, r *contend.Owner, _ string) { r.End = driver.Unfinished },
	"exclusive":  func(_ *player, r *contend.Owner, _ string) { r.Mode, r.Limit = driver.Exclusive, 0 },
	"sharing":    func(_ *player, r *contend.Owner, _ string) { r.Mode = driver.Shared },
	"converting": func(_ *player, r *contend.Owner, _ string) { *r = converting(*r) },
	"limit":      func(_ *player, r *contend.Owner, value string) { r.Limit = number(value) },
	"fences":     func(_ *player, r *contend.Owner, value string) { r.Fences = number(value) },
	"at":         func(p *player, r *contend.Owner, value string) { r.Fence = p.fence(value) }, // the fence that the owner proposes; in a Renew, its fence
	"upto":       func(p *player, r *contend.Owner, value string) { r.UpTo = p.fence(value) },
	"raise":      func(_ *player, r *contend.Owner, _ string) { r.Raise = true },
	"restore":    func(_ *player, r *contend.Owner, _ string) { r.Restore = true },
	"keeping":    func(_ *player, r *contend.Owner, _ string) { r.Keeps = true },
	"entering":   func(_ *player, r *contend.Owner, _ string) { *r = entering(*r) },
	"label": func(p *player, r *contend.Owner, value string) {
		switch value {
		case "long":
			r.Label += " "
		case "short":
			r.Label = r.Label[:len(r.Label)-1]
		default:
			r.Label = cmp.Or(p.owners[value].Label, value) // another's
		}
	},
}

// answers are words about an answer, which must be so.
var answers = map[string]func(p *player, name, want string, res driver.Result) bool{
	"ahead": func(p *player, name, want string, res driver.Result) bool {
		if want == "waiting" { // all others that wait by now
			return res.Ahead == p.inspect(p.key(name)).Waiters-1
		}
		return strconv.Itoa(res.Ahead) == want
	},
	"slot": func(_ *player, _, want string, res driver.Result) bool { return strconv.Itoa(res.Slot) == want },
	"why": func(_ *player, _, want string, res driver.Result) bool {
		why, ok := map[string]driver.Why{"held": driver.Held, "released": driver.Released, "low": driver.FenceTooLow,
			"notvoting": driver.NotVoting, "toolong": driver.TTLTooLong}[want]
		return ok && res.Why == why
	},
	"by": func(p *player, _, want string, res driver.Result) bool { // any one of them
		return !res.Holder.Foreign && slices.ContainsFunc(strings.Split(want, ","), func(name string) bool {
			return sameOwner(p.owners[name])(driver.Lease{Holder: res.Holder})
		})
	},
	"left": func(p *player, _, want string, res driver.Result) bool {
		return plausible(res.Left, 0) && (want == "" || res.Left <= p.limit(want))
	},
	"most":  func(p *player, _, want string, res driver.Result) bool { return res.TTL == p.limit(want) },
	"usual": func(p *player, _, _ string, res driver.Result) bool { return res.Left <= p.long },
	"clean": func(_ *player, _, _ string, res driver.Result) bool { return !res.Abandoned },
	"full":  func(p *player, _, _ string, res driver.Result) bool { return plausible(res.Left, p.long/2) },
	"longer": func(p *player, _, _ string, res driver.Result) bool {
		return !res.Granted || res.TTL > p.long
	},
	"lasting": func(p *player, _, _ string, res driver.Result) bool { return res.TTL > p.ttl },
	"same":    func(p *player, name, _ string, res driver.Result) bool { return res.Fence == p.fences[name] },
	"rises": func(p *player, name, _ string, res driver.Result) bool {
		return !p.traits.Fencing || res.Fence > p.newest[p.key(name)]
	},
	"is": func(p *player, _, want string, res driver.Result) bool { return res.Fence == p.fence(want) },
	"least": func(p *player, _, want string, res driver.Result) bool {
		return res.Fence != 0 && res.Fence >= p.fence(want)
	},
	"above": func(p *player, _, want string, res driver.Result) bool { return res.Fence > p.fence(want) },
	"later": func(p *player, _, want string, res driver.Result) bool {
		return !p.traits.Fencing || res.Fence > p.fence(want)
	},
	"below": func(p *player, _, want string, res driver.Result) bool { return res.Fence < p.fence(want) },
	"got":   func(_ *player, _, want string, res driver.Result) bool { return strconv.Itoa(res.Fences) == want },
	"once":  func(_ *player, _, _ string, res driver.Result) bool { return res.Fences <= 1 },
	"row": func(p *player, _, want string, res driver.Result) bool { // no more fences than these, all above that one
		most, before, _ := strings.Cut(want, "/")
		return res.Fences <= number(most) && res.Fence-uint64(max(res.Fences, 1)) >= p.fence(before)
	},
	"handed":   func(_ *player, _, _ string, res driver.Result) bool { return res.Handoff > 0 },
	"claimed":  func(_ *player, _, _ string, res driver.Result) bool { return res.Handoff == 0 },
	"keeps":    func(_ *player, _, _ string, res driver.Result) bool { return res.Keeps },
	"unkept":   func(_ *player, _, _ string, res driver.Result) bool { return !res.Keeps },
	"marked":   func(p *player, _, _ string, res driver.Result) bool { return p.marksRight(res, true) },
	"unmarked": func(p *player, _, _ string, res driver.Result) bool { return p.marksRight(res, false) },
	"wakes": func(p *player, _, want string, res driver.Result) bool { // when to ask again: until then
		return res.RetryIn > 0 && res.RetryIn <= p.limit(want)
	},
}

// others are words that a verb itself looks at.
var others = []string{"elsewhere", "spread", "here", "fresh", "names", "times", "in", "gone", "wanted", "unwanted", "waiters", "holds",
	"from", "shown", "perhaps", "over", "on", "twice", "faulty", "short", "alone", "for", "unsure", "quietly", "via"}

// ownersVerbs are done by each owner of a step.
var ownersVerbs = map[string]func(p *player, s step, name string, r contend.Owner){
	"grant": func(p *player, s step, name string, r contend.Owner) {
		p.granted(s, name, p.grant(p.client(name), r))
	},
	"refuse": func(p *player, s step, name string, r contend.Owner) {
		p.is(s, name, p.refuse(p.client(name), r))
	},
	"ask": func(p *player, s step, name string, r contend.Owner) { // whatever comes of it
		p.is(s, name, p.try(p.client(name), r))
	},
	"join": func(p *player, s step, name string, r contend.Owner) {
		p.is(s, name, p.join(p.client(name), r, p.ahead(name)))
	},
	"turn": func(p *player, s step, name string, r contend.Owner) { // asks with the queue until it is granted
		p.granted(s, name, p.turn(p.client(name), r, p.limit(s.says["in"])))
	},
	"inherit": func(p *player, s step, name string, r contend.Owner) { // asks until a lease has expired
		var res driver.Result
		p.eventually(cmp.Or(p.limit(s.says["in"]), p.ttl), s.text, func() bool {
			if over := s.says["over"]; over != "" { // neither a newcomer nor this one, that is behind it, is granted the key
				behind := p.owner(over)
				newcomer := p.ask(behind.Key)
				newcomer.Mode = behind.Mode
				p.refuse(p.client(over), queued(behind))
				p.refuse(p.client(over), newcomer)
			}
			res = p.try(p.client(name), r)
			return res.Granted
		})
		p.granted(s, name, res)
	},
	"beside": func(p *player, s step, name string, r contend.Owner) { // a holder converted, and this owner joins it
		p.granted(s, name, p.beside(p.client(name), r))
	},
	"convert": func(p *player, s step, name string, r contend.Owner) {
		p.granted(s, name, p.convert(p.client(name), r, p.fences[name]))
		o := p.owners[name]
		o.Mode, o.Limit = driver.Shared, r.Limit
		p.owners[name] = o
	},
	"exact": func(p *player, s step, name string, r contend.Owner) { // with the proposed fence, which the store shows
		res := p.grant(p.client(name), r)
		if _, other := s.says["is"]; !other && r.Fence != 0 && res.Fence != r.Fence {
			p.Fatalf("%s proposed %d, granted the fence %d", name, r.Fence, res.Fence)
		}
		if p.granted(s, name, res); r.Mode == driver.Shared {
			p.holdsFence(r, res.Fence)
		} else if info := p.heldBy(r); info.Fence != 0 && info.Fence != res.Fence {
			p.Fatalf("the fence is %d, and %d to Inspect", res.Fence, info.Fence)
		}
	},
	"heldback": func(p *player, _ step, name string, r contend.Owner) { p.heldBack(p.client(name), r) },
	"hear": func(p *player, _ step, name string, r contend.Owner) { // of an engine that promises hints
		d := p.client(name)
		p.ears[name] = &listener{d: d, r: r, ch: p.hints(d, r)}
	},
	"hinted": func(p *player, _ step, name string, _ contend.Owner) { p.hinted(p.ears[name].ch) },
	"silent": func(p *player, _ step, name string, _ contend.Owner) {
		select {
		case <-p.ears[name].ch:
			p.Fatalf("%s got a hint", name)
		default:
		}
	},
	"heed": func(p *player, s step, name string, r contend.Owner) { // asks on hints until it is granted
		p.eventually(0, s.text, func() bool {
			p.hinted(p.ears[name].ch)
			return p.try(p.client(name), queued(r)).Granted
		})
	},
	"unwatch": func(p *player, _ step, name string, _ contend.Owner) { p.ends[name]() },
	"asks": func(p *player, _ step, name string, r contend.Owner) { // a Renew with Wanted
		p.news[name] = p.asks(p.client(name), r)
	},
	"untold": func(p *player, _ step, name string, _ contend.Owner) {
		if n := p.news[name].n.Load(); n != 0 {
			p.Fatalf("%s was told %d times of what does not concern it", name, n)
		}
	},
	"single": func(p *player, _ step, name string, _ contend.Owner) {
		if n := p.news[name].n.Load(); n != 1 {
			p.Fatalf("%s was told %d times, want once", name, n)
		}
	},
	"hand": func(p *player, s step, name string, r contend.Owner) { // "from" releases, and this one is told its lease
		from := s.says["from"]
		r = entering(r)
		to := p.hand(p.client(name), p.client(from), ending(p.owner(from), r.End), r)
		r.End, p.owners[name], p.handed[name] = driver.Finished, r, to
		p.granted(s, name, driver.Result{Granted: true, Fence: to.Fence, Abandoned: to.Abandoned})
	},
	"unhanded": func(p *player, _ step, name string, r contend.Owner) {
		if to, ok := p.client(name).(driver.Hander).Handed(r.Claim()); ok {
			p.Fatalf("%s was handed nothing, and is told %+v", name, to)
		}
	},
	"dally": func(p *player, _ step, name string, _ contend.Owner) { // for longer than what it was handed lasts
		time.Sleep(p.handed[name].TTL * 3 / 2)
	},
	"await": func(p *player, _ step, name string, r contend.Owner) { // joins, and asks again only on a hint
		p.ears[name] = p.await(p.client(name), r, p.ahead(name))
	},
	"watch": func(p *player, _ step, name string, r contend.Owner) {
		ctx, cancel := context.WithCancel(p.ctx)
		p.ends[name] = cancel
		p.watchUntil(ctx, p.client(name), r)
	},
	"release": func(p *player, s step, name string, r contend.Owner) {
		switch how, gone := s.says["gone"]; {
		case how == "once": // whatever the store has in hand
			if err := contend.Release(p.ctx, p.client(name), r); !errors.Is(err, driver.ErrNotHeld) {
				p.Fatalf("Release of %q: %v, want ErrNotHeld", r.Key, err)
			}
			return
		case gone:
			p.releaseNothing(p.client(name), r)
			return
		}
		_, perhaps := s.says["perhaps"]
		_, quietly := s.says["quietly"]
		switch {
		case perhaps:
			_ = contend.Release(p.ctx, p.client(name), r) // it may have kept its place, or not
		case quietly:
			p.releaseQuietly(p.client(name), r)
		default:
			p.release(p.client(name), r)
		}
		p.served(name)
	},
	"renew": func(p *player, s step, name string, r contend.Owner) { // with "queued", a sign of life of a place
		if _, gone := s.says["gone"]; gone {
			p.renewNothing(p.client(name), r)
			return
		}
		if _, unsure := s.says["unsure"]; unsure {
			p.renewUnknown(p.client(name), r)
			return
		}
		a := p.renewed(p.client(name), r)
		p.is(s, name, driver.Result{Granted: true, TTL: a.TTL, RetryIn: a.RetryIn})
		_, wanted := s.says["wanted"]
		if _, unwanted := s.says["unwanted"]; wanted && !a.Wanted || unwanted && a.Wanted {
			p.Fatalf("the renewal of %s says Wanted: %v", name, a.Wanted)
		}
	},
	"outlasts": func(p *player, _ step, name string, r contend.Owner) { p.outlasts(r, name) }, // the brief TTL
	"has": func(p *player, s step, name string, r contend.Owner) { // its lease, as the store shows it
		info := p.inspect(r.Key)
		leases := append(info.Holders, driver.Lease{Holder: info.Holder, Fence: info.Fence, Left: info.Left}) // the first one twice
		leases = slices.DeleteFunc(leases, func(l driver.Lease) bool { return !sameOwner(r)(l) })
		if _, perhaps := s.says["perhaps"]; len(leases) == 0 && perhaps { // it has ended
			p.judged = true
			return
		}
		if len(leases) == 0 {
			p.Fatalf("%s does not hold %q: %+v", name, r.Key, info)
		}
		for _, l := range leases {
			if _, shown := s.says["shown"]; shown && l.Fence == 0 {
				p.Fatalf("the fence of %s is not shown: %+v", name, l)
			}
			if limit := s.says["limit"]; limit != "" && strconv.Itoa(l.Holder.Limit) != limit {
				p.Fatalf("the Limit of %s is not %s: %+v", name, limit, l)
			}
			p.is(s, name, driver.Result{Granted: l.Left != 0, TTL: l.Left, Fence: cmp.Or(l.Fence, p.fences[name]), Slot: l.Holder.Slot, Left: l.Left})
		}
	},
}

// verbs are about all owners of a step, or a key.
var verbs = map[string]func(p *player, s step){
	"renewals": func(p *player, s step) { // in one Renew
		_, want := s.says["wanted"]
		for i, a := range p.renew(p.d, p.all(s)...) {
			if a.Err != nil || a.Wanted != want {
				p.Fatalf("the renewal of %s: %+v, want Wanted: %v", s.owners[i], a, want)
			}
		}
	},
	"held": func(p *player, s step) {
		r := p.owner(s.owners[0])
		if info := p.heldBy(r); p.traits.Shared && (info.Holds != 1 || info.Holder.Mode != r.Mode) {
			p.Fatalf("%q is not held by one in the mode %v: %+v", r.Key, r.Mode, info)
		}
	},
	"shared": func(p *player, s step) { p.sharedBy(p.all(s)...) },
	"free":   func(p *player, s step) { p.free(p.keyOf(s)) },
	"waits": func(p *player, s step) { // without owners: no owner does
		info := p.inspect(p.keyOf(s))
		same := slices.EqualFunc(info.Queue, p.all(s), func(h driver.Holder, r contend.Owner) bool {
			return h.Owner == r.Owner && h.Label == r.Label && h.Mode == r.Mode && h.Limit == r.Limit
		})
		if info.Waiters != len(s.owners) || !same {
			p.Fatalf("%d wait, want %v: %+v", info.Waiters, s.owners, info.Queue)
		}
	},
	"enter": func(p *player, s step) { // each asks on a hint only, until all are granted the key
		p.enterIn(p.limit(s.says["in"]), p.listeners(s)...)
		for _, name := range s.owners {
			p.served(name)
		}
	},
	"serve": func(p *player, s step) { // each after all behind it asked
		for i, name := range s.owners {
			for _, later := range slices.Backward(s.owners[i+1:]) {
				p.refuse(p.client(later), queued(p.owner(later)))
			}
			r := p.owner(name)
			p.turn(p.client(name), r, 0)
			p.heldBy(r)
			p.release(p.client(name), r)
			p.served(name)
		}
	},
	"quiet": func(p *player, s step) { p.quiet(p.listeners(s)...) },
	"told": func(p *player, s step) { // each, of a join
		var all []*news
		for _, name := range s.owners {
			all = append(all, p.news[name])
		}
		p.told(all...)
	},
	"stands":  func(p *player, s step) { p.stands(s) },
	"gone":    func(p *player, s step) { p.goneFrom(p.limit(s.says["in"])) },
	"outage":  func(p *player, _ step) { p.outage.begin(p.ttl / 2) }, // of the clients that are faulty
	"empty":   func(p *player, _ step) { p.goesAway() },              // soon, of all keys
	"node":    func(p *player, _ step) { p.node() },
	"restart": func(p *player, _ step) { p.restart()() },
	"reload":  func(p *player, _ step) { p.reload()() },
	"flush":   func(p *player, _ step) { p.flush()() },
	"forget":  func(p *player, _ step) { p.anyWay()() },
	"noted":   func(p *player, _ step) { p.env.waits(p.node()) },
	"admit":   func(p *player, s step) { p.admitted(p.node(), cmp.Or(p.limit(s.says["for"]), p.traits.MaxTTL)) },
	"unheld": func(p *player, s step) {
		if info := p.inspect(p.keyOf(s)); info.Held {
			p.Fatalf("%q is held: %+v", info.Key, info)
		}
	},
	"collide": func(p *player, _ step) { p.askForNames() },
	"idle": func(p *player, _ step) { // no event to wait for: time must pass
		if p.fake {
			time.Sleep(48 * time.Hour)
			return
		}
		time.Sleep(2 * p.ttl)
	},
	"expires": func(p *player, s step) { p.expires(p.keyOf(s)) },
	"live": func(p *player, s step) { // places, with signs of life for three times their patience
		sign := func() {
			for _, name := range s.owners {
				if r := queued(p.request(s, name)); s.says["via"] == "renew" {
					p.renewed(p.client(name), r)
				} else {
					p.refuse(p.client(name), r)
				}
			}
		}
		for start := time.Now(); time.Since(start) < 3*p.ttl; time.Sleep(p.ttl / 4) {
			sign()
		}
		sign()
	},
	"until": func(p *player, s step) { // so many wait or hold, in the time of a lease
		p.eventually(p.ttl, s.text, func() bool {
			info := p.inspect(p.keyOf(s))
			return strconv.Itoa(info.Waiters) == cmp.Or(s.says["waiters"], strconv.Itoa(info.Waiters)) &&
				strconv.Itoa(info.Holds) == cmp.Or(s.says["holds"], strconv.Itoa(info.Holds))
		})
	},
}
