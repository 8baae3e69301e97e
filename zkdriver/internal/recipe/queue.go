// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"cmp"
	"slices"
	"strconv"
)

// Queue is the nodes of a key in order: those that hold it, and those that wait.
type Queue []Node

// Add adds the nodes among the children of a folder.
func (q *Queue) Add(folder string, children []string) {
	if folder != "" {
		folder += "/"
	}
	*q = slices.Grow(*q, len(children))
	for _, name := range children {
		if n, ok := Parse(folder + name); ok {
			*q = append(*q, n)
		}
	}
	slices.SortFunc(*q, Node.compare)
}

// compare is the order of a queue.
func (n Node) compare(o Node) int {
	// The number is an int32 that wraps: those of nodes that are there at one time are near each other.
	seq, kind := cmp.Compare(n.Seq-o.Seq, 0), cmp.Compare(n.Kind, o.Kind)
	if n.Kind >= Slot { // leases, and places before them, are numbered separately
		return cmp.Or(kind, seq, cmp.Compare(n.Name, o.Name))
	}
	return cmp.Or(seq, kind, cmp.Compare(n.Name, o.Name))
}

// First reports whether a node of a key without a folder is there, and no other before it. It reads no more of the names behind it than
// their numbers: many wait.
func First(children []string, name string) bool {
	own, ok := Parse(name)
	there := false
	for _, child := range children {
		tail := child[max(len(child)-len("0000000000"), 0):]
		switch seq, err := strconv.ParseInt(tail, 10, 32); {
		case child == name:
			there = true
		case err == nil && tail[0] == '0' && int32(seq)-own.Seq > 0: // else there may be an eleventh, a sign
		default:
			if n, ok := Parse(child); ok && n.compare(own) < 0 {
				return false
			}
		}
	}
	return ok && there
}

// Named is where the node of a name is, -1 when it is not there.
func (q Queue) Named(name string) int {
	return slices.IndexFunc(q, func(n Node) bool { return n.Name == name })
}

// Of is where the first node of an owner is, -1 when it has none.
func (q Queue) Of(m Mark) int {
	return slices.IndexFunc(q, func(n Node) bool { return n.is(m) })
}

// Holders is how many hold the key: the first that writes, or all that read before the first that writes.
func (q Queue) Holders() int {
	n := slices.IndexFunc(q, func(n Node) bool { return n.Kind == Wait || n.Kind < Read })
	switch {
	case n < 0:
		return len(q)
	case n == 0 && q[0].Kind < Read:
		return 1
	}
	return n
}

// Holds reports whether the node at i holds the key.
func (q Queue) Holds(i int) bool { return i < q.Holders() }

// Ahead is how many places are before the one at i, without holders.
func (q Queue) Ahead(i int) int { return max(i-q.Holders(), 0) }

// blocker is the node that a place like n at i waits for, -1 when it holds the key. It is for all layouts but the semaphore's.
func (q Queue) blocker(i int, n Node) int {
	if n.Kind != Read {
		return i - 1
	}
	for i--; i >= 0 && q[i].Kind == Read; i-- {
		continue
	}
	return i
}

// Free reports whether a place like n at i can have the key: in the semaphore's layout beside the holders, and all that wait before it
// and could enter first. Those that leave at once do not count.
func (q Queue) Free(i int, n Node) bool {
	if n.Kind < Slot {
		return q.blocker(i, n) < 0
	}
	h, least := q.Holders(), n.Limit
	if n.Exclusive {
		return h == 0 && i == 0
	}
	beside := h
	for j, o := range q[:i] {
		switch {
		case o.Kind == Full, o.Kind == Wait && o.Foreign():
			return false
		case j >= h && o.Brief:
			continue
		case j >= h && o.Exclusive:
			return false
		case j >= h:
			beside++
		}
		if o.Limit > 0 && (least == 0 || o.Limit < least) {
			least = o.Limit
		}
	}
	return least == 0 || beside < least
}

// Turn reports whether the turn of the node at i has come: it holds the key, or can have it.
func (q Queue) Turn(i int) bool { return q.Holds(i) || q.Free(i, q[i]) }

// slot is the smallest that no holder has.
func (q Queue) slot(limit int) int {
	for slot := 0; limit > 0; slot++ {
		if !slices.ContainsFunc(q, func(n Node) bool { return n.Kind == Slot && !n.Foreign() && n.Limit > 0 && n.Slot == slot }) {
			return slot
		}
	}
	return 0
}

// hold is what the place at i of a semaphore becomes when it enters.
func (q Queue) hold(i int) Node {
	to := Node{Kind: Slot, Seq: q[i].Seq, Limit: q[i].Limit, Slot: q.slot(q[i].Limit)}
	if q[i].Exclusive {
		to = Node{Kind: Full, Seq: q[i].Seq, Exclusive: true}
	}
	return to
}

// Before is the node, or the folder, that the place at i waits for to change.
func (q Queue) Before(i int) string {
	if q[i].Kind < Slot {
		return q[q.blocker(i, q[i])].Name
	}
	if !q[i].Exclusive {
		for j := i - 1; j >= 0; j-- {
			if n := q[j]; n.Kind == Full || n.Kind == Wait && (n.Exclusive || n.Foreign()) {
				return n.Name // all that share the key enter behind it
			}
		}
	}
	if i > 0 && q[i-1].Kind != Slot {
		return q[i-1].Name
	}
	return Leases
}

// Same reports whether the leases are those among the names in their folder.
func (q Queue) Same(names []string) bool {
	var now Queue
	now.Add(Leases, names)
	had := slices.DeleteFunc(slices.Clone(q), func(n Node) bool { return n.Kind != Slot })
	return slices.Equal(now, had)
}

// stranger is a node that this program must not take turns with: what a newer hasp has written, or Curator's mutex beside read-write
// locks, which do not see each other.
func (q Queue) stranger(k Kind) (n Node, ok bool) {
	i := slices.IndexFunc(q, func(n Node) bool { return n.Newer > 0 || n.Foreign() && k < Slot && (n.Kind == Lock) != (k == Lock) })
	if i < 0 {
		return Node{}, false
	}
	return q[i], true
}
