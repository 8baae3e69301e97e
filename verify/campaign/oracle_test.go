// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/history"
)

// held is a hold of k that was asked for at once before it began.
func held(fence uint64, from, to Mono) history.Hold {
	return history.Hold{Key: "k", Fence: fence, Asked: int64(from - 1), Granted: int64(from), From: from.Time(), To: to.Time(), Released: (to + 1).Time()}
}

func asking(at Mono, h history.Hold) history.Hold { h.Asked = int64(at); return h }

func on(key string, h history.Hold) history.Hold { h.Key = key; return h }

func reading(h history.Hold) history.Hold { h.Shared = true; return h }

// lowered is a hold whose client only reads from then on.
func loweredAt(at Mono, h history.Hold) history.Hold {
	h.Down, h.Lowered = at.Time(), (at + 1).Time()
	return h
}

func unknown(h history.Hold) history.Hold { h.Lowered = time.Time{}; return h }

func lost(h history.Hold) history.Hold { h.Released = time.Time{}; return h }

// Every oracle finds what it is for in a history that was made up, and nothing
// in a sound one.
func TestOracles(t *testing.T) {
	for name, c := range map[string]struct {
		holds                                []history.Hold
		overlap, fall, order, linear, number bool // what must be found; order: by those who asked after a grant; number: when fences only count
	}{
		"nothing":                  {},
		"in turn":                  {holds: []history.Hold{held(1, 10, 20), held(2, 30, 40), held(3, 50, 60)}},
		"waited for":               {holds: []history.Hold{held(1, 10, 20), asking(11, held(2, 22, 40)), asking(12, held(3, 50, 60))}},
		"lost, and then another's": {holds: []history.Hold{lost(held(1, 10, 20)), asking(5, held(2, 30, 40))}},
		"other keys":               {holds: []history.Hold{held(2, 10, 50), on("l", held(1, 20, 30))}},
		"known too late":           {holds: []history.Hold{held(3, 10, 20), lost(asking(1, held(2, 15, 12)))}},
		"two holders":              {holds: []history.Hold{held(1, 10, 20), asking(2, held(2, 19, 40))}, overlap: true, linear: true},
		"two holders, one long before": {
			holds: []history.Hold{held(1, 10, 100), held(2, 110, 120), asking(3, held(3, 115, 118)), held(4, 130, 140)}, overlap: true, linear: true},
		"the same fence":     {holds: []history.Hold{held(1, 10, 20), held(1, 30, 40)}, fall: true, order: true, linear: true, number: true},
		"a fence that falls": {holds: []history.Hold{held(5, 10, 20), held(6, 30, 40), held(4, 50, 60)}, fall: true, order: true, linear: true, number: true},
		"it falls back over two": {
			holds: []history.Hold{held(5, 10, 20), held(7, 30, 40), held(6, 50, 60)}, fall: true, order: true, linear: true, number: true},
		"one fence for two who asked at once": {
			holds: []history.Hold{asking(1, held(5, 10, 20)), asking(2, held(5, 12, 22))}, overlap: true, fall: true, order: true, linear: true, number: true},
		"readers together, in no order": {holds: []history.Hold{
			held(1, 1, 5), reading(held(7, 10, 30)), reading(asking(9, held(5, 12, 22))), reading(held(6, 14, 20)), held(9, 40, 50)}},
		"a reader beside a writer": {
			holds: []history.Hold{held(1, 10, 20), reading(asking(2, held(2, 19, 40)))}, overlap: true, linear: true},
		"a writer beside a reader": {
			holds: []history.Hold{reading(held(1, 10, 20)), asking(2, held(2, 19, 40))}, overlap: true, linear: true},
		"a writer's fence below a reader's": {
			holds: []history.Hold{reading(held(5, 10, 20)), held(4, 30, 40)}, fall: true, order: true, linear: true, number: true},
		"a reader's fence below a writer's": {
			holds: []history.Hold{held(5, 10, 20), reading(held(4, 30, 40))}, fall: true, order: true, linear: true, number: true},
		"a downgrade":                    {holds: []history.Hold{loweredAt(20, held(1, 10, 50)), reading(asking(5, held(2, 22, 60))), held(3, 70, 80)}},
		"a downgrade nobody knows about": {holds: []history.Hold{unknown(loweredAt(20, held(1, 10, 50))), reading(asking(5, held(2, 22, 60))), held(3, 70, 80)}},
		"a reader before the downgrade": {
			holds: []history.Hold{loweredAt(20, held(1, 10, 50)), reading(asking(5, held(2, 15, 60)))}, overlap: true, linear: true},
		"a writer after the downgrade": {
			holds: []history.Hold{loweredAt(20, held(1, 10, 50)), asking(5, held(2, 25, 60))}, overlap: true, linear: true},
		"it falls for who asked before": { // no order was promised unless they exclude each other
			holds: []history.Hold{held(5, 10, 20), asking(1, held(4, 30, 40))}, fall: true, linear: true},
	} {
		slices.SortFunc(c.holds, func(a, b history.Hold) int { return a.From.Compare(b.From) })
		linear, u1 := notLinear(c.holds, true)
		number, u2 := notLinear(c.holds, false)
		if u1+u2 > 0 {
			t.Errorf("%s: the search took too long", name)
		}
		for oracle, r := range map[string]struct {
			found []string
			want  bool
		}{
			"overlap": {history.Overlaps(c.holds), c.overlap}, "fall": {history.Falls(c.holds, true), c.fall}, "order": {history.Falls(c.holds, false), c.order},
			"linear": {linear, c.linear}, "number": {number, c.number},
		} {
			if (len(r.found) > 0) != r.want {
				t.Errorf("%s: %s found %q, want anything: %v", name, oracle, r.found, r.want)
			}
		}
	}
}

// releasedAt is a hold as it was recorded: whether it ended, and when its Release returned.
func releasedAt(at Mono, over bool, h history.Hold) history.Hold {
	if h.Released, h.Over = (time.Time{}), over; at != 0 {
		h.Released = at.Time()
	}
	return h
}

func TestHoldsOf(t *testing.T) {
	e := func(client int, w what, at, deadline Mono) record {
		return record{Client: client, event: event{What: w, At: at, N: 1, Key: "k", Fence: uint64(client), Deadline: deadline}}
	}
	toRead := func(r record) record { r.Shared = true; return r }
	got := holdsOf([]record{
		e(1, asked, 1, 0), e(2, asked, 2, 0), e(3, asked, 3, 0), e(4, asked, 4, 0),
		e(4, failed, 5, 0),
		e(1, granted, 10, 50), e(1, renewed, 40, 80), e(1, ended, 60, 80), e(1, renewed, 61, 90), e(1, released, 62, 0), // as it should be
		e(2, granted, 70, 120), e(2, renewed, 100, 150), // killed
		e(3, granted, 200, 250), e(3, ended, 300, 250), // too late
		toRead(e(5, asked, 310, 0)), toRead(e(5, granted, 320, 400)),
		e(6, asked, 500, 0), e(6, granted, 510, 590), e(6, lowered, 520, 0), e(6, shares, 525, 0), toRead(e(6, ended, 530, 590)),
	})
	want := []history.Hold{
		releasedAt(62, true, asking(1, held(1, 10, 60))),
		releasedAt(0, false, asking(2, held(2, 70, 150))),
		releasedAt(0, true, asking(3, held(3, 200, 250))),
		releasedAt(0, false, reading(asking(310, held(5, 320, 400)))),
		releasedAt(0, true, loweredAt(520, asking(500, held(6, 510, 530)))),
	}
	want[4].Lowered = Mono(525).Time()
	same := func(a, b history.Hold) bool {
		before, _, _ := strings.Cut(a.Owner, " to")
		client, _, _ := strings.Cut(before, ", fence")
		a.Owner = ""
		return a == b && client == fmt.Sprintf("client %d, acquisition 1", b.Fence)
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestRegister(t *testing.T) {
	r := &register{}
	req := func(w what, fence uint64, v value) answer { return r.serve(event{What: w, Fence: fence, Value: v}) }
	a := req(read, 1, value{})
	b := req(read, 2, value{}) // while the first still works
	if req(write, 2, b.Value).Refused {
		t.Error("the holder was refused")
	}
	if !req(write, 1, a.Value).Refused {
		t.Error("a stale write was taken")
	}
	if r.now != (value{Fenced: 1, Bare: 1}) || r.bareLost != 1 || r.refused != 1 || r.written != 1 || len(r.lost) != 0 {
		t.Errorf("the register is %+v", r)
	}
	// One fence for two is what the fence cannot tell apart, and the oracle can.
	c, d := req(read, 3, value{}), req(read, 3, value{})
	req(write, 3, c.Value)
	req(write, 3, d.Value)
	if len(r.lost) != 1 {
		t.Errorf("the lost update was not found: %+v", r)
	}
}

func TestRegisterUnderReaders(t *testing.T) {
	r := &register{}
	req := func(w what, fence uint64, v value, shared bool) answer {
		return r.serve(event{What: w, Fence: fence, Value: v, Shared: shared})
	}
	first, second := req(read, 5, value{}, true), req(read, 3, value{}, true)
	if first.Refused || second.Refused || req(look, 5, first.Value, true).Refused {
		t.Error("readers were refused for their order")
	}
	if !req(read, 4, value{}, false).Refused {
		t.Error("a writer was let in below a reader's fence")
	}
	w := req(read, 6, value{}, false)
	req(write, 6, w.Value, false)
	if !req(look, 5, first.Value, true).Refused || len(r.lost) != 0 {
		t.Errorf("a reader was let in below a writer's fence: %+v", r)
	}
	late := req(read, 6, value{}, true) // as one whose fence is not above the writer's
	w = req(read, 6, value{}, false)
	req(write, 6, w.Value, false)
	if req(look, 6, late.Value, true); len(r.lost) != 1 {
		t.Errorf("the change under a reader was not found: %+v", r)
	}
}
