// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
)

// of is a request of an owner whose session is 1, and other a node of another owner.
func of(m driver.Mode, queue bool) driver.TryRequest {
	return driver.TryRequest{Claim: driver.Claim{Key: "k", Owner: someOwner, Label: "l", Mode: m}, TTL: time.Minute, Queue: queue}
}

func own(k Kind, seq int32, session int64) Node {
	return Node{Kind: k, Seq: seq, Exclusive: k >= Full}.For(MarkOf(of(0, false).Claim), session)
}

func other(k Kind, seq int32) Node {
	return Node{Kind: k, Seq: seq, Exclusive: k >= Full}.For(Mark{someOwner[1:] + "A", Digest("x")}, 9)
}

// What an attempt does first, by what its session knows.
func TestBegin(t *testing.T) {
	t.Parallel()
	node, place := own(Write, 1, 1), own(Wait, 1, 1)
	for i, c := range []struct {
		layout Layout
		queue  bool
		known  Known
		change func(*driver.TryRequest)
		renews bool
		want   Do
		sure   bool
	}{
		{layout: ReadWrite, queue: true, want: Join},
		{layout: Semaphore, queue: true, want: Join},
		{layout: ReadWrite, want: Look},
		{layout: ReadWrite, queue: true, known: Known{Unsure: true}, want: Look, sure: true},
		{layout: ReadWrite, queue: true, known: Known{Name: node.Name, Kind: Write}, want: Prove},
		{layout: Semaphore, queue: true, known: Known{Name: place.Name, Kind: Wait}, want: Look},
		{layout: Semaphore, known: Known{Name: "leases/x", Kind: Slot}, want: Prove},
		{layout: ReadWrite, known: Known{Name: node.Name}, renews: true, want: Look, sure: true},
		{layout: ReadWrite, known: Known{Name: node.Name}, change: func(r *driver.TryRequest) { r.Convert = true }, want: Look, sure: true},
	} {
		r := of(driver.Exclusive, c.queue)
		if c.change != nil {
			c.change(&r)
		}
		if got := NewAttempt(c.layout, MarkOf(of(0, false).Claim), 1, r, c.renews).Begin(c.known); got.Do != c.want || got.Sure != c.sure {
			t.Errorf("%d: it does %d (sure %v), want %d (%v)", i, got.Do, got.Sure, c.want, c.sure)
		}
	}
}

// What an attempt does about what it saw, as its first look.
func TestSaw(t *testing.T) {
	t.Parallel()
	curators := Node{Name: "lock-0000000001", Kind: Lock, Seq: 1}
	newer := Node{Name: "x", Kind: Write, Newer: 2}
	old, mine := own(Write, 1, 7), own(Write, 1, 1)
	holds := Known{Name: mine.Name, Kind: Write, State: Held}
	for what, c := range map[string]struct {
		r      driver.TryRequest
		layout Layout
		known  Known
		renews bool
		view   View
		want   []Do // of this look, and of a second one of the same
	}{
		"a free key":                         {r: of(driver.Exclusive, false), want: []Do{Join}},
		"it is held":                         {r: of(driver.Exclusive, false), view: View{Queue: Queue{other(Write, 1)}}, want: []Do{Look, Refuse}},
		"readers beside a reader":            {r: of(driver.Shared, false), view: View{Queue: Queue{other(Read, 1)}}, want: []Do{Join}},
		"another layout":                     {r: of(driver.Exclusive, false), view: View{Queue: Queue{curators}}, want: []Do{Stranger}},
		"a newer hasp":                       {r: of(driver.Exclusive, false), view: View{Queue: Queue{newer}}, want: []Do{Stranger}},
		"a released owner":                   {r: of(driver.Exclusive, false), view: View{Released: true}, want: []Do{Released}},
		"its node is broken":                 {r: of(driver.Exclusive, false), known: holds, want: []Do{Gone}},
		"a lease that had no name is broken": {r: of(driver.Exclusive, false), known: Known{Unsure: true, State: Held}, want: []Do{Gone}},
		"a node that may be made is not":     {r: of(driver.Exclusive, false), known: Known{Unsure: true, State: Made}, want: []Do{Join}},
		"a node of another session":          {r: of(driver.Exclusive, false), view: View{Queue: Queue{old}}, want: []Do{Take}},
		"a node of another mode":             {r: of(driver.Shared, false), view: View{Queue: Queue{old}}, want: []Do{Refuse}},
		"it holds the key":                   {r: of(driver.Exclusive, false), known: holds, view: View{Queue: Queue{mine}}, want: []Do{Grant}},
		"a renewal of nothing":               {r: of(driver.Exclusive, false), renews: true, want: []Do{NotHeld}},
		"a renewal of a lease":               {r: of(driver.Exclusive, false), renews: true, view: View{Queue: Queue{old}}, want: []Do{Take}},
		"a renewal of its own lease":         {r: of(driver.Exclusive, false), renews: true, known: holds, view: View{Queue: Queue{mine}}, want: []Do{Prove}},
		"a renewal of a place that holds":    {r: of(driver.Exclusive, true), renews: true, view: View{Queue: Queue{old}}, want: []Do{NotHeld}},
		"a place enters": {
			r: of(driver.Exclusive, true), layout: Semaphore, known: Known{Name: own(Wait, 1, 1).Name, Kind: Wait},
			view: View{Queue: Queue{own(Wait, 1, 1)}}, want: []Do{Change},
		},
		"a place waits": {
			r: of(driver.Exclusive, true), layout: Semaphore, known: Known{Name: own(Wait, 2, 1).Name, Kind: Wait},
			view: View{Queue: Queue{other(Full, 1), own(Wait, 2, 1)}}, want: []Do{Keep},
		},
		"a place whose turn has come is renewed": {
			r: of(driver.Exclusive, true), layout: Semaphore, renews: true, known: Known{Name: own(Wait, 1, 1).Name, Kind: Wait},
			view: View{Queue: Queue{own(Wait, 1, 1)}}, want: []Do{NotHeld},
		},
		"a released owner has a place": {
			r: of(driver.Exclusive, true), layout: Semaphore, known: Known{Name: own(Wait, 1, 1).Name, Kind: Wait},
			view: View{Queue: Queue{own(Wait, 1, 1)}, Released: true}, want: []Do{Undo},
		},
	} {
		a := NewAttempt(c.layout, MarkOf(of(0, false).Claim), 1, c.r, c.renews)
		a.Begin(c.known)
		for i, want := range c.want {
			if got := a.Saw(c.view); got.Do != want {
				t.Errorf("%s: look %d: it does %d, want %d", what, i, got.Do, want)
			}
		}
	}
}

// What becomes of a node that was just made.
func TestJoined(t *testing.T) {
	t.Parallel()
	n := own(Write, 2, 1)
	for what, c := range map[string]struct {
		queue bool
		view  View
		want  Do
		then  Do
	}{
		"the key is free":         {view: View{Queue: Queue{n}}, want: Grant},
		"it is held":              {view: View{Queue: Queue{other(Write, 1), n}}, want: Undo, then: Refuse},
		"it is held, and waits":   {queue: true, view: View{Queue: Queue{other(Write, 1), n}}, want: Keep},
		"the owner was released":  {view: View{Queue: Queue{n}, Released: true}, want: Undo, then: Released},
		"a copy was faster":       {view: View{Queue: Queue{own(Write, 1, 7), n}}, want: Undo, then: Again},
		"it was broken":           {want: Gone},
		"a copy took it over":     {view: View{Queue: Queue{own(Write, 2, 7)}}, want: Take},
		"another layout is there": {view: View{Queue: Queue{{Name: "lock-0000000001", Kind: Lock, Seq: 1}, n}}, want: Undo, then: Stranger},
	} {
		a := NewAttempt(ReadWrite, MarkOf(of(0, false).Claim), 1, of(driver.Exclusive, c.queue), false)
		a.join()
		if got := a.Joined(n, c.view); got.Do != c.want {
			t.Errorf("%s: it does %d, want %d", what, got.Do, c.want)
		}
		if c.want == Undo {
			if got := a.Undone(); got.Do != c.then {
				t.Errorf("%s: then it does %d, want %d", what, got.Do, c.then)
			}
		}
	}
}

// A downgrade keeps its fence, which may not be larger than the owner's.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	n := own(Write, 1, 1)
	for _, fence := range []uint64{0, 7, 8} {
		r := of(driver.Shared, false)
		r.Convert, r.Fence = true, fence
		a := NewAttempt(ReadWrite, MarkOf(of(0, false).Claim), 1, r, false)
		a.Begin(Known{Name: n.Name, Kind: Write, Fence: 7, State: Held})
		got := a.Saw(View{Queue: Queue{n, other(Write, 2)}})
		if refused := got.Do == Refuse; refused != (fence > 7) {
			t.Errorf("of fence %d it does %d", fence, got.Do)
		}
		if got.Do == Change {
			if end := a.Changed(); got.To != own(Read, 1, 1) || got.Data.Fence != 7 || end.Do != Grant {
				t.Errorf("it becomes %+v with %+v, then %d", got.To, got.Data, end.Do)
			}
		}
		a = NewAttempt(ReadWrite, MarkOf(of(0, false).Claim), 1, r, false)
		a.Begin(Known{})
		a.Saw(View{Queue: Queue{own(Write, 1, 5)}})
		if got := a.Read(Content{Fence: 7}, 5, 1); (got.Do == Refuse) != (fence > 7) {
			t.Errorf("of fence %d, of another session's node, it does %d", fence, got.Do)
		}
	}
}

// A key's folders come and go while a node is made.
func TestUnmade(t *testing.T) {
	t.Parallel()
	a := NewAttempt(Semaphore, MarkOf(of(0, false).Claim), 1, of(driver.Exclusive, true), false)
	for i, c := range []struct {
		absent bool
		do     Do
		lacks  Lacks
	}{{true, Again, LacksAll}, {true, MakeRoot, LacksAll}, {false, Again, LacksFolder}, {false, Again, LacksNothing}, {true, Again, LacksAll}} {
		if got, next := a.Unmade(c.absent), a.Begin(Known{}); got.Do != c.do || next.Do != Join || next.Lacks != c.lacks {
			t.Errorf("%d: it does %d, and then %+v", i, got.Do, next)
		}
	}
}

// A record is given up at its time, and says whether a lease ended.
func TestRecord(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var r Record
	if due, left := r.Due(at(9)); due || left != 0 {
		t.Errorf("nothing is given up: %v, %v", due, left)
	}
	r.Begin(at(5))
	r.Find(own(Write, 1, 1), Content{TTL: time.Second, Fence: 3})
	r.Begin(at(4))
	r.Find(own(Write, 1, 1), Content{TTL: time.Second, Fence: 3})
	if r.State != Made || r.Unsure || r.Until != at(5) {
		t.Errorf("it was found: %+v", r)
	}
	if r.Sign(true, at(6)); r.Until != at(6) || r.Sign(false, at(9)) {
		t.Errorf("a sign of life: %+v", r)
	}
	r.Keep(at(3))
	if r.Hand(); r.Sign(true, at(9)) || !r.Sign(false, at(3)) || r.Until != at(3) {
		t.Errorf("it was handed over: %+v", r)
	}
	if !r.Grant(at(4), false) || r.Grant(at(7), false) || r.State != Held || r.Until != at(7) {
		t.Errorf("it was granted: %+v", r)
	}
	if r.Sign(true, at(9)) || !r.Sign(false, at(8)) || r.Until != at(8) {
		t.Errorf("a renewal: %+v", r)
	}
	if due, left := r.Due(at(6)); due || left != 2*time.Second {
		t.Errorf("before its time: %v, %v", due, left)
	}
	r.Unname()
	if due, _ := r.Due(at(8)); !due || !r.Live() || r.State != Held {
		t.Errorf("at its time: %v, %+v", due, r)
	}
	if r.End = Ending; r.Sign(false, at(9)) {
		t.Error("what is being given up was renewed")
	}
	if done, held := r.GiveUp(at(20)); done || !held || r.State != Late || r.Until != at(20) || r.End != Stays || !r.Live() {
		t.Errorf("given up without a name: %v, %v, %+v", done, held, r)
	}
	if done, held := r.GiveUp(at(30)); !done || held {
		t.Errorf("looked for once more: %v, %v", done, held)
	}
	r.Find(own(Write, 1, 1), Content{})
	if r.State != Made || r.Release(at(40)) || r.Name != "" || r.State != Late {
		t.Errorf("its owner asked again, and released it while a create may come still: %+v", r)
	}
	r = Record{}
	r.Begin(at(1))
	r.Find(own(Write, 1, 1), Content{})
	if !r.Release(at(40)) {
		t.Errorf("it was found, and released: %+v", r)
	}
	r = Record{}
	if r.Begin(at(1)); r.Grant(at(2), true) || r.State != Held {
		t.Errorf("a lease that stood: %+v", r)
	}
	if r.Unname(); r.Release(at(10)) || r.State != Late {
		t.Errorf("released without a name: %+v", r)
	}
	r = Record{}
	r.Begin(at(1))
	r.Keep(at(600))
	if r.Grant(at(9), true) || r.Until != at(9) {
		t.Errorf("a place became a lease, and keeps its time: %+v", r)
	}
	r = Record{}
	r.Begin(at(1))
	r.Release(at(10))
	if r.Begin(at(12)); r.State != Made {
		t.Errorf("its owner asked again: %+v", r)
	}
	if done, _ := r.GiveUp(at(20)); done {
		t.Error("a second lost create was looked for only once")
	}
	r = Record{}
	if r.Grant(at(9), false) || r.Live() {
		t.Errorf("nothing was granted: %+v", r)
	}
}
