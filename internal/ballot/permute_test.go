// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import "testing"

// A ballot whose nodes are named otherwise is the same in everything else: what happens next
// is the same, of other nodes.
func TestPermuted(t *testing.T) {
	order, back := []int{2, 0, 1}, []int{1, 2, 0} // node i is order[i], and the way back
	begun := func() (b Ballot) {
		b = New(3)
		v := seenQueue(3, 10, 1)
		v.Serving.Drop(0)
		s := b.Ask(queues(), v)
		answers(&b, s, 2, twin(yes(10)).Result)
		return b
	}
	waiting := New(3)
	try(&waiting, queues(), seenQueue(3, 10, 1), no, no, no)
	twins := New(3)
	s := twins.Ask(queues(), seenQueue(3, 10, 1))
	answers(&twins, s, 1, twin(yes(10)).Result)
	answers(&twins, s, 2, twin(yes(10)).Result)
	for name, b := range map[string]Ballot{"new": New(3), "begun": begun(), "waiting": waiting, "of one server twice": twins, "with a lease": won(t)} {
		p := b.Permuted(order)
		if p.Permuted(back) != b {
			t.Errorf("%s: there and back it is another", name)
		}
		for i, from := range order {
			if p.Has(i) != b.Has(from) || p.round.asked.Has(i) != b.round.asked.Has(from) || p.round.waits.Has(i) != b.round.waits.Has(from) {
				t.Errorf("%s: node %d is not node %d of before", name, i, from)
			}
			if (p.place.node == i) != (b.place.node == from) || (p.attempt.queue == i) != (b.attempt.queue == from) {
				t.Errorf("%s: node %d has the queue, or node %d had it", name, i, from)
			}
		}
		if p.round.sameStore() != b.round.sameStore() {
			t.Errorf("%s: twins: %v", name, p.round.twins)
		}
	}
	if p := twins.Permuted(order); p.round.twins != [2]int8{2, 0} && p.round.twins != [2]int8{0, 2} {
		t.Errorf("nodes %v are one server, want 0 and 2", p.round.twins)
	}
}
