// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/verify/model"
)

const (
	key   = "orders/42"
	nodes = 3
	need  = 2
)

// A step of the models' time is a little longer than that of their TTLs, so that what
// ends at a step has ended in spite of drift, and nothing else has; and so that the real
// wait, which is ten seconds longer than leases of two or three steps, is over after as
// many steps.
const (
	ttlStep = time.Minute
	tick    = 70 * time.Second
	quick   = 100 // a hundredth of both, where a call must not take long
)

// world is three real nodes and the story that is played on them.
type world struct {
	t     testing.TB
	story model.Trace
	rules rules
	nodes [nodes]node
	seen  [2][nodes]member // as the clients of A and B see them
	base  uint64           // what the model's fences are counted from
	began time.Time
	slow  time.Duration // all times are divided by it
	judge judge
	leave []string // where the code departs from the story

	memory [nodes]uint64 // see lowered
}

// rules says which safeguards are undone. The zero value is the code as it is.
type rules struct {
	around func(w *world, n member, owner, i int) member // of each client, around each node
	memory func(n *memNode) member                       // around one node
	// For the test's own clients.
	hasty    bool // a node is admitted when the story says so
	late     bool // answers count after the deadline
	sameTime bool // restored votes count in the renewal in which they were restored
	receipt  bool // a lease counts from when the answer came
	// For the nodes, and the links to them.
	admitted      int  // the longest lease that nodes are admitted for, in steps; 0: as the model says
	silenceCounts bool // a missing answer counts as a vote
	longest       bool // a row is as long as the longest that a node granted
	noRaise       bool // nobody raises standing fences
	stale         bool // an answer to an earlier round counts as one to the latest
	bare          bool // the quorum is used without a hasp.Client, so that nothing knows deadlines
}

func newWorld(t testing.TB, story model.Trace, r rules, slow time.Duration, open func(i int, maxTTL time.Duration) node) *world {
	w := &world{t: t, story: story, rules: r, slow: slow}
	longest := w.maxTTL(0)
	for j := range w.seen {
		longest = max(longest, w.ttl(j))
	}
	for i := range w.nodes {
		w.nodes[i] = open(i, longest)
		w.admit(i)
		for j := range w.seen {
			w.seen[j][i] = w.nodes[i]
			if r.around != nil {
				w.seen[j][i] = r.around(w, w.nodes[i], j, i)
			}
		}
	}
	return w
}

// starts sets what the story's fences and times are counted from.
func (w *world) starts() {
	time.Sleep(time.Millisecond) // no earlier fence is above it
	for _, n := range w.nodes {
		w.base = max(w.base, n.micros())
	}
	w.began = time.Now()
	_, timed := w.story.Model.(model.Votes)
	for _, n := range w.nodes {
		if timed {
			n.oldClock(w.began.Add(-time.Millisecond))
		}
	}
	time.Sleep(time.Millisecond) // the nodes' clocks are above the story's fences
}

// admit admits a node on behalf of the operator.
func (w *world) admit(i int) {
	w.t.Helper()
	rec, err := w.nodes[i].Record(context.Background())
	longest := w.maxTTL(0)
	if w.rules.admitted != 0 {
		longest = time.Duration(w.rules.admitted) * ttlStep / w.slow
	}
	if err == nil && !rec.Voting {
		err = w.nodes[i].Admit(context.Background(), rec, longest)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// votes returns the model of leases, or a neutral one.
func (w *world) votes() model.Votes {
	m, ok := w.story.Model.(model.Votes)
	if !ok {
		m.TTL = [2]int8{30, 30}
	}
	if m.Max == 0 {
		m.Max = m.TTL[0]
	}
	for j := range m.Wait {
		if m.Wait[j] == 0 {
			m.Wait[j] = m.Max
		}
	}
	return m
}

func (w *world) fences() model.Fences {
	m, _ := w.story.Model.(model.Fences)
	m.Block = max(m.Block, 1)
	return m
}

func (w *world) ttl(owner int) time.Duration {
	return time.Duration(w.votes().TTL[owner]) * ttlStep / w.slow
}

// maxTTL is the longest lease that an owner's client knows of.
func (w *world) maxTTL(owner int) time.Duration {
	m := w.votes()
	return time.Duration(max(m.Max*int8(1-owner), m.Wait[owner])) * ttlStep / w.slow
}

// fence converts a fence of the model to a real one.
func (w *world) fence(value int) uint64 { return w.base + uint64(value) }

// player carries out the steps of owners. It returns how the code departs from the story
// there, or "".
type player interface {
	step(owner int, s model.Step) (leaves string)
}

// play plays all steps; after the code has departed from the story, as far as possible.
func (w *world) play(p player) {
	for k, s := range w.story.Steps {
		why := w.faults(s)
		if s.Actor != "" {
			why = p.step(int(s.Actor[0]-'A'), s)
		}
		if why != "" {
			w.leave = append(w.leave, fmt.Sprintf("%d. %s: %s", k+1, s, why))
		}
	}
}

// faults carries out the steps that are not an owner's.
func (w *world) faults(s model.Step) (leaves string) {
	switch s.Act {
	case model.Tick:
		time.Sleep(time.Until(w.began.Add(w.at(s.Value))))
	case model.Vanish:
		if err := w.nodes[s.Node].vanish(key); err != nil {
			return err.Error()
		}
	case model.Forget: // in a restart, and then it is admitted
		w.nodes[s.Node].flush()
		w.admit(s.Node)
	case model.Restart:
		w.nodes[s.Node].restart()
	case model.Snapshot:
		w.nodes[s.Node].snapshot()
	case model.Reload:
		w.nodes[s.Node].reload()
	case model.Flush:
		w.nodes[s.Node].flush()
	case model.Jump:
		w.nodes[s.Node].jump(time.Duration(s.Value) * tick / w.slow)
	}
	return ""
}

// at is a moment of the story.
func (w *world) at(value int) time.Duration { return time.Duration(value) * tick / w.slow }

// lasts checks that a deadline is not before the step before the story's deadline.
func (w *world) lasts(deadline time.Time, value int) (leaves string) {
	if at := w.at(value - 1); !deadline.After(w.began.Add(at)) {
		return "the lease ends earlier"
	}
	return ""
}

// answer returns how a node's answer differs from a grant, or "".
func answer(res driver.Result, err error) (leaves string) {
	switch {
	case errors.Is(err, driver.ErrNotHeld):
		return "not held"
	case err != nil:
		return err.Error()
	case res.Granted:
		return ""
	}
	return map[driver.Why]string{
		driver.Held:        "the key is held, or the owner is gone",
		driver.Released:    "the key is held, or the owner is gone",
		driver.FenceTooLow: "the fence is too low",
		driver.NotVoting:   "the node does not vote",
		driver.TTLTooLong:  "the TTL is too long",
	}[res.Why]
}
