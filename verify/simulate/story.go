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
