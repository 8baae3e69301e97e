// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

// Permuted is the ballot with its nodes in another order: node i is order[i] of b. A
// search takes ballots for the same if they differ by the names of nodes only.
func (b Ballot) Permuted(order []int) Ballot {
	p := b
	back := [MaxNodes]int{}
	for i, from := range order {
		back[from] = i
		p.votes[i], p.round.answers[i] = b.votes[from], b.round.answers[from]
	}
	to := func(node int) int {
		if node == None {
			return None
		}
		return back[node]
	}
	all := func(s Set) (moved Set) {
		for i := range order {
			if s.Has(i) {
				moved.Add(back[i])
			}
		}
		return moved
	}
	p.round.asked, p.round.waits, p.round.raises = all(b.round.asked), all(b.round.waits), all(b.round.raises)
	p.attempt.queue, p.attempt.wakes, p.place.node = to(b.attempt.queue), to(b.attempt.wakes), to(b.place.node)
	if b.round.sameStore() {
		p.round.twins = [2]int8{int8(to(int(b.round.twins[0]))), int8(to(int(b.round.twins[1])))}
	}
	return p
}
