// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/driver/voting"
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
// "here" is the first client for such an owner. An owner that is "fresh" is another one from then on.
// "elsewhere=1" is the same other client in all rounds, "spread=8" is over so many.
// "queue?" before a verb: a step for engines that have a queue. Steps with "&" between them happen at once: see race.
// "20 times" in front: the rest is played so often, by fresh owners; "100/1000 times": more often with a fake clock.
type step struct {
	text, given, verb string
	owners            []string
	says              map[string]string // words, and what is behind their "="
	with              []step            // happens at once
}

var (
	ownerName  = regexp.MustCompile(`^([a-z])\d*(?:/(\d+))?(?:@(\S+))?$`)
	ownerRange = regexp.MustCompile(`^([a-z])(\d+)\.\.[a-z](\d+)(\S*)$`)
	given      = map[string]func(*env) bool{
		"queue": needQueue.of, "noqueue": needNoQueue.of, "handoff": needHandoff.of, "slots": needSlots.of, "fencing": needFencing.of,
		"hints": needHints.of, "shared": needShared.of, "noshared": needNoShare.of, "node": needNode.of,
		"restart": func(e *env) bool { return e.store.Restart != nil },
		"reload":  func(e *env) bool { return e.store.Reload != nil },
		"flush":   func(e *env) bool { return e.store.Flush != nil },
	}
)

func (n Need) of(e *env) bool { return n.Met(e.d) }

func parse(trace string) (steps []step) {
	for text := range strings.SplitSeq(trace, ";") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		var s step
		for i, part := range strings.Split(text, "&") {
			if i == 0 {
				s = parseStep(part)
			} else {
				s.with = append(s.with, parseStep(part))
			}
		}
		steps = append(steps, s)
	}
	return steps
}

func parseStep(text string) step {
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
	return s
}

// fence returns the fence of an owner, or the fence that a step named, and perhaps some more or less: "a", "a+1000", "x-1"; or a number.
func (p *player) fence(expr string) uint64 {
	name, by := expr, 0
	if i := strings.LastIndexAny(expr, "+-"); i > 0 {
		name, by = expr[:i], number(expr[i:])
	}
	if n, err := strconv.ParseUint(name, 10, 64); err == nil {
		return n
	}
	if _, ok := p.fences[name]; !ok {
		panic(fmt.Sprintf("the fence %q: of whom?", expr))
	}
	return p.fences[name] + uint64(by)
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func (p *player) marksRight(res driver.Result, want bool) bool {
	return !p.traits.MarksAbandoned || p.abandonedRight(res.Abandoned, want)
}

// each is some steps for each value: # is the value, #+1 and #-1 the numbers beside it.
func each(values []string, steps string) (trace string) {
	for _, v := range values {
		n, _ := strconv.Atoi(v)
		trace += strings.NewReplacer("#+1", strconv.Itoa(n+1), "#-1", strconv.Itoa(n-1), "#", v).Replace(steps) + ";"
	}
	return trace
}

// downTo are the numbers from n to least.
func downTo(n, least int) (numbers []string) {
	for ; n >= least; n-- {
		numbers = append(numbers, strconv.Itoa(n))
	}
	return numbers
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
	judged   bool // an answer was compared with what the step says
	start    time.Time
	owners   map[string]contend.Owner
	pool     []driver.Driver          // the first client, and others
	calls    int                      // how many owners were spread over these
	clients  map[string]driver.Driver // of owners that asked elsewhere
	ears     map[string]*listener
	hasps    map[string]*hasp.Client // of owners that lock
	leases   map[string]*hasp.Lease
	waits    map[string]*waiting
	outage   *outage
	news     map[string]*news
	handed   map[string]driver.Handover
	ends     map[string]func()          // of watches
	fences   map[string]uint64          // of owners that were granted a key, and what steps name
	terms    map[string]term            // of owners that were granted a key
	minted   term                       // of the first of them
	left     time.Duration              // what the owner had left that the last step found to be the holder
	came     map[string][]driver.Result // of steps that happened at once
	won      []string                   // owners that were granted the key at once
	records  map[string]voting.Record
	listed   map[string]operator.Leftover
	reports  map[driver.Driver]chan report
	seen     map[string]bool      // the texts of all records that were noted
	run      string               // of the store
	newest   map[string]uint64    // the largest fence of a key
	released map[string]time.Time // owners, and when they were first released
	queues   map[string][]string  // those in the queue of a key, in order
}

// term is a lease from before it was asked for.
type term struct {
	from  time.Time
	ttl   time.Duration
	fence uint64
}

// play plays a trace, up to the first step that does not hold.
func (e *env) play(trace string) {
	p := &player{env: e, newest: make(map[string]uint64), outage: newOutage(), seen: make(map[string]bool), reports: make(map[driver.Driver]chan report)}
	steps, times := parse(trace), 1
	if _, ok := steps[0].says["times"]; ok {
		few, many, _ := strings.Cut(steps[0].verb, "/")
		if e.fake {
			few = cmp.Or(many, few)
		}
		times = number(few)
		steps = steps[1:]
	}
	for range times {
		p.owners, p.clients, p.ears = make(map[string]contend.Owner), make(map[string]driver.Driver), make(map[string]*listener)
		p.fences, p.queues, p.ends = make(map[string]uint64), make(map[string][]string), make(map[string]func())
		p.hasps, p.leases, p.waits = make(map[string]*hasp.Client), make(map[string]*hasp.Lease), make(map[string]*waiting)
		p.released = make(map[string]time.Time)
		p.news, p.handed = make(map[string]*news), make(map[string]driver.Handover)
		p.terms, p.records, p.listed = make(map[string]term), make(map[string]voting.Record), make(map[string]operator.Leftover)
		for i, s := range steps {
			*e.at = fmt.Sprintf("step %d of the trace, %q", i+1, s.text)
			if s.given != "" && !given[s.given](e) {
				continue
			}
			if s.verb == "end" {
				break
			}
			p.judged = false
			if p.does(s); e.Failed() || e.void.Load() {
				return
			}
			for word := range s.says {
				if answers[word] != nil && asks[word] == nil && !p.judged {
					panic(fmt.Sprintf("the step %q: nothing looks at %q", s.text, word))
				}
			}
		}
	}
	*e.at = ""
}

func (p *player) does(s step) {
	if s.with != nil {
		p.race(append([]step{s}, s.with...))
		return
	}
	if all := verbs[s.verb]; all != nil {
		all(p, s)
		return
	}
	var one func(p *player, s step, name string, r contend.Owner)
	for _, some := range []map[string]func(*player, step, string, contend.Owner){ownersVerbs, lockVerbs, sweeps, tellers} {
		if some[s.verb] != nil {
			one = some[s.verb]
		}
	}
	if one == nil {
		panic(fmt.Sprintf("the step %q: what does it do?", s.text))
	}
	for _, name := range s.owners {
		p.as(s, name, func(_ driver.Driver, r contend.Owner) { one(p, s, name, r) })
	}
}

// as lets an owner act on the client of a step.
func (p *player) as(s step, name string, act func(driver.Driver, contend.Owner)) {
	if _, fresh := s.says["fresh"]; fresh {
		delete(p.owners, name)
		delete(p.clients, name)
		delete(p.released, name)
	}
	own := p.clients[name]
	_, known := p.owners[name]
	p.moves(s, name)
	r := p.request(s, name)
	p.start = time.Now()
	if act(p.client(name), r); known {
		p.clients[name] = own
	}
}

// moves lets an owner use the client of a step.
func (p *player) moves(s step, name string) {
	beside, elsewhere := s.says["elsewhere"]
	over, spread := s.says["spread"]
	_, here := s.says["here"]
	switch n, err := strconv.Atoi(beside); {
	case err == nil:
		p.clients[name] = p.pooled(n)
	case beside != "":
		p.clients[name] = p.client(beside)
	case elsewhere:
		p.clients[name] = p.open()
	case spread:
		p.clients[name] = p.pooled(p.calls % number(cmp.Or(over, "3")))
		p.calls++
	case here:
		p.clients[name] = p.d
	}
}

// pooled is a client that all rounds of a trace have, the first or another one.
func (p *player) pooled(i int) driver.Driver {
	if p.pool == nil {
		p.pool = []driver.Driver{p.d}
	}
	for len(p.pool) <= i {
		p.pool = append(p.pool, p.open())
	}
	return p.pool[i]
}

func (p *player) client(name string) driver.Driver { return cmp.Or(p.clients[name], p.d) }

// key is that of an owner, or of "@other"; "@hostile3" is one of the hostile keys.
func (p *player) key(name string) string {
	_, key, _ := strings.Cut(name, "@")
	if i, ok := strings.CutPrefix(key, "hostile"); ok {
		return hostileKeys[number(i)]
	}
	if key == "odd" {
		return "a\x00}\xff"
	}
	return cmp.Or(key, "k")
}

// owner is an owner, fresh where the trace has not named it before.
func (p *player) owner(name string) contend.Owner {
	r, ok := p.owners[name]
	if !ok {
		m := ownerName.FindStringSubmatch(name)
		if r = p.ask(p.key(name)); m[1] == "r" || m[2] != "" {
			limit, _ := strconv.Atoi(m[2]) // none
			r = sharing(r, limit)
		}
		p.owners[name] = r
	}
	return r
}

func (p *player) request(s step, name string) contend.Owner {
	_, known := p.owners[name]
	r := p.owner(name)
	for _, word := range slices.Sorted(maps.Keys(s.says)) {
		if ask := asks[word]; ask != nil {
			ask(p, &r, s.says[word])
		}
	}
	if own := p.owners[name]; !known { // a label is for good
		own.Label = r.Label
		p.owners[name] = own
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

// limit is a time that a trace names: with an owner, how long its lease was granted for; "left", what the holder had left.
func (p *player) limit(in string) time.Duration {
	if t, ok := p.terms[in]; ok {
		return t.ttl
	}
	return map[string]time.Duration{"": 0, "ttl": p.ttl, "3ttl": 3 * p.ttl, "quarter": p.long / 4, "half": p.long / 2, "long": p.long, "left": p.left}[in]
}

// is fails unless an answer is what the step says.
func (p *player) is(s step, name string, res driver.Result) {
	p.Helper()
	p.judged = true
	for word, want := range s.says {
		if answer := answers[word]; answer != nil && !answer(p, name, want, res) {
			p.Fatalf("%s is not %s %s: %+v", name, word, want, res)
		}
	}
	if x := s.says["names"]; x != "" {
		p.fences[x] = res.Fence
	}
}

// granted notes a grant that is as the step says.
func (p *player) granted(s step, name string, res driver.Result) {
	p.Helper()
	p.is(s, name, res)
	p.served(name)
	p.fences[name] = res.Fence
	p.terms[name] = term{p.start, res.TTL, res.Fence}
	if p.minted.from.IsZero() {
		p.minted = term{from: time.Now(), fence: res.Fence}
	}
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
