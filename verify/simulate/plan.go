// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/admission"
)

// FaultKind is what a fault does.
type FaultKind uint8

// The faults of nodes, of the network, and of clients.
const (
	Save         FaultKind = iota // the node writes its data to disk; no fault
	RestartEmpty                  // killed; comes back with nothing
	RestartSaved                  // killed; comes back with the latest Save (RDB; AOF everysec)
	RestartKept                   // killed; comes back with everything (AOF always)
	Flush                         // loses everything, without a restart
	Stop                          // suspended (SIGSTOP); requests wait
	Step                          // its wall clock is stepped
	Rate                          // its wall clock runs at another rate
	CutOut                        // what a client sends to the node does not arrive
	CutIn                         // what the node sends to a client does not arrive
	Reject                        // what a client sends to the node is refused at once
	Pause                         // a client's process is suspended
	Crash                         // a client's process is killed; another starts later
)

var faultNames = [...]string{"save", "restart empty", "restart saved", "restart kept", "flush", "stop", "step", "rate", "cut out", "cut in", "reject", "pause", "crash"}

// String returns the name of the kind.
func (k FaultKind) String() string { return faultNames[k] }

// Fault is one fault, injected at one moment.
type Fault struct {
	At     time.Duration
	Kind   FaultKind
	Node   int           // of a node or a cut
	Client int           // of a client or a cut
	For    time.Duration // how long it lasts
	By     time.Duration // of Step; of a restart: a step while the node is down
	Rate   float64       // of Rate: seconds per second, less 1
}

// Network is what the network does to every message, requests and answers alike, until FaultsEnd.
type Network struct {
	Slow   float64 // share of messages that take up to SlowBy
	SlowBy time.Duration
	Lost   float64       // share that never arrive
	Reset  float64       // share of requests that give their caller an error
	Twice  float64       // share of requests that are duplicated
	Late   float64       // share of requests that arrive long after their caller gave up
	LateBy time.Duration // how late at most, also of duplicates
	Hints  time.Duration // how often waiters get a hint from a lone store for no reason; 0: never
}

// Promise is a promise of hasp, and a rule of the judge.
type Promise int

// The promises.
const (
	Exclusion Promise = iota // no two clients rely on the key at one instant, unless both only read
	Fences                   // are above those granted before; those of readers have no order among themselves
	Register                 // that compares fences refuses no holder with a valid lease
	Told                     // a writer is, of an owner before it that did not finish; by one store alone
	Progress                 // every client acquires the key
	Free                     // the key is not, beside a waiter that could have it, for longer than documented
	Said                     // is what a story is about
	Reached                  // is what a story needs to be about it
	promises
)

// Plan is a schedule of faults. It is derived from its seed and its scenario alone.
type Plan struct {
	Seed      uint64
	Scenario  string
	Nodes     int
	Lone      bool            // there is one node, which clients use without a quorum
	Admitted  bool            // an operator admits all nodes at the start, so that no client has to wait for it
	Eager     bool            // the drivers of the nodes are quorum.Async
	MaxTTL    time.Duration   // of the nodes
	TTLs      []time.Duration // of each client
	Skews     []time.Duration // how far each client's wall clock is ahead
	Offsets   []time.Duration // how far each node's wall clock is ahead at first
	Rates     []float64       // and at which rate it runs, less 1
	Network   Network
	Faults    []Fault         // in order of time
	FaultsEnd time.Duration   // when all faults have ended
	Gaps      []time.Duration // for which the key is not used afterwards

	Story       string        // steps that are played instead of all that
	NodeTimeout time.Duration // as in quorum.Options

	May [promises]string // why each promise may be broken; empty: it must hold
	// SetBack is how much longer leases last at a majority because its clocks were stepped back.
	SetBack time.Duration
}

// clockError is how wrong a node's clock may be without harm to fences, as in internal/admission.
const clockError = 3 * time.Second

// claimTime is how long a waiter that was handed the key has to claim it, as in memdriver.
const claimTime = 500 * time.Millisecond

// judge determines which assumptions the plan's faults break.
func (p *Plan) judge() {
	p.May = [promises]string{}
	p.tolerate()
	p.May[Register] = cmp.Or(p.May[Exclusion], p.May[Fences])
	p.May[Told] = p.May[Register]
}

func (p *Plan) tolerate() {
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return int(a.At - b.At) })
	forgets, wrong, off := false, time.Duration(0), 0
	back, lags, leads := make([]time.Duration, p.Nodes), make([]time.Duration, p.Nodes), make([]time.Duration, p.Nodes)
	for n := range p.Nodes {
		c := course{p: p, offset: p.Offsets[n], rate: p.Rates[n], fastest: p.Rates[n]}
		c.drift(0)
		for _, f := range p.Faults {
			if f.Node != n {
				continue
			}
			switch f.Kind {
			case RestartEmpty, RestartSaved, Flush:
				forgets = true
			}
			c.apply(f)
		}
		c.drift(p.FaultsEnd)
		wrong = max(wrong, c.lag, c.lead)
		if max(c.lag, c.lead) > clockError {
			off++
		}
		back[n], lags[n], leads[n] = c.back, c.lag, c.lead
		if why := c.early(); why != "" && p.May[Exclusion] == "" {
			p.May[Exclusion] = fmt.Sprintf("node %d's clock %s", n, why)
		}
	}
	if forgets && wrong > clockError {
		p.May[Fences] = fmt.Sprintf("a node forgets, and a clock is wrong by %v", wrong.Round(time.Millisecond))
	}
	slices.Sort(back)
	p.SetBack = back[p.Nodes/2]
	if p.Lone { // its fences are its own, and its clock matters to leases only
		if p.May[Fences] = ""; forgets {
			p.May[Exclusion], p.May[Fences] = "the store forgets", "the store forgets"
		}
		if slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == CutIn }) {
			p.May[Free] = "an owner that never hears of its grant has the key for its TTL"
		}
		return
	}
	apart := time.Duration(0) // how far one node's clock may be ahead of another's
	for n, lead := range leads {
		for m, lag := range lags {
			if n != m {
				apart = max(apart, lead+lag)
			}
		}
	}
	slices.Sort(lags)
	lead := slices.Max(p.Skews) + lags[p.Nodes/2]
	switch most := slices.Max(p.Skews) + lags[p.Nodes-1]; {
	case off > 0: // its fences are too far from the others' for a common majority
		p.May[Free] = fmt.Sprintf("a node's clock is wrong by %v", wrong.Round(time.Millisecond))
	case apart > voting.MaxFenceSkew:
		p.May[Free] = fmt.Sprintf("a node's clock is ahead by %v of another's", apart.Round(time.Millisecond))
	case most > voting.MaxFenceSkew:
		p.May[Free] = fmt.Sprintf("a client's clock is ahead by %v of a node's", most.Round(time.Millisecond))
	}
	switch {
	case off > p.Nodes/2:
		p.May[Progress] = fmt.Sprintf("the clocks of %d nodes are wrong by more than %v", off, clockError)
	case off > 0 && lead > voting.MaxFenceSkew:
		p.May[Progress] = fmt.Sprintf("a client's clock is ahead by %v of a node's without which there is no majority", lead)
	}
}

// course follows one node's clock through a plan.
type course struct {
	p       *Plan
	at      time.Duration
	offset  time.Duration
	rate    float64
	fastest float64       // the largest rate so far
	ahead   time.Duration // the sum of all steps forward while it may vote
	back    time.Duration // the sum of all steps back
	lag     time.Duration // the largest error backward
	lead    time.Duration // and forward
}

func (c *course) drift(to time.Duration) {
	c.offset += time.Duration(float64(to-c.at) * c.rate)
	c.at = to
	c.note()
}

func (c *course) apply(f Fault) {
	c.drift(f.At)
	switch f.Kind {
	case Rate:
		c.rate = f.Rate
		c.fastest = max(c.fastest, c.rate)
	case Step, RestartEmpty, RestartSaved, RestartKept:
		if f.By > 0 && (f.Kind == Step || c.p.Lone) { // a node that was down has no votes to lose, but a lone store has leases
			c.ahead += f.By
		}
		c.back += max(-f.By, 0)
		c.offset += f.By
		c.note()
	}
}

func (c *course) note() {
	c.lag, c.lead = max(c.lag, -c.offset), max(c.lead, c.offset)
}

// early says why leases may expire on the node before their holders' deadlines, or "".
func (c *course) early() string {
	ttls := c.p.TTLs
	if c.p.Lone { // a waiter that enters relies on the time that it has to claim the key
		ttls = append(slices.Clone(ttls), claimTime)
	}
	for _, ttl := range ttls {
		drift := ttl/100 + 2*time.Millisecond // hasp's
		held := ttl - drift
		switch {
		case time.Duration(float64(held)*(1+c.fastest)) >= ttl:
			return fmt.Sprintf("runs %.2f %% too fast", 100*c.fastest)
		case time.Duration(math.Ceil(float64(held)*(1+c.fastest)))+c.ahead >= ttl:
			return fmt.Sprintf("is stepped forward by %v while it votes", c.ahead)
		}
	}
	return ""
}

// turnLimit is how long after the faults a client may have to wait for its turn: nodes are held back, then leases of clients that
// are gone, or of requests that are still in flight, have to expire; and there may be a queue.
func (p *Plan) turnLimit() time.Duration {
	return admission.Wait(p.MaxTTL) + p.SetBack + p.Network.LateBy + 3*p.MaxTTL + 5*time.Second
}
