// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package player

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/history"
)

// written is what clients said of one key, with the lease of each client's number as its fence.
func written(said ...Event) *Book {
	b, members := NewBook(), map[uint64]*Member{}
	for _, e := range said {
		if members[e.Fence] == nil {
			members[e.Fence] = &Member{Process: &Process{ID: int(e.Fence)}}
		}
		e.Key = "k"
		b.Add(members[e.Fence], &e)
	}
	return b
}

// A hold begins when its holder learned of it, and ends with its release, or its deadline as last known.
func TestHolds(t *testing.T) {
	e := func(by uint64, w What, at, deadline Mono) Event {
		return Event{What: w, At: at, Fence: by, Deadline: deadline}
	}
	toRead := func(e Event) Event { e.Shared = true; return e }
	failed := func(e Event) Event { e.Kind, e.Err = "unreachable", "x"; return e }
	lost := func(e Event) Event { e.Lost, e.Kind, e.Err = true, Expired, "x"; return e }
	b := written(
		e(1, Asked, 1, 0), e(2, Asked, 2, 0), e(3, Asked, 3, 0), e(4, Asked, 4, 0),
		failed(e(4, Failed, 5, 0)),
		e(1, Granted, 10, 50), e(1, Renewed, 40, 80), e(1, Ended, 60, 80), e(1, Renewed, 61, 90), e(1, Released, 62, 0), // as it should be
		e(2, Granted, 70, 120), e(2, Renewed, 100, 150), // killed
		e(3, Granted, 200, 250), lost(e(3, Ended, 300, 250)), e(3, Released, 301, 250), // too late
		toRead(e(5, Asked, 310, 0)), toRead(e(5, Granted, 320, 400)),
		e(6, Asked, 500, 0), e(6, Granted, 510, 590), e(6, Lowered, 520, 0), e(6, Shares, 525, 0), toRead(e(6, Ended, 530, 590)),
		failed(e(6, Released, 531, 590)), // nothing says that the key is free
		e(7, Asked, 600, 0), e(7, Granted, 610, 690), e(7, Lowered, 620, 0), failed(e(7, Shares, 625, 0)),
	)
	type times struct{ asked, granted, to, down, lowered, released Mono }
	mono := func(at time.Time) Mono {
		if at.IsZero() {
			return 0
		}
		return Mono(at.Sub(b.Wall(0)))
	}
	want := map[uint64]times{
		1: {1, 10, 60, 0, 0, 62}, 2: {asked: 2, granted: 70, to: 150}, 3: {asked: 3, granted: 200, to: 250},
		5: {asked: 310, granted: 320, to: 400}, 6: {500, 510, 530, 520, 525, 0}, 7: {600, 610, 690, 620, 0, 0},
	}
	holds := b.History()
	if len(holds) != len(want) {
		t.Errorf("%d holds, want %d", len(holds), len(want))
	}
	for _, h := range holds {
		got := times{Mono(h.Asked), Mono(h.Granted), mono(h.To), mono(h.Down), mono(h.Lowered), mono(h.Released)}
		if got != want[h.Fence] || mono(h.From) != got.granted || h.Shared != (h.Fence == 5) {
			t.Errorf("the hold with fence %d is %+v, want %+v", h.Fence, got, want[h.Fence])
		}
	}
	if len(history.Overlaps(holds)) > 0 || b.Granted != 6 || b.Failed != 1 || b.Troubles["unreachable"] != 2 {
		t.Errorf("%+v", b.Counts)
	}
}

// use is a request for the register; the numbers are those of an answer.
func use(b *Book, what What, fence uint64, shared bool, o *Order) *Order {
	return b.Add(&Member{Process: &Process{}}, &Event{What: what, Key: "k", Fence: fence, Shared: shared, Value: o.Value, Unfenced: o.Unfenced})
}

func TestRegister(t *testing.T) {
	b, none := NewBook(), &Order{}
	first := use(b, Read, 1, false, none)
	second := use(b, Read, 2, false, none) // while the first still works
	if use(b, Write, 2, false, second).Refused {
		t.Error("the holder was refused")
	}
	if o := use(b, Write, 1, false, first); !o.Refused || o.Unfenced != 1 {
		t.Errorf("a stale write was taken: %+v", o)
	}
	r := b.registers["k"]
	if r.value != 1 || r.unfenced != 1 || b.Unfenced != 1 || b.Refused != 1 || b.Written != 1 || len(b.Changed)+len(b.Found) != 0 {
		t.Errorf("the register is %+v, the book %+v", r, b)
	}
	// One fence for two is what the fence cannot tell apart, and the book can.
	first, second = use(b, Read, 3, false, none), use(b, Read, 3, false, none)
	use(b, Write, 3, false, first)
	use(b, Write, 3, false, second)
	if len(b.Changed) != 1 || len(b.Found) != 1 {
		t.Errorf("the lost update was not found: %q, %q", b.Changed, b.Found)
	}
}

func TestRegisterUnderReaders(t *testing.T) {
	b, none := NewBook(), &Order{}
	first, second := use(b, Read, 5, true, none), use(b, Read, 3, true, none)
	if first.Refused || second.Refused || use(b, Look, 5, true, first).Refused {
		t.Error("readers were refused for their order")
	}
	if !use(b, Read, 4, false, none).Refused {
		t.Error("a writer was let in below a reader's fence")
	}
	use(b, Write, 6, false, use(b, Read, 6, false, none))
	if !use(b, Look, 5, true, first).Refused || len(b.Changed) != 0 {
		t.Errorf("a reader was let in below a writer's fence: %q", b.Changed)
	}
	late := use(b, Read, 6, true, none) // as one whose fence is not above the writer's
	use(b, Write, 6, false, use(b, Read, 6, false, none))
	if use(b, Look, 6, true, late); len(b.Changed) != 1 {
		t.Errorf("the change under a reader was not found: %q", b.Changed)
	}
}
