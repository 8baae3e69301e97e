// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/memdriver"
)

var (
	firstSchedule = flag.Uint64("first", 0, "the first random schedule")
	schedules     = flag.Uint64("schedules", 2000, "how many of them")
)

// crowd is a few owners that ask nodes in memory. What is under way arrives in any order, late, twice, or never.
type crowd struct {
	*testing.T
	rng    *rand.Rand
	epoch  time.Time
	nodes  []*memdriver.Store
	queue  int // the queue node of this moment
	slow   int // a node whose answers take long
	lossy  bool
	under  []func() // what is under way
	owners [3]person
	grants int
}

// person is one of them.
type person struct {
	*crowd
	b        Ballot
	mode     driver.Mode
	name     string
	proposed uint64
	fence    uint64 // of its lease
	asking   bool
	over     bool // it asks no more
}

// In no schedule has a lease less than a majority of votes before it is released, are two holders beside each other of
// which one writes, or has a node something of an owner whose ballot is blank.
func TestRandomSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		epoch, grants, many := time.Now(), 0, *schedules
		if testing.Short() {
			many /= 5
		}
		for seed := *firstSchedule; seed < *firstSchedule+many && !t.Failed(); seed++ {
			c := newCrowd(t, epoch, seed)
			for step := 0; step < 400 && !t.Failed(); step++ {
				c.act()
				c.judge(seed, step)
			}
			grants += c.grants
		}
		failIf(t, grants == 0, "nobody was ever granted the key")
	})
}

func newCrowd(t *testing.T, epoch time.Time, seed uint64) *crowd {
	c := &crowd{T: t, rng: rand.New(rand.NewPCG(seed, 7)), epoch: epoch}
	n := 3 + 2*c.rng.IntN(2)
	c.lossy, c.slow = c.rng.IntN(2) == 0, c.rng.IntN(n)
	for range n {
		s := memdriver.NewNode(memdriver.NodeOptions{MaxTTL: ttl})
		record, err := s.Record(t.Context())
		if err = errors.Join(err, s.Admit(t.Context(), record, ttl)); err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, s)
	}
	for i := range c.owners {
		c.owners[i] = person{crowd: c, b: New(n), name: strings.Repeat(string(rune('A'+i)), driver.OwnerLen)}
		if c.rng.IntN(4) == 0 {
			c.owners[i].mode = driver.Shared
		}
	}
	return c
}

func (c *crowd) sends(f func()) { c.under = append(c.under, f) }

// act has something arrive, or somebody do something.
func (c *crowd) act() {
	if n := len(c.under); n > 0 && c.rng.IntN(8) != 0 {
		i := c.rng.IntN(n)
		if c.rng.IntN(3) == 0 {
			i = 0
		}
		f := c.under[i]
		c.under = slices.Delete(c.under, i, i+1)
		f()
		return
	}
	p := &c.owners[c.rng.IntN(len(c.owners))]
	switch c.rng.IntN(6) {
	case 0:
		c.queue = c.rng.IntN(len(c.nodes))
	case 1:
		time.Sleep(time.Duration(c.rng.IntN(20)) * time.Millisecond)
	case 2:
		if p.b.Tries() > 0 && !p.over && (p.fence != 0 && c.rng.IntN(2) == 0 || c.rng.IntN(20) == 0) {
			p.release()
		}
	default:
		switch {
		case p.fence != 0 && c.rng.IntN(3) == 0:
			p.restore(c.rng.IntN(len(c.nodes)))
		case p.fence == 0 && !p.asking && !p.over:
			r := asks()
			r.Owner, r.Mode, r.Queue = p.name, p.mode, c.rng.IntN(5) != 0
			p.asking = true
			p.goOn(p.b.Ask(r, p.view()))
		}
	}
}

// judge looks whether what the owners believe is so.
func (c *crowd) judge(seed uint64, step int) {
	for i := range c.owners {
		p := &c.owners[i]
		if p.b.Blank() && !c.lossy && p.somewhere() { // what a lossy network repeats comes late
			c.Errorf("schedule %d, step %d: %c's ballot is blank, and a node has something of it", seed, step, p.name[0])
		}
		if p.fence == 0 {
			continue
		}
		if votes := p.votes(); votes < p.b.Need() {
			c.Errorf("schedule %d, step %d: %c has a lease with fence %d and %d votes of %d", seed, step, p.name[0], p.fence, votes, len(c.nodes))
		}
		for j := range i {
			if other := &c.owners[j]; other.fence != 0 && (p.mode == driver.Exclusive || other.mode == driver.Exclusive) {
				c.Errorf("schedule %d, step %d: %c and %c hold the key", seed, step, other.name[0], p.name[0])
			}
		}
	}
}

// votes counts the nodes that have the owner's lease.
func (p *person) votes() (n int) {
	for _, s := range p.nodes {
		info, err := s.Inspect(p.Context(), "k")
		if err != nil {
			p.Fatal(err)
		}
		if slices.ContainsFunc(info.Holders, func(l driver.Holding) bool { return l.Holder.Owner == p.name && l.Fence >= p.fence }) {
			n++
		}
	}
	return n
}

// somewhere says that a node has a vote or a place of the owner.
func (p *person) somewhere() bool {
	return slices.ContainsFunc(p.nodes, func(s *memdriver.Store) bool {
		info, err := s.Inspect(p.Context(), "k")
		if err != nil {
			p.Fatal(err)
		}
		return slices.ContainsFunc(info.Holders, func(l driver.Holding) bool { return l.Holder.Owner == p.name }) ||
			slices.ContainsFunc(info.Queue, func(w driver.Holder) bool { return w.Owner == p.name })
	})
}

func (p *person) view() View {
	now := time.Now()
	v := View{Now: now.Sub(p.epoch), Serving: All(len(p.nodes)), Queue: p.queue, Met: true, Fence: max(uint64(now.UnixMicro()), p.proposed+1),
		Limit: uint64(now.Add(voting.MaxFenceSkew / 2).UnixMicro()), Timeout: 50 * time.Millisecond}
	for i := range p.nodes {
		v.Rank[i] = uint8(i)
	}
	return v
}

// goOn carries out a step.
func (p *person) goOn(s Step) {
	p.proposed = max(p.proposed, s.Ask.Proposal)
	for _, w := range s.Back {
		p.withdraw(w)
	}
	switch s.Outcome {
	case Asking:
		for i := range p.nodes {
			if s.Nodes.Has(i) {
				p.vote(s, i)
			}
		}
		p.next(p.b.round.no == s.Round)
	case Pausing:
		p.sends(func() {
			if p.asking {
				p.goOn(p.b.Next(p.view()))
			}
		})
	case Granted:
		p.fence, p.asking = s.Result.Fence, false
		p.grants++
	default:
		p.asking = false
	}
}

// next goes on once a round, in which something counted, is decided.
func (p *person) next(counted bool) {
	if counted && p.asking && p.b.Decided() {
		p.goOn(p.b.Next(p.view()))
	}
}

// vote asks one node.
func (p *person) vote(s Step, node int) {
	r := s.Request(node)
	ask := func() driver.Result {
		res, err := p.nodes[node].Vote(p.Context(), r)
		if err != nil {
			p.Fatal(err)
		}
		return res
	}
	hears := func(a Answer) func() {
		return func() {
			back, counts := p.b.Heard(Reply{Node: node, Round: s.Round, Asked: r, Answer: a})
			for _, w := range back {
				p.withdraw(w)
			}
			p.next(counts)
		}
	}
	slow := node == p.slow && p.rng.IntN(2) == 0
	if slow || p.rng.IntN(6) == 0 { // the round does not wait for it
		p.sends(func() { p.next(p.b.Silent(node, s.Round)) })
	}
	if p.lossy {
		switch p.rng.IntN(24) {
		case 0:
			p.sends(hears(Answer{Kind: NotSent}))
			return
		case 1:
			p.sends(hears(Answer{Kind: HeldBack}))
			return
		case 2: // no answer; the request comes late, or never
			p.sends(hears(Answer{}))
			if p.rng.IntN(2) == 0 {
				p.sends(func() { ask() })
			}
			return
		}
	}
	p.sends(func() {
		answer := hears(Answer{Answered, ask()})
		if p.lossy && p.rng.IntN(10) == 0 {
			p.sends(func() { ask() })
		}
		for range p.rng.IntN(4) {
			if last := answer; slow {
				answer = func() { p.sends(last) }
			}
		}
		p.sends(answer)
	})
}

// withdraw sends one, until it is confirmed.
func (p *person) withdraw(w Withdrawal) {
	arrives := func() {
		if err := p.nodes[w.Node].Withdraw(p.Context(), w.WithdrawRequest); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			p.Fatal(err)
		}
	}
	p.sends(func() {
		lost, again := p.lossy && p.rng.IntN(4) == 0, p.lossy && p.rng.IntN(4) == 0
		if !lost {
			arrives()
			p.sends(func() { p.b.Withdrawn(w.Node, w.UpTo) })
		}
		if again {
			p.sends(arrives)
		}
		if lost {
			p.sends(func() {
				if w.Over || p.b.Stands(w.Tries, time.Since(p.epoch)) {
					p.withdraw(w)
				}
			})
		}
	})
}

// restore asks a node for the vote that the lease does not have there.
func (p *person) restore(node int) {
	again := voting.VoteRequest{TryRequest: p.b.Of(), Restore: true}
	again.Queue = false
	r, ok := p.b.Restore(node, again)
	if !ok {
		return
	}
	p.sends(func() {
		res, err := p.nodes[node].Vote(p.Context(), r)
		if err != nil {
			p.Fatal(err)
		}
		p.sends(func() {
			back, _ := p.b.Heard(Reply{Node: node, Asked: r, Answer: Answer{Answered, res}})
			for _, w := range back {
				p.withdraw(w)
			}
		})
	})
}

// release ends what the owner has. It may ask anew.
func (p *person) release() {
	asked := releases(!p.lossy && !p.asking && p.rng.IntN(2) == 0)
	asked.Claim = p.b.Of().Claim
	r := p.b.Release(asked, p.queue)
	p.fence, p.asking = 0, false
	p.over = p.rng.IntN(2) == 0
	for i := range p.nodes {
		if r.Tells(i) {
			p.withdraw(Withdrawal{Node: i, Over: true, WithdrawRequest: r.Request(i)})
		}
	}
}

// copies are clients that ask at once for one owner, each with a ballot of its own, over
// nodes that answer all of them. Which message comes next is left to chance.
type copies struct {
	t     *testing.T
	rng   *rand.Rand
	nodes []*memdriver.Store
	queue int
	mode  driver.Mode
	holds int // leases of another owner, which stand beside
	all   [3]copyOf
	todo  []func() // each of which may come next
}

// copyOf is one of these clients.
type copyOf struct {
	*copies
	b     Ballot
	last  uint64 // the largest fence that it proposed
	met   bool
	asks  int // how often it still does
	fence uint64
}

func (c *copyOf) view() View {
	return View{
		Serving: All(len(c.nodes)), Queue: c.queue, Met: c.met, Fence: max(uint64(time.Now().UnixMicro()), c.last+1),
		Limit: uint64(time.Now().Add(voting.MaxFenceSkew / 2).UnixMicro()), Timeout: 50 * time.Millisecond,
	}
}

func (c *copies) later(f func()) { c.todo = append(c.todo, f) }

// run carries out what is to do until it is done, or over says so.
func (c *copies) run(over func() bool) {
	for len(c.todo) > 0 && !over() {
		i, last := c.rng.IntN(len(c.todo)), len(c.todo)-1
		f := c.todo[i]
		c.todo[i], c.todo = c.todo[last], c.todo[:last]
		f()
	}
}

// try carries out what a step of a Try says.
func (c *copyOf) try(s Step) {
	c.last = max(c.last, s.Ask.Proposal)
	c.withdraw(s.Back)
	switch s.Outcome {
	case Asking:
		for i := range c.nodes {
			c.later(func() { c.vote(s, i) })
		}
	case Pausing:
		c.later(func() { c.try(c.b.Next(c.view())) })
	case Granted:
		if c.fence != 0 && c.fence != s.Result.Fence {
			c.t.Errorf("a copy was granted with the fence %d, and then with %d", c.fence, s.Result.Fence)
		}
		c.fence, c.met = s.Result.Fence, true
		if c.asks--; c.asks > 0 {
			c.try(c.b.Ask(c.b.Of(), c.view()))
		}
	default:
		c.t.Errorf("a copy of a request: %+v, want a grant", s)
	}
}

func (c *copyOf) vote(s Step, node int) {
	r := s.Request(node)
	res, err := c.nodes[node].Vote(c.t.Context(), r)
	if err != nil {
		c.t.Fatal(err)
	}
	c.later(func() {
		back, counts := c.b.Heard(Reply{Node: node, Round: s.Round, Asked: r, Answer: Answer{Answered, res}})
		c.withdraw(back)
		if counts && c.b.Decided() {
			c.try(c.b.Next(c.view()))
		}
	})
}

func (c *copyOf) withdraw(all []Withdrawal) {
	for _, w := range all {
		c.later(func() { c.tell(w.Node, w.WithdrawRequest, func(Kind) {}) })
	}
}

func (c *copyOf) tell(node int, r voting.WithdrawRequest, said func(Kind)) {
	kind := Answered
	if err := c.nodes[node].Withdraw(c.t.Context(), r); errors.Is(err, driver.ErrNotHeld) {
		kind = NotHolder
	} else if err != nil {
		c.t.Fatal(err)
	}
	c.later(func() {
		c.b.Withdrawn(node, r.UpTo)
		said(kind)
	})
}

// Copies of one request that arrive at once, by several clients, are one grant: whatever
// order the nodes see them in, and whatever came before. Its release finds what was granted,
// also while answers are still out, and nothing of it stays.
func TestCopiesAreOneGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(2000) {
			copiesAreOneGrant(t, seed)
			stopIf(t, t.Failed(), "seed %d", seed)
		}
	})
}

func copiesAreOneGrant(t *testing.T, seed uint64) {
	c := &copies{t: t, rng: rand.New(rand.NewPCG(seed, 0))}
	n := 3 + 2*c.rng.IntN(3)
	c.queue = c.rng.IntN(n+1) - 1 // or None
	for range n {
		s := memdriver.NewNode(memdriver.NodeOptions{MaxTTL: ttl})
		rec, err := s.Record(t.Context())
		if err == nil {
			err = s.Admit(t.Context(), rec, ttl)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, s)
	}
	c.mode = driver.Mode(c.rng.IntN(2))
	if c.rng.IntN(2) == 0 { // one of the clients asked for something before
		c.grantTo(c.all[:1], strings.Repeat("Z", driver.OwnerLen))
		if c.mode == driver.Exclusive {
			c.release(&c.all[0])
		} else {
			c.holds = 1
		}
		c.run(c.t.Failed)
	}
	for _, letter := range []string{"A", "B", "C"} {
		c.oneGrant(strings.Repeat(letter, driver.OwnerLen))
	}
}

// oneGrant is that of one owner, and its release.
func (c *copies) oneGrant(owner string) {
	c.grantTo(c.all[:], owner)
	for i := range c.all {
		if c.all[i].fence != c.all[0].fence {
			c.t.Errorf("copies were granted with the fences %d and %d", c.all[0].fence, c.all[i].fence)
		}
	}
	c.release(&c.all[0])
	c.run(c.t.Failed)
	for i, s := range c.nodes {
		if info, err := s.Inspect(c.t.Context(), "k"); err != nil || info.Leases != c.holds || info.Waiters > 0 {
			c.t.Errorf("node %d, after the release: %+v, %v", i, info, err)
		}
	}
}

func (c *copies) release(by *copyOf) {
	req := releases(c.mode == driver.Exclusive && c.rng.IntN(2) == 0)
	req.Claim = by.b.Of().Claim
	r := by.b.Release(req, c.queue)
	var told Set
	for i := range c.nodes {
		if r.Tells(i) {
			told.Add(i)
		}
	}
	r.Sent(told)
	decided := false
	for i := range c.nodes {
		if told.Has(i) {
			c.later(func() {
				by.tell(i, r.Request(i), func(kind Kind) {
					if r.Answer(i, kind); !decided && r.Decided() {
						if decided = true; r.Outcome() != Answered {
							c.t.Errorf("released: outcome %v, of %+v", r.Outcome(), r)
						}
					}
				})
			})
		}
	}
}

// grantTo has clients ask for an owner until each is granted what it asks for.
func (c *copies) grantTo(clients []copyOf, owner string) {
	for i := range clients {
		one := &clients[i]
		one.copies, one.b, one.fence, one.asks = c, New(len(c.nodes)), 0, 1+c.rng.IntN(2)
		req := asks()
		req.Mode, req.Owner, req.Queue = c.mode, owner, c.rng.IntN(2) == 0
		c.later(func() { one.try(one.b.Ask(req, one.view())) })
	}
	c.run(func() bool {
		return c.t.Failed() || !slices.ContainsFunc(clients, func(one copyOf) bool { return one.asks > 0 })
	})
}
