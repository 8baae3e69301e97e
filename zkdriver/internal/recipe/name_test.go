// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

const someOwner = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// A name says what its node is; what Curator wrote is another program's.
func TestNames(t *testing.T) {
	t.Parallel()
	m := Mark{someOwner, Digest("a label")}
	for _, k := range [...]Kind{Lock, Write, Read} {
		for _, seq := range []int32{0, 7, math.MaxInt32, math.MinInt32, -1} {
			name := Numbered(Node{Kind: k}.Prefix(m, -5), seq)
			n, ok := Parse(name)
			if !ok || n.Foreign() || !n.is(m) || n.Kind != k || n.Seq != seq || n.Session != "fffffffffffffffb" || n.Name != name {
				t.Errorf("%s: %+v, %v", name, n, ok)
			}
		}
	}
	const uuid = "_c_0a1b2c3d-4e5f-4678-9abc-def012345678-"
	for name, want := range map[string]Node{
		uuid + "lock-0000000003":               {Kind: Lock, Seq: 3},
		uuid + "__READ__0000000004":            {Kind: Read, Seq: 4},
		uuid + "__WRIT__-2147483648":           {Kind: Write, Seq: math.MinInt32},
		"lock-0000000003":                      {Kind: Lock, Seq: 3},
		"_c_" + someOwner + "-lock-0000000003": {Kind: Lock, Seq: 3},
		"_c_" + someOwner + "-" + strings.ToLower(someOwner) + "-0000000000000001-lock-0000000003": {Kind: Lock, Seq: 3},
	} {
		want.Name = name
		if n, ok := Parse(name); !ok || n != want || !n.Foreign() || n.is(Mark{}) {
			t.Errorf("%s: %+v, %v", name, n, ok)
		}
	}
	for _, name := range []string{"", "locks", "leases", "lock-", "lock-x", "__READ__", "lock-00000000030000000003", "0000000003"} {
		if n, ok := Parse(name); ok {
			t.Errorf("%q is a place: %+v", name, n)
		}
	}
}

// Numbers wrap: the order of those that are there at one time stays.
func TestOrderOverTheWrap(t *testing.T) {
	t.Parallel()
	for _, from := range []int32{math.MaxInt32 - 2, -1_000_000_002} { // there a number has eleven characters
		var names []string
		for i := range int32(6) {
			names = append(names, Numbered("lock-", from+i))
		}
		mixed := slices.Clone(names)
		slices.Sort(mixed)
		if slices.Equal(mixed, names) {
			t.Fatal("this order is that of the texts")
		}
		var q Queue
		q.Add("", mixed)
		for i, n := range q {
			if n.Name != names[i] {
				t.Errorf("place %d is %s, want %s", i, n.Name, names[i])
			}
			if First(mixed, names[i]) != (i == 0) || !First(names[i:], names[i]) || First(names[i+1:], names[i]) {
				t.Errorf("which is the first of %s?", names[i:])
			}
		}
	}
}

// Which nodes hold a key, and for which each of the others waits.
func TestQueue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kinds    string // r or w, in order
		holders  int
		blockers []int
	}{
		{"", 0, nil}, {"w", 1, []int{-1}}, {"r", 1, []int{-1}}, {"wrrw", 1, []int{-1, 0, 0, 2}},
		{"rrwrrw", 2, []int{-1, -1, 1, 2, 2, 4}}, {"rrr", 3, []int{-1, -1, -1}}, {"wwr", 1, []int{-1, 0, 1}},
	} {
		var q Queue
		for i, k := range c.kinds {
			q = append(q, Node{Kind: map[rune]Kind{'r': Read, 'w': Write}[k], Seq: int32(i)})
		}
		if got := q.Holders(); got != c.holders {
			t.Errorf("%q: %d hold, want %d", c.kinds, got, c.holders)
		}
		for i, want := range c.blockers {
			if got := q.blocker(i, q[i]); got != want {
				t.Errorf("%q: %d waits for %d, want %d", c.kinds, i, got, want)
			}
		}
	}
}

// Data is read as it was written; what others wrote is a label.
func FuzzContent(f *testing.F) {
	f.Add("label", int64(time.Minute), uint64(12))
	f.Add("a\nb", int64(1), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, label string, ttl int64, fence uint64) {
		want := Content{TTL: time.Duration(ttl), Fence: fence, Label: label}
		if got := Decode(want.Encode()); got != want {
			t.Errorf("%+v became %+v", want, got)
		}
		if got := Decode([]byte(label)); !strings.HasPrefix(label, "hasp/") && got != (Content{Label: label}) {
			t.Errorf("%q became %+v", label, got)
		}
	})
}

// What builds of layout 1 write, and read of each other: it changes with the number only.
func TestLayout1(t *testing.T) {
	t.Parallel()
	m := Mark{someOwner, Digest("a label")}
	for want, got := range map[string]string{
		"_c_ABCDEFGHIJKLMNOPQRSTUVWXYZ-" + Digest("a label") + "-0000000000000007-__WRIT__": Node{Kind: Write}.Prefix(m, 7),
		"_c_ABCDEFGHIJKLMNOPQRSTUVWXYZ-" + Digest("a label") + "-0000000000000007-s3-lock-": Node{Kind: Wait, Limit: 3}.Prefix(m, 7)[len(Locks)+1:],
		"2N4KCN72IDARPD6Q4GUYBNO5IA":                Digest("l"),
		"hasp/1 ttl=30000000000 fence=127\na label": string(Content{TTL: 30 * time.Second, Fence: 127, Label: "a label"}.Encode()),
	} {
		if got != want {
			t.Errorf("%q is written, want %q", got, want)
		}
	}
}

// A name in a semaphore's folders says how its owner holds the key, or wants to.
func TestSemaphoreNames(t *testing.T) {
	t.Parallel()
	m := Mark{someOwner, Digest("a label")}
	for _, want := range []Node{
		{Kind: Slot, Slot: 3, Limit: 5}, {Kind: Slot}, {Kind: Full, Exclusive: true},
		{Kind: Wait, Exclusive: true}, {Kind: Wait, Exclusive: true, Brief: true},
		{Kind: Wait, Limit: 7}, {Kind: Wait, Brief: true},
	} {
		folder := Locks
		if want.Kind == Slot {
			folder = Leases
		}
		name := Numbered(want.Prefix(m, 9), 12)
		n, ok := Parse(name)
		want.Mark, want.Session, want.Seq, want.Name = m, "0000000000000009", 12, name
		if !ok || n != want || !strings.HasPrefix(name, folder+"/"+protected) {
			t.Errorf("%s: %+v, want %+v", name, n, want)
		}
	}
	const uuid = "_c_0a1b2c3d-4e5f-4678-9abc-def012345678-"
	for _, name := range []string{"locks/" + uuid + "lock-0000000003", "leases/" + uuid + "lease-0000000003"} {
		if n, ok := Parse(name); !ok || !n.Foreign() || n.Seq != 3 {
			t.Errorf("%s: %+v, %v", name, n, ok)
		}
	}
	for _, name := range []string{"locks/" + uuid + "lease-0000000003", "leases/" + uuid + "lock-0000000003", "other/" + uuid + "lock-0000000003"} {
		if n, ok := Parse(name); ok {
			t.Errorf("%s is %+v", name, n)
		}
	}
}

// A place can be granted the key beside the holders, and the places before it that could enter first.
func TestRoom(t *testing.T) {
	t.Parallel()
	slot := func(limit int) Node { return Node{Kind: Slot, Mark: Mark{Owner: "o"}, Limit: limit} }
	waits := func(n Node) Node { n.Owner = "o"; return n }
	full, java, javaWaits := Node{Kind: Full, Mark: Mark{Owner: "o"}}, Node{Kind: Slot}, Node{Kind: Wait}
	writes, shares := Node{Kind: Wait, Exclusive: true}, func(limit int) Node { return Node{Kind: Wait, Limit: limit} }
	for i, c := range []struct {
		before Queue
		w      Node
		room   bool
	}{
		{nil, writes, true}, {nil, shares(0), true}, {nil, shares(1), true},
		{Queue{slot(3)}, writes, false}, {Queue{slot(3)}, shares(0), true}, {Queue{slot(3)}, shares(1), false},
		{Queue{slot(3), slot(2)}, shares(3), false}, {Queue{slot(3), slot(0)}, shares(0), true}, {Queue{full}, shares(0), false},
		{Queue{java, java}, shares(2), false}, {Queue{java}, shares(2), true}, {Queue{javaWaits}, shares(9), false}, {Queue{javaWaits}, writes, false},
		{Queue{waits(writes)}, shares(0), false}, {Queue{waits(shares(0))}, shares(0), true}, {Queue{waits(shares(2))}, shares(0), true},
		{Queue{slot(2), waits(shares(2))}, shares(0), false}, {Queue{slot(2), waits(Node{Kind: Wait, Brief: true, Limit: 1})}, shares(0), true},
		{Queue{waits(Node{Kind: Wait, Brief: true, Exclusive: true})}, shares(0), true}, {Queue{waits(Node{Kind: Wait, Brief: true})}, writes, false},
	} {
		if got := c.before.Free(len(c.before), c.w); got != c.room {
			t.Errorf("%d: room is %v: %+v behind %+v", i, got, c.w, c.before)
		}
	}
}
