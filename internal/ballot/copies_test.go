// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

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
		Limit: uint64(time.Now().Add(driver.MaxFenceSkew / 2).UnixMicro()), Timeout: 50 * time.Millisecond,
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

func (c *copyOf) tell(node int, r driver.WithdrawRequest, said func(Kind)) {
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
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
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
		if info, err := s.Inspect(c.t.Context(), "k"); err != nil || info.Holds != c.holds || info.Waiters > 0 {
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
