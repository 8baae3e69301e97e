// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
)

// store is what ZooKeeper has of one key, without the time: each step of an attempt is carried out at once, or lost before or after
// that.
type store struct {
	zxid, session int64
	fence         uint64 // the largest that was granted
	seq, version  int32
	nodes         map[string]stored
	marks         map[Mark]bool // of released owners
}

type stored struct {
	session, zxid int64
	data          Content
}

func (s *store) put(name string, session int64, data Content) string {
	s.zxid++
	s.nodes[name] = stored{session, s.zxid, data}
	return name
}

func (s *store) view(l Layout, m Mark) View {
	v := View{Released: s.marks[m], Version: s.version}
	for _, folder := range l.Folders() {
		var names []string
		for name := range s.nodes {
			if dir, base, _ := strings.Cut("/"+name, "/"); dir == "" {
				at := strings.LastIndexByte(base, '/')
				if base[:max(at, 0)] == folder {
					names = append(names, base[at+1:])
				}
			}
		}
		v.Add(folder, names)
	}
	return v
}

// client is one session's view of an owner.
type client struct {
	Record
	owner   *owner
	session int64
	a       *Attempt
	step    Step
	made    string // by a Join, before it has read the queue
	zxid    int64  // of that
}

// owner is an acquisition, which two clients may ask for.
type owner struct {
	claim          driver.Claim
	mark           Mark
	held, released bool
	fence          uint64
	mode           driver.Mode
}

// do carries out a client's step. It is false when the attempt has ended, as far as the client knows.
func (c *client) do(t *testing.T, s *store, l Layout, lost bool) bool {
	a, step, was := c.a, c.step, c.Record
	var next Step
	switch step.Do {
	case Again:
		next = a.Begin(c.Known)
		c.step = next
		return true
	case Look:
		next = a.Saw(s.view(l, c.owner.mark))
	case Prove:
		if n, ok := s.nodes[step.Node.Name]; ok {
			n.data = step.Data
			s.nodes[step.Node.Name] = n
		}
		next = a.Saw(s.view(l, c.owner.mark))
	case Join:
		if c.made == "" {
			c.Begin(time.Time{})
			s.seq++
			c.made = s.put(Numbered(step.Node.Prefix(c.owner.mark, c.session), s.seq), c.session, step.Data)
			c.zxid = s.zxid
			return true // others come before the queue is read
		}
		n, _ := Parse(c.made)
		c.made = ""
		if lost {
			return false
		}
		step.Data.Fence = FenceOf(c.zxid)
		c.Find(n, step.Data)
		next = a.Joined(n, s.view(l, c.owner.mark))
	case Take:
		n, ok := s.nodes[step.Node.Name]
		if ok {
			next = a.Read(n.data, n.session, n.zxid)
		}
	case Find, Change:
		if step.Node.Name != was.Name {
			c.Begin(time.Time{})
		}
		if step.Do == Find {
			c.Find(step.Node, step.Data)
			break
		}
		if !s.change(l, c, step) {
			if step.Node.Name != was.Name {
				c.Record = was
			}
			break
		}
		if lost {
			c.Unname()
			return false
		}
		if step.Data.Fence == 0 {
			step.Data.Fence = FenceOf(s.zxid)
		}
		c.Find(step.To, step.Data)
		next = a.Changed()
	case Undo:
		delete(s.nodes, step.Node.Name)
		if lost {
			return false
		}
		c.Record = Record{}
		next = a.Undone()
	case Gone:
		c.Record = Record{}
	case Keep:
		c.Record.Keep(time.Time{})
		return false
	case Grant:
		if c.Name != step.Node.Name {
			break
		}
		c.Grant(time.Time{}, a.Stood())
		c.granted(t, s, step)
		return false
	case Released:
		c.Release(time.Time{})
		return false
	default:
		return false
	}
	c.step = next
	return !lost
}

func (s *store) change(l Layout, c *client, step Step) bool {
	_, ok := s.nodes[step.Node.Name]
	if _, there := s.nodes[step.To.Name]; !ok || there && step.To.Name != step.Node.Name {
		return false
	}
	if _, ok := s.nodes[step.Guard]; step.Guard != "" && !ok {
		return false
	}
	if l == Semaphore && step.To.Kind != step.Node.Kind {
		if c.a.Version != s.version {
			return false
		}
		s.version++
	}
	delete(s.nodes, step.Node.Name)
	s.put(step.To.Name, c.session, step.Data)
	return true
}

// granted checks what must hold at a grant, unless an operator or a release has ended it in the meantime.
func (c *client) granted(t *testing.T, s *store, step Step) {
	o := c.owner
	if _, ok := s.nodes[step.Node.Name]; !ok || o.released {
		return
	}
	if o.held && o.fence != c.Fence {
		t.Fatalf("the fence of %v was %d, is %d", o.claim.Owner, o.fence, c.Fence)
	}
	if !o.held && c.Fence != o.fence && step.Node.Mode() == driver.Exclusive && c.Fence <= s.fence {
		t.Fatalf("the fence of %v is %d, after %d", o.claim.Owner, c.Fence, s.fence)
	}
	s.fence = max(s.fence, c.Fence)
	o.held, o.fence, o.mode = true, c.Fence, step.Node.Mode()
}

// In each layout clients ask for a key in all kinds of order, with lost answers, nodes that are broken, and copies of requests on other
// sessions. An owner that was granted the key has it, alone or with those that share it; fences rise; each waiter has its turn; and
// nothing is left but what a client knows that it has to give up.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	for _, l := range []Layout{ReadWrite, Mutex, Semaphore} {
		t.Run(fmt.Sprint(l), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(300) {
				play(t, l, rand.New(rand.NewPCG(seed, uint64(l))))
				if t.Failed() {
					t.Fatalf("with the seed %d", seed)
				}
			}
		})
	}
}

func newOwner(l Layout, rng *rand.Rand, i int) *owner {
	c := driver.Claim{Key: "k", Owner: strings.Repeat(string(rune('A'+i%26)), driver.OwnerLen), Label: "l"}
	if l != Mutex && rng.IntN(2) == 0 {
		c.Mode = driver.Shared
		if l == Semaphore {
			c.Limit = rng.IntN(4)
		}
	}
	return &owner{claim: c, mark: MarkOf(c), mode: c.Mode}
}

func play(t *testing.T, l Layout, rng *rand.Rand) {
	s := &store{nodes: map[string]stored{}, marks: map[Mark]bool{}}
	var owners []*owner
	var clients []*client
	for i := range 5 {
		o := newOwner(l, rng, i)
		owners = append(owners, o)
		for range 1 + rng.IntN(2) {
			s.session++
			clients = append(clients, &client{owner: o, session: s.session})
		}
	}
	for range 150 {
		switch c := clients[rng.IntN(len(clients))]; {
		case c.a == nil && c.owner.released:
		case c.a == nil && rng.IntN(6) == 0:
			s.release(l, c, clients)
		case c.a == nil:
			c.ask(l, rng)
		case rng.IntN(60) == 0:
			s.lapse(rng, clients)
		default:
			if !c.do(t, s, l, rng.IntN(12) == 0) {
				c.a = nil
			}
		}
		s.check(t, l, owners)
	}
	for _, c := range clients {
		for c.a != nil {
			if !c.do(t, s, l, false) {
				c.a = nil
			}
		}
	}
	for _, c := range clients {
		if c.owner.released {
			s.giveUp(c)
		}
	}
	s.serve(t, l, clients)
	for _, c := range clients {
		s.giveUp(c)
	}
	if len(s.nodes) > 0 {
		t.Errorf("left are %v", slices.Collect(maps.Keys(s.nodes)))
	}
}

// ask begins a request of the client.
func (c *client) ask(l Layout, rng *rand.Rand) {
	r := driver.TryRequest{Claim: c.owner.claim, TTL: time.Minute, Queue: rng.IntN(3) > 0, Patience: time.Minute}
	renews := rng.IntN(8) == 0
	if c.owner.held && l != Mutex && !renews && r.Mode == driver.Exclusive && rng.IntN(4) == 0 {
		r.Convert, r.Mode, r.Fence = true, driver.Shared, c.owner.fence
		c.owner.claim.Mode = driver.Shared
	}
	c.a, c.step = NewAttempt(l, MarkOf(r.Claim), c.session, r, renews), Step{}
}

// release ends what an owner has, and what its clients know: as a release of which every request is answered.
func (s *store) release(l Layout, c *client, clients []*client) {
	c.owner.held, c.owner.released = false, true
	s.marks[c.owner.mark] = true
	for _, n := range s.view(l, c.owner.mark).Queue {
		if n.Mark == c.owner.mark {
			delete(s.nodes, n.Name)
		}
	}
	if c.a == nil {
		c.Record = Record{}
	}
}

// giveUp ends what a client knows that it has, or may have: its owner does not ask again.
func (s *store) giveUp(c *client) {
	if !c.Live() {
		return
	}
	c.Record = Record{}
	maps.DeleteFunc(s.nodes, func(name string, _ stored) bool {
		n, _ := Parse(name)
		return n.Mark == c.owner.mark && n.Session == SessionName(c.session)
	})
}

// lapse ends a session's node: an operator breaks it, or it was not renewed.
func (s *store) lapse(rng *rand.Rand, clients []*client) {
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		if rng.IntN(3) > 0 {
			continue
		}
		n, _ := Parse(name)
		delete(s.nodes, name)
		for _, c := range clients {
			if c.owner.mark == n.Mark {
				c.owner.held = false
			}
		}
		return
	}
}

// check compares what was granted with what the store has.
func (s *store) check(t *testing.T, l Layout, owners []*owner) {
	q := s.view(l, Mark{}).Queue
	var exclusive, shared, limit int
	for _, o := range owners {
		if !o.held {
			continue
		}
		i := q.Of(o.mark)
		if i < 0 || !slices.ContainsFunc(q[:q.Holders()], func(n Node) bool { return n.Mark == o.mark }) {
			t.Fatalf("%v was granted the key, and does not hold it in %+v", o.claim.Owner, q)
		}
		if q[i].Mode() == driver.Exclusive {
			exclusive++
			continue
		}
		shared++
		if n := q[i].Limit; n > 0 && (limit == 0 || n < limit) {
			limit = n
		}
	}
	if exclusive > 1 || exclusive > 0 && shared > 0 || limit > 0 && shared > limit {
		t.Fatalf("%d have the key alone, %d share it, and the limit is %d: %+v", exclusive, shared, limit, q)
	}
}

// serve has all waiters ask until each was granted the key and has released it: none is kept waiting for nothing.
func (s *store) serve(t *testing.T, l Layout, clients []*client) {
	for range 20 * len(clients) {
		waiting := false
		for _, c := range clients {
			if c.owner.released {
				continue
			}
			waiting = true
			r := driver.TryRequest{Claim: c.owner.claim, TTL: time.Minute, Queue: true, Patience: time.Minute}
			c.a, c.step = NewAttempt(l, MarkOf(r.Claim), c.session, r, false), Step{}
			for c.do(t, s, l, false) {
				continue
			}
			end := c.step.Do
			c.a = nil
			if end == Grant || end == Refuse {
				s.release(l, c, clients)
			}
		}
		if !waiting {
			return
		}
	}
	t.Fatalf("some wait for ever: %+v", s.view(l, Mark{}).Queue)
}
