// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// A trace is what a case does and what must come of it, in steps with ";" between them:
//
//	grant a; join r1; join r2; join w; release a; shared r1 r2; release r1 r2; turn w
//
// A step is a verb, owners, and words that say more. An owner is a letter and perhaps a number: r1 is a reader, s1/3 one
// that shares the key with a Limit of 3, any other asks Exclusive; b@other is one of the key "other" instead of "k". r1..r9
// are nine. An owner asks on the first client, or on another one in a step that is "elsewhere", a new one each; "elsewhere=r1",
// that of r1; "spread", the first and two others by turns: for this step, but from then on if it is the owner's first.
// "here" is the first client for such an owner. "queue?" before a verb: a step for engines that have a queue.
// "20 times" in front: the rest is played so often, by fresh owners; "100/1000 times": more often with a fake clock.
type step struct {
	text, given, verb string
	owners            []string
	says              map[string]string // words, and what is behind their "="
}

var (
	ownerName  = regexp.MustCompile(`^([a-z])\d*(?:/(\d+))?(?:@(\S+))?$`)
	ownerRange = regexp.MustCompile(`^([a-z])(\d+)\.\.[a-z](\d+)(\S*)$`)
	given      = map[string]Need{"queue": needQueue, "handoff": needHandoff, "slots": needSlots, "fencing": needFencing, "hints": needHints}
)

func parse(trace string) (steps []step) {
	for text := range strings.SplitSeq(trace, ";") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		s := step{text: strings.Join(strings.Fields(text), " "), says: make(map[string]string)}
		for _, f := range strings.Fields(text) {
			word, value, _ := strings.Cut(f, "=")
			switch m := ownerRange.FindStringSubmatch(f); {
			case s.verb == "" && strings.HasSuffix(f, "?"):
				s.given = strings.TrimSuffix(f, "?")
			case s.verb == "":
				s.verb = f
			case ownerName.MatchString(f):
				s.owners = append(s.owners, f)
			case m != nil:
				from, _ := strconv.Atoi(m[2])
				to, _ := strconv.Atoi(m[3])
				for i := min(from, to); i <= max(from, to); i++ {
					s.owners = append(s.owners, m[1]+strconv.Itoa(i)+m[4])
				}
				if from > to {
					slices.Reverse(s.owners)
				}
			case asks[word] == nil && answers[word] == nil && !slices.Contains(others, word):
				panic(fmt.Sprintf("the step %q: what is %q?", s.text, f))
			default:
				s.says[word] = value
			}
		}
		steps = append(steps, s)
	}
	return steps
}

// asks are words about a request.
var asks = map[string]func(e *env, r *contend.Owner, value string){
	"brief":      func(e *env, r *contend.Owner, _ string) { *r = e.brief(*r) }, // a TTL and a patience whose end the case waits for
	"mortal":     func(e *env, r *contend.Owner, _ string) { r.TTL = e.ttl },    // such a TTL only
	"longer":     func(e *env, r *contend.Owner, _ string) { r.TTL = 2 * e.long },
	"queued":     func(_ *env, r *contend.Owner, _ string) { r.Queue = true },
	"settled":    func(_ *env, r *contend.Owner, _ string) { r.Settled = true },
	"unused":     func(_ *env, r *contend.Owner, _ string) { r.End = driver.Unused },
	"unfinished": func(_ *env, r *contend.Owner, _ string) { r.End = driver.Unfinished },
	"exclusive":  func(_ *env, r *contend.Owner, _ string) { r.Mode, r.Limit = driver.Exclusive, 0 },
	"sharing":    func(_ *env, r *contend.Owner, _ string) { r.Mode = driver.Shared },
	"converting": func(_ *env, r *contend.Owner, _ string) { *r = converting(*r) },
	"limit":      func(_ *env, r *contend.Owner, value string) { r.Limit, _ = strconv.Atoi(value) },
	"fences":     func(_ *env, r *contend.Owner, value string) { r.Fences, _ = strconv.Atoi(value) },
	"label": func(_ *env, r *contend.Owner, value string) {
		switch value {
		case "long":
			r.Label += " "
		case "short":
			r.Label = r.Label[:len(r.Label)-1]
		default:
			r.Label = value
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
		return res.Why == map[string]driver.Why{"held": driver.Held, "released": driver.Released}[want]
	},
	"by": func(p *player, _, want string, res driver.Result) bool { // any one of them
		return !res.Holder.Foreign && slices.ContainsFunc(strings.Split(want, ","), func(name string) bool {
			return sameOwner(p.owners[name])(driver.Lease{Holder: res.Holder})
		})
	},
	"left": func(p *player, _, want string, res driver.Result) bool {
		return plausible(res.Left, 0) && (want == "" || res.Left <= p.limit(want))
	},
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
	"marked":   func(p *player, _, _ string, res driver.Result) bool { return p.abandonedRight(res.Abandoned, true) },
	"unmarked": func(p *player, _, _ string, res driver.Result) bool { return p.abandonedRight(res.Abandoned, false) },
	"wakes": func(p *player, _, want string, res driver.Result) bool { // when to ask again: until then
		return res.RetryIn > 0 && res.RetryIn <= p.limit(want)
	},
}

// others are words that a verb itself looks at.
var others = []string{"elsewhere", "spread", "here", "times", "in", "gone", "wanted", "unwanted", "waiters", "holds"}

// each is some steps for each value: # is the value, #+1 the number after it.
func each(values []string, steps string) (trace string) {
	for _, v := range values {
		n, _ := strconv.Atoi(v)
		trace += strings.NewReplacer("#+1", strconv.Itoa(n+1), "#", v).Replace(steps) + ";"
	}
	return trace
}

// rounds are the numbers from 0 to n-1.
func rounds(n int) (numbers []string) {
	for i := range n {
		numbers = append(numbers, strconv.Itoa(i))
	}
	return numbers
}

// player plays a trace.
type player struct {
	*env
	owners  map[string]contend.Owner
	pool    []driver.Driver          // the first client, and two more
	calls   int                      // how many owners were spread over these
	clients map[string]driver.Driver // of owners that asked elsewhere
	ears    map[string]*listener
	fences  map[string]uint64   // of owners that were granted a key
	newest  map[string]uint64   // the largest fence of a key
	queues  map[string][]string // those in the queue of a key, in order
}

// play plays a trace, up to the first step that does not hold.
func (e *env) play(trace string) {
	p := &player{env: e, newest: make(map[string]uint64)}
	steps, times := parse(trace), 1
	if _, ok := steps[0].says["times"]; ok {
		few, many, _ := strings.Cut(steps[0].verb, "/")
		if e.fake {
			few = cmp.Or(many, few)
		}
		times, _ = strconv.Atoi(few)
		steps = steps[1:]
	}
	for range times {
		p.owners, p.clients, p.ears = make(map[string]contend.Owner), make(map[string]driver.Driver), make(map[string]*listener)
		p.fences, p.queues = make(map[string]uint64), make(map[string][]string)
		for i, s := range steps {
			*e.at = fmt.Sprintf("step %d of the trace, %q", i+1, s.text)
			if n, ok := given[s.given]; ok && !n.Met(e.d) {
				continue
			}
			if p.does(s); e.Failed() || e.void.Load() {
				return
			}
		}
	}
	*e.at = ""
}

func (p *player) does(s step) {
	if all := verbs[s.verb]; all != nil {
		all(p, s)
		return
	}
	one := ownersVerbs[s.verb]
	if one == nil {
		panic(fmt.Sprintf("the step %q: what does it do?", s.text))
	}
	for _, name := range s.owners {
		own := p.clients[name]
		_, known := p.owners[name]
		p.moves(s, name)
		if one(p, s, name, p.request(s, name)); known {
			p.clients[name] = own
		}
	}
}

// moves lets an owner use the client of a step.
func (p *player) moves(s step, name string) {
	beside, elsewhere := s.says["elsewhere"]
	_, spread := s.says["spread"]
	_, here := s.says["here"]
	switch {
	case beside != "":
		p.clients[name] = p.client(beside)
	case elsewhere:
		p.clients[name] = p.open()
	case spread:
		if p.pool == nil {
			p.pool = []driver.Driver{p.d, p.open(), p.open()}
		}
		p.clients[name] = p.pool[p.calls%len(p.pool)]
		p.calls++
	case here:
		p.clients[name] = p.d
	}
}

func (p *player) client(name string) driver.Driver { return cmp.Or(p.clients[name], p.d) }

// key is that of an owner, or of "@other".
func (p *player) key(name string) string {
	_, key, _ := strings.Cut(name, "@")
	return cmp.Or(key, "k")
}

// owner is an owner, fresh where the trace has not named it before.
func (p *player) owner(name string) contend.Owner {
	r, ok := p.owners[name]
	if !ok {
		m := ownerName.FindStringSubmatch(name)
		if r = p.ask(p.key(name)); m[1] == "r" || m[2] != "" {
			limit, _ := strconv.Atoi(m[2])
			r = sharing(r, limit)
		}
		p.owners[name] = r
	}
	return r
}

func (p *player) request(s step, name string) contend.Owner {
	r := p.owner(name)
	for _, word := range slices.Sorted(maps.Keys(s.says)) {
		if ask := asks[word]; ask != nil {
			ask(p.env, &r, s.says[word])
		}
	}
	return r
}

// all are the owners of a step.
func (p *player) all(s step) (rs []contend.Owner) {
	for _, name := range s.owners {
		rs = append(rs, p.owner(name))
	}
	return rs
}

// limit is a time that a trace names.
func (p *player) limit(in string) time.Duration {
	return map[string]time.Duration{"": 0, "ttl": p.ttl, "3ttl": 3 * p.ttl, "long": p.long}[in]
}

// is fails unless an answer is what the step says.
func (p *player) is(s step, name string, res driver.Result) {
	p.Helper()
	for word, want := range s.says {
		if answer := answers[word]; answer != nil && !answer(p, name, want, res) {
			p.Fatalf("%s is not %s %s: %+v", name, word, want, res)
		}
	}
}

// granted notes a grant that is as the step says.
func (p *player) granted(s step, name string, res driver.Result) {
	p.Helper()
	p.is(s, name, res)
	p.served(name)
	p.fences[name] = res.Fence
	p.newest[p.key(name)] = max(p.newest[p.key(name)], res.Fence)
}

func (p *player) served(name string) {
	key := p.key(name)
	p.queues[key] = slices.DeleteFunc(p.queues[key], func(other string) bool { return other == name })
}

// ahead puts an owner in the queue, and returns how many are before it.
func (p *player) ahead(name string) int {
	key := p.key(name)
	if !slices.Contains(p.queues[key], name) {
		p.queues[key] = append(p.queues[key], name)
	}
	return slices.Index(p.queues[key], name)
}

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
			res = p.try(p.client(name), r)
			return res.Granted
		})
		p.granted(s, name, res)
	},
	"beside": func(p *player, s step, name string, r contend.Owner) { // of one that converted
		p.granted(s, name, p.beside(p.client(name), r))
	},
	"convert": func(p *player, s step, name string, r contend.Owner) {
		p.granted(s, name, p.convert(p.client(name), r, p.fences[name]))
		o := p.owners[name]
		o.Mode, o.Limit = driver.Shared, r.Limit
		p.owners[name] = o
	},
	"await": func(p *player, _ step, name string, r contend.Owner) { // joins, and asks again only on a hint
		p.ears[name] = p.await(p.client(name), r, p.ahead(name))
	},
	"watch": func(p *player, _ step, name string, r contend.Owner) { p.watch(p.client(name), r) },
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
		p.release(p.client(name), r)
		p.served(name)
	},
	"renew": func(p *player, s step, name string, r contend.Owner) { // with "queued", a sign of life of a place
		if _, gone := s.says["gone"]; gone {
			p.renewNothing(p.client(name), r)
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
		if len(leases) == 0 {
			p.Fatalf("%s does not hold %q: %+v", name, r.Key, info)
		}
		for _, l := range leases {
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
	"quiet":   func(p *player, s step) { p.quiet(p.listeners(s)...) },
	"expires": func(p *player, s step) { p.expires(p.keyOf(s)) },
	"until": func(p *player, s step) { // so many wait or hold, in the time of a lease
		p.eventually(p.ttl, s.text, func() bool {
			info := p.inspect(p.keyOf(s))
			return strconv.Itoa(info.Waiters) == cmp.Or(s.says["waiters"], strconv.Itoa(info.Waiters)) &&
				strconv.Itoa(info.Holds) == cmp.Or(s.says["holds"], strconv.Itoa(info.Holds))
		})
	},
}

// keyOf is the key of a step's owners.
func (p *player) keyOf(s step) string {
	if len(s.owners) == 0 {
		return "k"
	}
	return p.key(s.owners[0])
}

func (p *player) listeners(s step) (ws []*listener) {
	for _, name := range s.owners {
		ws = append(ws, p.ears[name])
	}
	return ws
}
