// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"time"

	"github.com/hasplock/hasp/driver"
)

// Do is what an attempt does next.
type Do uint8

// What is to be done, and which method takes what came of it. An answer that never came ends the attempt.
const (
	Again    Do = iota // Begin anew: others changed what it had seen
	Look               // read the queue and whether the owner was released; if Sure, after a write. Then Saw
	Prove              // write to Node, which shows that the session lives, and read the queue. Then Saw
	Join               // make Node and what Lacks says, and read as for Look. Then Joined, or Unmade
	MakeRoot           // make the root of all keys; then Again
	Take               // read the data of Node, which this session does not know. Then Read
	Find               // note that Node is this session's; then Again
	Change             // replace Node by To with the same number, in one step. Then Changed, or Again
	Undo               // delete Node. Then Undone
	Gone               // note that the node that this session knew is gone; then Again

	// The ends.
	Keep     // keep the place at At, and watch
	Refuse   // say what is in the way of a place at At
	Grant    // grant the key to Node
	Released // the owner was released
	NotHeld  // there is nothing to renew
	Stranger // Node is of a program with which this one must not take turns
)

// Step is what an attempt does next, and with what.
type Step struct {
	Do    Do
	Node  Node
	To    Node    // of a Change
	Data  Content // that Node is to have, or To; without a fence it gets that of its own zxid
	Guard string  // of a Change: the name of a node that must be there still; "": none
	Lacks Lacks   // of a Join
	At    int     // in the queue that was seen
	Sure  bool    // of a Look
}

// Lacks is what is absent of a key's directory.
type Lacks uint8

// What is absent.
const (
	LacksNothing Lacks = iota
	LacksFolder        // a semaphore's folder of places
	LacksAll           // the directory
)

// Known is what a session knows of the node of an owner before an attempt begins.
type Known struct {
	Name   string // "" when it knows of none
	Kind   Kind
	Fence  uint64
	TTL    time.Duration // that the node's data has
	State  State
	Unsure bool // there may be a node, under this name or another
}

// View is what was read of a key.
type View struct {
	Queue
	Released bool  // the owner has a mark that it was released
	Version  int32 // of a semaphore's folder of places
	NoLeases bool  // a semaphore's folder of leases is absent
}

// Attempt is one request about the node of an owner: a Try, or the renewal by a session that does not know of the node.
//
// A place of a mutex or a read-write lock holds the key once nothing is in its way. In a semaphore it becomes a hold by a
// Change, which is carried out only if no other of ours changed anything since it looked; programs of Java change something only
// while they are the first in the folder of places.
type Attempt struct {
	View // the latest

	layout  Layout
	mark    Mark
	session int64
	r       driver.TryRequest
	renews  bool

	known Known
	lacks Lacks
	step  Step // that is being carried out
	then  Step // after an Undo
	sure  bool // it has to look at what is there now
	stood bool // the owner's node was there before this
}

// NewAttempt returns an attempt of a session for an owner with a mark. renews: it is a renewal, which never makes a node.
func NewAttempt(l Layout, m Mark, session int64, r driver.TryRequest, renews bool) *Attempt {
	return &Attempt{layout: l, mark: m, session: session, r: r, renews: renews}
}

// Stood reports whether the owner's node was there before the attempt: the grant is not a first one.
func (a *Attempt) Stood() bool { return a.stood }

// Begin begins the attempt, or begins it anew.
//
// A request that joins makes its node before it looks. A request that leaves no trace when it is refused looks first, and what it is
// refused by it has read after a write.
func (a *Attempt) Begin(k Known) Step {
	a.known = k
	a.sure = a.sure || k.Unsure || a.r.Convert || a.renews
	switch {
	case a.r.Convert || a.renews || k.Kind == Wait && k.Name != "":
		return a.look()
	case k.Name != "":
		return a.prove(Node{Name: k.Name, Kind: k.Kind})
	case a.r.Queue && !a.sure:
		return a.join()
	}
	return a.look()
}

func (a *Attempt) next(s Step) Step {
	a.step = s
	return s
}

func (a *Attempt) look() Step { return a.next(Step{Do: Look, Sure: a.sure}) }

func (a *Attempt) prove(n Node) Step {
	return a.next(Step{Do: Prove, Node: n, Data: a.data(a.known.TTL, a.known.Fence)})
}

// data is that of the owner's node. A TTL that was longer stays.
func (a *Attempt) data(ttl time.Duration, fence uint64) Content {
	return Content{TTL: max(a.r.TTL, ttl), Fence: fence, Label: a.r.Label}
}

// wants is the node that it would make.
func (a *Attempt) wants() Node { return a.layout.Wants(a.r.Mode, a.r.Limit, !a.r.Queue) }

func (a *Attempt) join() Step {
	return a.next(Step{Do: Join, Node: a.wants(), Data: a.data(0, 0), Lacks: a.lacks})
}

// Unmade is for a Join that made nothing: a folder was absent, or is there by now.
func (a *Attempt) Unmade(absent bool) Step {
	switch {
	case absent && a.lacks == LacksAll:
		return Step{Do: MakeRoot}
	case absent:
		a.lacks = LacksAll
	case a.lacks == LacksAll && a.layout == Semaphore:
		a.lacks = LacksFolder
	default:
		a.lacks = LacksNothing
	}
	return Step{Do: Again}
}

// Joined is for a Join that made a node, with what was read after it.
func (a *Attempt) Joined(n Node, v View) Step {
	a.known = Known{Name: n.Name, Kind: n.Kind, State: Made}
	return a.Saw(v)
}

// Saw is for what was read.
func (a *Attempt) Saw(v View) Step {
	a.View = v
	own, first := v.Named(a.known.Name), v.Of(a.mark)
	joined := a.step.Do == Join && own >= 0 // else another client has replaced it already
	switch {
	case v.Released && own >= 0:
		return a.undo(own, Step{Do: Released})
	case v.Released:
		return a.end(Released, 0)
	case first < 0 && (a.known.Name != "" || a.known.State.Leased()):
		return a.next(Step{Do: Gone})
	case first < 0:
		return a.absent()
	case joined && own != first: // a copy of this request was faster
		a.sure = true
		return a.undo(own, Step{Do: Again})
	case joined:
		if n, bad := v.stranger(a.wants().Kind); bad {
			return a.undo(own, Step{Do: Stranger, Node: n})
		}
	}
	if own < 0 {
		return a.standing(first)
	}
	return a.decide(own)
}

// absent is for an owner without a node.
func (a *Attempt) absent() Step {
	want, end := a.wants(), len(a.Queue)
	n, bad := a.stranger(want.Kind)
	switch {
	case a.renews:
		return a.end(NotHeld, 0)
	case bad:
		return a.next(Step{Do: Stranger, Node: n})
	case a.r.Convert:
		return a.end(Refuse, 0)
	case a.r.Queue || a.Free(end, want):
		return a.join()
	case a.sure:
		return a.end(Refuse, end)
	}
	a.sure = true
	return a.look()
}

// fits reports whether the node at i is what the request is about.
func (a *Attempt) fits(i int) bool {
	switch {
	case a.renews:
		return a.Holds(i) != a.r.Queue
	case a.r.Convert:
		return a.Holds(i)
	}
	return a.Queue[i].Mode() == a.r.Mode
}

// standing is for an owner with a node at i that this session does not know: another client's, or its own after a lost answer.
func (a *Attempt) standing(i int) Step {
	if !a.fits(i) {
		return a.unfit(i)
	}
	return a.next(Step{Do: Take, Node: a.Queue[i], At: i})
}

func (a *Attempt) unfit(i int) Step {
	if a.renews {
		return a.end(NotHeld, i)
	}
	return a.end(Refuse, i)
}

// Read is for what a Take has read: the node's data, the session that it lasts for, and the zxid that made it.
func (a *Attempt) Read(data Content, session, zxid int64) Step {
	n := a.step.Node
	if data.Newer > 0 {
		n.Newer = data.Newer
		return a.next(Step{Do: Stranger, Node: n})
	}
	if data.Fence == 0 {
		data.Fence = FenceOf(zxid)
	}
	if a.r.Convert && a.r.Fence > data.Fence {
		return a.end(Refuse, a.step.At)
	}
	a.stood = true
	change := Step{Do: Change, Node: n, To: n.For(a.mark, a.session), Data: a.data(data.TTL, data.Fence)}
	if change.To.Name == n.Name && session == a.session {
		change.Do = Find
	}
	return a.next(change)
}

// decide is for an owner whose node at i is this session's.
func (a *Attempt) decide(i int) Step {
	n := a.Queue[i]
	switch {
	case !a.fits(i):
		return a.unfit(i)
	case a.r.Convert && n.Mode() == driver.Exclusive:
		return a.downgrade(i)
	case a.Holds(i) && a.step.Do == Look:
		return a.prove(n)
	case a.Holds(i):
		return a.next(Step{Do: Grant, Node: n})
	case a.renews && a.Turn(i):
		return a.end(NotHeld, i)
	case a.renews:
		return a.end(Keep, i)
	case a.Turn(i):
		return a.enter(i)
	case a.r.Queue && !n.Brief:
		return a.end(Keep, i)
	case a.r.Queue: // of a request before this one, which left no trace
		return a.undo(i, Step{Do: Again})
	case n.Brief || n.Kind < Slot && a.known.State == Made:
		return a.undo(i, Step{Do: Refuse, At: i})
	}
	return a.end(Refuse, i)
}

// enter makes the place at i of a semaphore a hold.
func (a *Attempt) enter(i int) Step {
	s := Step{Do: Change, Node: a.Queue[i], To: a.hold(i).For(a.mark, a.session), Data: a.data(0, 0)}
	if first := a.Queue[a.Holders()]; first.Name != s.Node.Name {
		s.Guard = first.Name // as long as one of ours is the first, no program of Java enters
	}
	return a.next(s)
}

// downgrade makes an exclusive hold at i a shared hold.
func (a *Attempt) downgrade(i int) Step {
	if a.r.Fence > a.known.Fence || a.r.Fence == 0 && a.known.State == Handed { // an owner that entered knows its fence
		return a.end(Refuse, i)
	}
	a.stood = true
	to := a.layout.Wants(driver.Shared, a.r.Limit, false)
	if a.layout == Semaphore {
		to.Kind = Slot
	}
	to.Seq = a.Queue[i].Seq
	return a.next(Step{Do: Change, Node: a.Queue[i], To: to.For(a.mark, a.session), Data: a.data(a.known.TTL, a.known.Fence)})
}

// Changed is for a Change that was carried out. A node that became another kind holds the key.
func (a *Attempt) Changed() Step {
	if a.step.To.Kind == a.step.Node.Kind {
		return Step{Do: Again}
	}
	return a.next(Step{Do: Grant, Node: a.step.To})
}

func (a *Attempt) undo(i int, then Step) Step {
	a.then = then
	return a.next(Step{Do: Undo, Node: a.Queue[i]})
}

// Undone is for an Undo that was carried out, or found nothing.
func (a *Attempt) Undone() Step { return a.next(a.then) }

func (a *Attempt) end(d Do, i int) Step { return a.next(Step{Do: d, At: i}) }
