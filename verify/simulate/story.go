// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/verify/broken"
)

// storyTTL is the TTL of every lease in a story, and the longest that its nodes grant.
const storyTTL = 10 * time.Second

// storyPlan is the plan of a story: a schedule by hand, for what needs exact timing. Its steps are carried out one after
// the other, separated by semicolons, by the clients a, b and c of five nodes that vote:
//
//	alone                  at the beginning: one store without a quorum
//	11s                    time passes
//	a locks, a reads       a single attempt, which must be granted; otherwise the story does not say what it is to say
//	a asks, a asks to read a single attempt, granted or not
//	a is refused           a single attempt, which must not be granted
//	a must lock            a single attempt; the story is about its success
//	a gives up             a Lock that must get no answer within a second
//	a renews, a releases   the latest lease that it has
//	a reaches 01           all nodes but 0 and 1 refuse it
//	a hears 300ms late     answers to it take so long
//	a sends 3s late        what it sends within the next half a second takes so long
//	a is 10s behind        its wall clock
//	fast 0.009             by so many seconds a second the nodes' clocks are
//	empty 2, flush 2       node 2 restarts without its data, loses them
//	free                   the story is about this: no node has the key for an owner
func storyPlan(story string) *Plan {
	p := &Plan{Scenario: "story", Story: story, Nodes: 5, Admitted: true, MaxTTL: storyTTL, NodeTimeout: 2 * time.Second}
	if strings.HasPrefix(story, "alone") {
		p.Lone, p.Nodes = true, 1
	}
	p.TTLs, p.Skews = slices.Repeat([]time.Duration{storyTTL}, 3), make([]time.Duration, 3)
	p.Offsets, p.Rates = make([]time.Duration, p.Nodes), make([]float64, p.Nodes)
	return p
}

// tell carries out the story.
func (w *world) tell() {
	for _, c := range w.clients {
		c.start(0)
	}
	for step := range strings.SplitSeq(w.plan.Story, ";") {
		step = strings.TrimSpace(step)
		w.trace.add("%s", step)
		if err := w.step(strings.Fields(step)); err != nil {
			w.find(Reached, "%s: %v", step, err)
			return
		}
	}
}

// step carries out a step. An error says that the rest makes no sense.
func (w *world) step(words []string) error {
	if d, err := time.ParseDuration(words[0]); err == nil {
		time.Sleep(d)
		return nil
	}
	switch words[0] {
	case "alone":
		return nil
	case "free":
		if i := slices.IndexFunc(w.nodes, func(n *node) bool { return len(n.holders()) > 0 }); i >= 0 {
			w.find(Said, "node %d keeps the key for an owner that is gone", i)
		}
		return nil
	case "fast":
		rate, err := strconv.ParseFloat(words[1], 64)
		for n := range w.nodes {
			w.inject(Fault{Kind: Rate, Node: n, Rate: rate})
		}
		return err
	case "empty", "flush":
		n, err := strconv.Atoi(words[1])
		w.inject(Fault{Kind: map[string]FaultKind{"empty": RestartEmpty, "flush": Flush}[words[0]], Node: n})
		return err
	}
	if len(words) < 2 || !strings.Contains("abc", words[0]) {
		return errors.New("there is no such step")
	}
	return w.clients[words[0][0]-'a'].act(words[1], words[2:])
}

// act carries out the step of a client.
func (c *client) act(verb string, more []string) (err error) {
	m := c.cur.locks.RWMutex(key, &hasp.LockOptions{TTL: storyTTL, NoRenew: true})
	by := time.Duration(0)
	if len(more) > 0 {
		by, _ = time.ParseDuration(more[0])
	}
	switch verb {
	case "locks":
		return c.attempt(m.TryLock)
	case "reads":
		return c.attempt(m.TryRLock)
	case "asks":
		lock := m.TryLock
		if len(more) > 0 {
			lock = m.TryRLock
		}
		_ = c.attempt(lock) // granted or not
	case "must":
		if err := c.attempt(m.TryLock); err != nil {
			c.w.find(Said, "client %d is not granted the key: %v", c.index, err)
		}
	case "is":
		if by > 0 {
			c.skew = -by
		} else if c.attempt(m.TryLock) == nil {
			return errGranted
		}
	case "gives":
		if _, err := c.cur.acquire(m.Lock, time.Second); err == nil {
			return errGranted
		}
	case "renews":
		err = c.had.lease.Extend(context.Background(), storyTTL)
		c.w.history.Extended(c.had.Hold, c.had.lease.Deadline())
	case "releases":
		c.had.release() // late, it finds the lease lost
	case "reaches":
		for n := range c.w.nodes {
			if !strings.Contains(more[0], strconv.Itoa(n)) {
				c.w.inject(Fault{Kind: Reject, Client: c.index, Node: n, For: time.Hour})
			}
		}
	case "hears":
		c.late.in.Store(int64(by))
	case "sends":
		c.late.out.Store(int64(by))
		time.AfterFunc(500*time.Millisecond, func() { c.late.out.Store(0) })
	default:
		return fmt.Errorf("a client cannot %q", verb)
	}
	return err
}

var errGranted = errors.New("the key was granted")

// attempt asks for the key; a grant must rest on a majority of the nodes.
func (c *client) attempt(lock locker) error {
	h, err := c.cur.take(lock, time.Minute)
	if err != nil {
		return err
	}
	c.had = h
	votes := 0
	for _, n := range c.w.nodes {
		if slices.Contains(n.holders(), h.lease.Owner()) {
			votes++
		}
	}
	if votes <= len(c.w.nodes)/2 {
		c.w.find(Said, "a grant rests on %d of %d nodes", votes, len(c.w.nodes))
	}
	return nil
}

// holders are the owners that have the key at the node.
func (n *node) holders() (owners []string) {
	info, err := n.store.Inspect(context.Background(), key)
	if err != nil {
		panic(err)
	}
	for _, l := range info.Holders {
		owners = append(owners, l.Holder.Owner)
	}
	return owners
}

// Variant breaks a part of the algorithm, to show that the oracles notice. The zero value and nil are hasp as it is.
type Variant struct {
	Name     string
	Breaks   Promise  // what it breaks in schedules of the scenario
	Scenario string   // may be empty
	Stories  []string // each breaks a promise

	prepare           func(p *Plan)                     // further changes to the schedule of the scenario
	node, link, whole broken.Fault                      // of the nodes, of what a client reaches of each, and of a client's quorum or lone store
	both              func() (link, whole broken.Fault) // instead, what the two of a client share
	lists             func(client int) []int            // the nodes that a client takes for all
}

// Broken lists the variants.
var Broken = []*Variant{
	{
		Name: "restarted nodes vote", Scenario: "all at once", node: broken.VotesAfter(0), Stories: []string{
			twoSides + "b locks; b releases; 1s; a locks; empty 2; b asks",
			twoSides + "b locks; b releases; 1s; a reads; empty 2; b asks",
		},
	},
	{
		Name: "the time that a node is up counts, not its record", node: broken.VotesAfter(storyTTL),
		Stories: []string{twoSides + "b locks; b releases; 1s; a locks; flush 2; b asks"},
	},
	{
		Name: "a minority counts", Scenario: "partitions", link: broken.SilenceCounts,
		Stories: []string{"a reaches 01; b reaches 234; a asks; b locks"},
	},
	{
		Name: "a node listed twice", Scenario: "calm", link: broken.Anonymous, Stories: []string{"a reaches 0; a asks"},
		lists: func(client int) []int { return []int{client % 3, client % 3, (client + 1) % 3} },
	},
	{
		Name: "fences are not compared", Scenario: "calm", Breaks: Fences, node: broken.AnyFence,
		prepare: func(p *Plan) { p.Skews[0] = 2 * time.Second },
		Stories: []string{
			"c locks; 11s; b is 10s behind; a locks; a releases; 1s; b locks; b releases", // c has the nodes know a fence
			"c locks; 11s; b is 10s behind; a reads; a releases; 1s; b locks; b releases",
		},
	},
	{
		Name: "a reader's vote beside a writer's", Scenario: "calm", node: broken.ReadersIgnoreMode,
		Stories: []string{twoSides + "a locks; b asks to read"},
	},
	{
		Name: "a writer's vote beside readers'", Scenario: "calm", node: broken.WritersIgnoreMode,
		Stories: []string{twoSides + "a reads; b asks"},
	},
	{
		Name: "drift and the time that a call takes are ignored", Scenario: "clocks within bounds", prepare: (*Plan).fastClocks,
		whole: broken.All(broken.NoDrift, broken.LateTry, broken.LateRenew),
	},
	{Name: "drift is ignored", whole: broken.NoDrift, Stories: []string{"fast 0.009; a locks; 9.95s; b locks"}},
	{
		Name: "the time that a Try takes is not subtracted", whole: broken.LateTry,
		Stories: []string{"a hears 500ms late; a locks; 9.6s; b locks"},
	},
	{
		Name: "the time that a Renew takes is not subtracted", whole: broken.LateRenew,
		Stories: []string{"a locks; a hears 500ms late; a renews; 9.6s; b locks"},
	},
	{
		Name: "votes of a failed attempt are kept", both: broken.KeepVotes,
		Stories: []string{"a reaches 01; b reaches 012; a is refused; 1s; b must lock"},
	},
	{Name: "a vote is withdrawn whatever its fence", Scenario: "messages", prepare: (*Plan).duplicate, node: broken.AnyWithdrawn},
	{
		Name: "a release deletes whatever is there", Scenario: "clients", node: broken.BlindRelease,
		Stories: []string{"a locks; 11s; b locks; a releases; c asks"},
	},
	{
		Name: "a reader's release takes the others' votes", node: broken.ReleaseAll,
		Stories: []string{"a reads; b reads; 1s; a releases; c asks"},
	},
	{
		Name: "released owners are not remembered", node: broken.NoTombstones,
		Stories: []string{"alone; a sends 3s late; a gives up; 3s; free"},
	},
	{Name: "a waiter that enters counts from when the message came", Scenario: "lone, clients", prepare: (*Plan).pauses, whole: broken.LateEnter},
	{Name: "a waiter that enters does not look at fences", Scenario: "lone, clocks within bounds", prepare: (*Plan).backAndLate, node: broken.NoNewest},
	{Name: "a waiter that enters is not told of a holder that did not finish", Scenario: "lone, clients", Breaks: Told, whole: broken.EnterUntold},
	{
		Name: "a node tells a floor and forgets it", Scenario: "calm", Breaks: Progress, node: broken.ForgetsFloor,
		prepare: func(p *Plan) { p.Gaps = []time.Duration{13 * time.Hour} },
	},
	{Name: "waiters get no hints, and see nothing", Scenario: "calm", Breaks: Free, link: broken.All(broken.NoHints, broken.SeesNothing)},
}

// twoSides have one node in common.
const twoSides = "a reaches 012; b reaches 234; "

// Prepare makes a plan in which the variant breaks a promise.
func (v *Variant) Prepare(seed uint64) *Plan {
	p := NewPlan(seed, v.Scenario)
	if v.prepare != nil {
		v.prepare(p)
		p.judge()
	}
	return p
}

// fastClocks makes all nodes' clocks as fast as leases allow for, and cuts clients off, so that leases expire.
func (p *Plan) fastClocks() {
	for n := range p.Rates {
		p.Rates[n] = 0.009
	}
	p.Faults = nil
	for c := range p.TTLs {
		for n := range p.Nodes {
			p.Faults = append(p.Faults, Fault{At: time.Duration(c+1) * time.Second, Kind: CutOut, Client: c, Node: n, For: 3 * time.Second})
		}
	}
}

// pauses suspends one client after the other, each for longer than a claim time, among enough others.
func (p *Plan) pauses() {
	p.FaultsEnd = time.Minute
	p.Faults = nil
	p.TTLs, p.Skews = slices.Repeat([]time.Duration{p.MaxTTL}, 4), make([]time.Duration, 4)
	for at, n := time.Second, 0; at < p.FaultsEnd-2*time.Second; at, n = at+700*time.Millisecond, n+1 {
		p.Faults = append(p.Faults, Fault{At: at, Kind: Pause, Client: n % 4, For: time.Second})
	}
}

// backAndLate sets the store's clock back again and again, and has messages come after another owner got the key.
func (p *Plan) backAndLate() {
	p.Network = Network{Twice: 0.2, Late: 0.1, LateBy: 2 * time.Second, Hints: 100 * time.Millisecond}
	p.FaultsEnd = time.Minute
	p.Faults = nil
	for at := time.Second; at < p.FaultsEnd-time.Second; at += 2500 * time.Millisecond {
		p.Faults = append(p.Faults, Fault{At: at, Kind: Step, By: -time.Second})
	}
	p.TTLs, p.Skews = slices.Repeat([]time.Duration{p.MaxTTL}, 4), make([]time.Duration, 4)
}

// duplicate makes requests arrive twice.
func (p *Plan) duplicate() {
	p.Network = Network{Slow: 0.1, SlowBy: 30 * time.Millisecond, Twice: 0.5, Late: 0.05, LateBy: 200 * time.Millisecond}
}
