// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
)

// asks are words about a request.
var asks = map[string]func(p *player, r *contend.Owner, value string){
	"brief":   func(p *player, r *contend.Owner, _ string) { *r = p.brief(*r) }, // a TTL and a patience that the case waits to end
	"mortal":  func(p *player, r *contend.Owner, _ string) { r.TTL = p.ttl },    // such a TTL only
	"half":    func(p *player, r *contend.Owner, _ string) { r.TTL = p.long / 2 },
	"quarter": func(p *player, r *contend.Owner, _ string) { r.TTL = p.long / 4 },
	"longer":  func(p *player, r *contend.Owner, _ string) { r.TTL = 2 * p.long },
	"endless": func(p *player, r *contend.Owner, _ string) { r.TTL = p.endless() },
	"ttl": func(p *player, r *contend.Owner, value string) {
		if r.TTL = p.traits.MinTTL; value != "min" {
			r.TTL = time.Duration(number(value))
		}
	},
	"queued":     func(_ *player, r *contend.Owner, _ string) { r.Queue = true },
	"settled":    func(_ *player, r *contend.Owner, _ string) { r.Settled = true },
	"unused":     func(_ *player, r *contend.Owner, _ string) { r.End = driver.EndUnused },
	"unfinished": func(_ *player, r *contend.Owner, _ string) { r.End = driver.EndUnfinished },
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
		i, hostile := strings.CutPrefix(value, "hostile")
		switch {
		case hostile:
			r.Label = hostileLabels[number(i)]
		case value == "long":
			r.Label += " "
		case value == "short":
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
		why, ok := map[string]driver.Why{"held": driver.WhyHeld, "released": driver.WhyReleased, "low": voting.FenceTooLow,
			"notvoting": voting.NotVoting, "toolong": voting.TTLTooLong}[want]
		return ok && res.Why == why
	},
	"by": func(p *player, _, want string, res driver.Result) bool { // any one of them
		return !res.Holder.Foreign && slices.ContainsFunc(strings.Split(want, ","), func(name string) bool {
			return sameOwner(p.owners[name])(driver.Holding{Holder: res.Holder})
		})
	},
	"left": func(p *player, _, want string, res driver.Result) bool {
		return plausible(res.Left, 0) && (want == "" || res.Left <= p.limit(want))
	},
	"after": func(p *player, _, want string, _ driver.Result) bool { // not before that lease has ended
		return time.Since(p.terms[want].from) >= sure(p.terms[want].ttl)
	},
	"lasts": func(p *player, _, _ string, res driver.Result) bool { // nearly as long as a lease can
		most := p.endless()
		return plausible(res.Left, most-most/10) && plausible(res.TTL, most-most/10) && res.RetryIn >= 0
	},
	"someday": func(_ *player, _, _ string, res driver.Result) bool { return res.RetryIn >= 0 },
	"most":    func(p *player, _, want string, res driver.Result) bool { return res.TTL == p.limit(want) },
	"usual":   func(p *player, _, _ string, res driver.Result) bool { return res.Left <= p.long },
	"clean":   func(_ *player, _, _ string, res driver.Result) bool { return !res.Abandoned },
	"full":    func(p *player, _, _ string, res driver.Result) bool { return plausible(res.Left, p.long/2) },
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
	"from", "shown", "perhaps", "over", "on", "twice", "faulty", "short", "alone", "for", "unsure", "quietly", "via",
	"won", "deaf", "renewing", "claim", "text", "unread", "waits", "new", "live", "dead", "lossy", "forgetful", "soon", "asking", "unsupported"}

// ownersVerbs are done by each owner of a step.
var ownersVerbs = map[string]func(p *player, s step, name string, r contend.Owner){
	"grant": func(p *player, s step, name string, r contend.Owner) {
		p.granted(s, name, p.grant(p.client(name), r))
	},
	"refuse": func(p *player, s step, name string, r contend.Owner) {
		if released, ok := p.released[name]; ok {
			p.gone.Store(&released)
			defer p.gone.Store(nil)
		}
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
	"inherit": func(p *player, s step, name string, r contend.Owner) { // asks until a lease has expired, while another is renewed
		var res driver.Result
		p.eventually(cmp.Or(p.limit(s.says["in"]), p.ttl), s.text, func() bool {
			if other := s.says["renewing"]; other != "" {
				p.renewed(p.client(other), p.brief(p.owner(other)))
			}
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
	"record":     func(p *player, s step, name string, _ contend.Owner) { p.noted(s, name) },
	"unadmitted": func(p *player, s step, name string, _ contend.Owner) { p.unadmitted(s, name) },
	"run":        func(p *player, s step, name string, r contend.Owner) { p.runs(s, name, r) },
	"passes": func(p *player, s step, name string, _ contend.Owner) { // the store's clock a fence
		p.eventually(time.Minute, s.text, func() bool {
			return p.minted.fence+uint64(time.Since(p.minted.from).Microseconds()) > p.fences[name]
		})
	},
	"hand": func(p *player, s step, name string, r contend.Owner) { // "from" releases, and this one is told its lease
		from := s.says["from"]
		r = entering(r)
		to := p.hand(p.client(name), p.client(from), ending(p.owner(from), r.End), r)
		r.End, p.owners[name], p.handed[name] = driver.EndFinished, r, to
		p.granted(s, name, driver.Result{Granted: true, Fence: to.Fence, Abandoned: to.Abandoned})
	},
	"unhanded": func(p *player, _ step, name string, _ contend.Owner) { // of all hints that have come
		for {
			select {
			case h := <-p.ears[name].ch:
				if h.Handover.Fence != 0 {
					p.Fatalf("%s was handed nothing, and is told %+v", name, h.Handover)
				}
			default:
				return
			}
		}
	},
	"dally": func(p *player, _ step, name string, _ contend.Owner) { // for longer than what it was handed lasts
		time.Sleep(p.handed[name].TTL * 3 / 2)
	},
	"listen": func(p *player, _ step, name string, r contend.Owner) { p.ears[name] = p.listen(p.client(name), r) },
	"await": func(p *player, s step, name string, r contend.Owner) { // joins, and asks again only on a hint; "deaf": gets none
		w := &listener{d: p.client(name), r: r, ch: make(chan driver.Hint)}
		if _, deaf := s.says["deaf"]; !deaf {
			w = p.listen(w.d, r)
		}
		p.ears[name] = w
		res := p.join(w.d, r, p.ahead(name))
		p.see(w, res)
		p.is(s, name, res)
	},
	"cannot": func(p *player, s step, name string, r contend.Owner) { // the engine does not know how, or must not
		_, unsupported := s.says["unsupported"]
		res, err := contend.Try(p.ctx, p.client(name), r)
		if err == nil || unsupported && !errors.Is(err, driver.ErrUnsupported) {
			p.Fatalf("%s: %+v, %v, want an error", s.text, res, err)
		}
	},
	"watch": func(p *player, _ step, name string, r contend.Owner) {
		ctx, cancel := context.WithCancel(p.ctx)
		p.ends[name] = cancel
		p.watchUntil(ctx, p.client(name), r)
	},
	"release": func(p *player, s step, name string, r contend.Owner) {
		p.mu.Lock()
		if _, again := p.released[name]; !again {
			p.released[name] = time.Now()
		}
		p.mu.Unlock()
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
		if _, won := s.says["won"]; won && !slices.Contains(p.won, name) {
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
		leases := append(info.Holders, driver.Holding{Holder: info.Holder, Fence: info.Fence, Left: info.Left}) // the first one twice
		leases = slices.DeleteFunc(leases, func(l driver.Holding) bool { return !sameOwner(r)(l) })
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
		info := p.heldBy(r)
		if p.left = cmp.Or(info.Left, p.long); p.traits.Shared && (info.Leases != 1 || info.Holder.Mode != r.Mode) {
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
			p.is(s, name, driver.Result{Granted: true})
		}
	},
	"come": func(p *player, s step) { // those that were refused at once enter, and the others have the key
		var refused []*listener
		for _, name := range s.owners {
			if res := p.came[name][0]; !res.Granted {
				p.see(p.ears[name], res)
				refused = append(refused, p.ears[name])
			}
			p.served(name)
		}
		p.enterIn(0, refused...)
	},
	"won": func(p *player, s step) { // at once: one alone or, of those that share the key, as many as may be
		p.won = nil
		limit, slots := p.owner(s.owners[0]).Limit, make(map[int]bool) // by number: whether there may be such a slot
		for _, name := range s.owners {
			all := p.came[name]
			for _, res := range all[1:] {
				if !all[0].Granted || !res.Granted || res.Fence != all[0].Fence {
					p.Fatalf("copies of one request: %+v", all)
				}
			}
			if res := all[0]; res.Granted {
				p.granted(s, name, res)
				p.won = append(p.won, name)
				slots[res.Slot] = slots[res.Slot] || res.Slot >= 0 && res.Slot < max(limit, 1)
			}
		}
		ok := len(p.won) > 0 && (limit == 0 || len(p.won) == limit && len(slots) == limit)
		for _, name := range p.won {
			ok = ok && (p.owner(name).Mode == driver.Shared || len(p.won) == 1)
		}
		for _, valid := range slots {
			ok = ok && valid
		}
		if !ok {
			p.Fatalf("at once the key was granted to %v, with the slots %v", p.won, slots)
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
	"unleft":  func(p *player, s step) { p.unleft(s) },
	"gone":    func(p *player, s step) { p.goneFrom(p.limit(s.says["in"])) },
	"outage":  func(p *player, _ step) { p.outage.begin(p.ttl / 2) }, // of the clients that are faulty
	"empty":   func(p *player, _ step) { p.goesAway() },              // soon, of all keys
	"node":    func(p *player, _ step) { p.node() },
	"restart": func(p *player, _ step) { p.restart()() },
	"reload":  func(p *player, _ step) { p.reload()() },
	"flush":   func(p *player, _ step) { p.flush()() },
	"forget":  func(p *player, _ step) { p.anyWay()() },
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
	"live": func(p *player, s step) { // leases or places, with signs of life for three times their TTL or patience
		sign := func() {
			for _, name := range s.owners {
				switch r := p.request(s, name); s.says["via"] {
				case "lease":
					if a := p.renewed(p.client(name), r); a.TTL <= 0 {
						p.Fatalf("%s was renewed for %v", name, a.TTL)
					}
				case "renew":
					p.renewed(p.client(name), queued(r))
				default:
					p.refuse(p.client(name), queued(r))
				}
			}
		}
		for start := time.Now(); time.Since(start) < 3*p.ttl; time.Sleep(p.ttl / 4) {
			sign()
		}
		sign()
	},
	"pause": func(p *player, _ step) { time.Sleep(p.ttl + p.ttl/4) },
	"until": func(p *player, s step) { // so many wait or hold, in the time of a lease; or the key is an owner's to claim
		most := cmp.Or(p.limit(s.says["in"]), p.ttl)
		if _, soon := s.says["soon"]; soon {
			most = 0
		}
		p.eventually(most, s.text, func() bool {
			info := p.inspect(p.keyOf(s))
			if name := s.says["claim"]; name != "" {
				return !info.Held && info.Waiters <= 1 || info.Holder.Owner == p.owner(name).Owner
			}
			return strconv.Itoa(info.Waiters) == cmp.Or(s.says["waiters"], strconv.Itoa(info.Waiters)) &&
				strconv.Itoa(info.Leases) == cmp.Or(s.says["holds"], strconv.Itoa(info.Leases))
		})
		p.is(s, "", driver.Result{})
	},
	"listed": func(p *player, s step) { // those that hold the key in the order of their grants, as Inspect and List show them
		info := p.inspect(p.keyOf(s))
		all := p.list("")
		in, shown := all[info.Key]
		ok := info.Leases == len(s.owners) && len(info.Holders) == info.Leases && shown == info.Held && in.Leases == info.Leases && in.Held == info.Held &&
			in.Holder.Mode == info.Holder.Mode && in.Waiters == info.Waiters && info.Key == p.keyOf(s)
		if len(s.owners) == 0 {
			ok = ok && !info.Held && info.Holder.Owner == "" && len(info.Queue) == 0 && len(all) == 0
		} else {
			ok = ok && info.Holder == info.Holders[0].Holder && info.Fence == info.Holders[0].Fence
		}
		for i, name := range s.owners {
			r := p.owner(name)
			ok = ok && sameOwner(r)(info.Holders[i]) && info.Holders[i].Holder.Mode == r.Mode && plausible(info.Holders[i].Left, 0) &&
				(info.Holders[i].Fence == 0 || info.Holders[i].Fence == p.fences[name])
		}
		if !ok {
			p.Fatalf("want %v, Inspect says %+v and List %+v", s.owners, info, in)
		}
		p.is(s, "", driver.Result{Granted: true, TTL: in.Left})
	},
}

// race carries out steps at once: each owner of each has a goroutine. The answers are as the verbs and the words of the steps say,
// and "won" and "come" look at them.
func (p *player) race(steps []step) {
	p.Helper()
	p.came = make(map[string][]driver.Result)
	var requests, judges []func()
	for _, s := range steps {
		for _, name := range s.owners {
			p.as(s, name, func(d driver.Driver, r contend.Owner) {
				if s.verb == "asks" {
					p.news[name] = newNews()
					r.Wanted = p.news[name].tell
				}
				var res driver.Result
				var err error
				requests = append(requests, func() { res, err = p.send(s, d, r) })
				judges = append(judges, func() {
					if err != nil {
						p.Fatalf("%s of %s: %v", s.verb, name, err)
					}
					p.raced(s, name, res)
				})
			})
		}
	}
	atOnce(requests...)
	for _, judge := range judges {
		judge()
	}
}

// send sends a request of a step that happens beside others.
func (p *player) send(s step, d driver.Driver, r contend.Owner) (res driver.Result, err error) {
	switch s.verb {
	case "ask", "refuse":
		return contend.Try(p.ctx, d, r)
	case "convert":
		return contend.Try(p.ctx, d, converting(r))
	case "release":
		return res, contend.Release(p.ctx, d, r)
	case "asks":
		contend.Renew(p.ctx, d, []contend.Owner{r}, func(_ int, a driver.Renewal) {
			if err = a.Err; a.Wanted {
				r.Wanted()
			}
		})
		return res, err
	}
	panic(fmt.Sprintf("the step %q cannot happen beside others", s.text))
}

// raced judges an answer of a step that happened beside others.
func (p *player) raced(s step, name string, res driver.Result) {
	p.Helper()
	p.came[name] = append(p.came[name], res)
	switch {
	case s.verb == "release":
		p.served(name)
	case s.verb == "convert" && res.Granted && res.Fence == p.fences[name]:
		o := p.owners[name]
		o.Mode = driver.Shared
		p.owners[name] = o
	case s.verb == "convert" || s.verb == "refuse" && res.Granted:
		p.Fatalf("%s: %+v", s.text, res)
	}
	p.is(s, name, res)
}
