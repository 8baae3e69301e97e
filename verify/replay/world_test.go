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

// A step of the models' time is a little longer than that of their TTLs, so that
// what ends at a step has ended, with the drift and all, and what does not, has
// not; and so that a wait for leases of two or three steps, which the real one is
// ten seconds longer than, is over after as many.
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
	leave []string // in what the code does not do as the story says

	memory [nodes]uint64 // see lowered
}

// rules is how safeguards are undone. The zero value is the code as it is.
type rules struct {
	around func(w *world, n member, owner, i int) member // of each client, around each node
	memory func(n *memNode) member                       // around one node
	// Of clients of the test's own.
	hasty    bool // a node is admitted when the story says so
	late     bool // answers count after the deadline
	sameTime bool // votes that were given back count in the renewal in which they were
	receipt  bool // a lease counts from when the answer came
	// Of the nodes, and of the way to them.
	admitted  int  // the longest lease that nodes are admitted for, in steps; 0: as the model says
	silentYes bool // no answer is taken for a yes
	longest   bool // a row is as long as the longest that a node granted
	noRaise   bool // nobody raises what stands
	stale     bool // the answer to an earlier round is taken for that to the latest
	bare      bool // no hasp.Client stands over the quorum, and so nothing knows deadlines
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
	time.Sleep(time.Millisecond) // nothing granted before is above
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

// admit lets a node vote at the operator's word.
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

// fence is a real one for the model's.
func (w *world) fence(value int) uint64 { return w.base + uint64(value) }

// player carries out the steps in which owners do something. It says in what the
// code leaves the story there; "" when it does not.
type player interface {
	step(owner int, s model.Step) (leaves string)
}

// play takes all steps, those after the code left the story as far as they go.
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

// faults is what happens without anybody's doing.
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

// lasts says whether a deadline is the one of the story: not before the last step
// before it.
func (w *world) lasts(deadline time.Time, value int) (leaves string) {
	if at := w.at(value - 1); !deadline.After(w.began.Add(at)) {
		return "the lease ends earlier"
	}
	return ""
}

// answer says in what a node's answer is not a grant.
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
