// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

const someOwner = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// A name says what its node is; what Curator wrote is another program's.
func TestNames(t *testing.T) {
	t.Parallel()
	m := mark{someOwner, digest("a label")}
	for k := range markers {
		for _, seq := range []int32{0, 7, math.MaxInt32, math.MinInt32, -1} {
			name := numbered(nameOf(m, -5, markers[k]), seq)
			n, ok := parse(name)
			if !ok || n.foreign() || !n.is(m) || n.kind != kind(k) || n.seq != seq || n.sess != "fffffffffffffffb" || n.name != name {
				t.Errorf("%s: %+v, %v", name, n, ok)
			}
		}
	}
	const uuid = "_c_0a1b2c3d-4e5f-4678-9abc-def012345678-"
	for name, want := range map[string]node{
		uuid + "lock-0000000003":               {kind: kindLock, seq: 3},
		uuid + "__READ__0000000004":            {kind: kindRead, seq: 4},
		uuid + "__WRIT__-2147483648":           {kind: kindWrite, seq: math.MinInt32},
		"lock-0000000003":                      {kind: kindLock, seq: 3},
		"_c_" + someOwner + "-lock-0000000003": {kind: kindLock, seq: 3},
		"_c_" + someOwner + "-" + strings.ToLower(someOwner) + "-0000000000000001-lock-0000000003": {kind: kindLock, seq: 3},
	} {
		want.name = name
		if n, ok := parse(name); !ok || n != want || !n.foreign() || n.is(mark{}) {
			t.Errorf("%s: %+v, %v", name, n, ok)
		}
	}
	for _, name := range []string{"", "locks", "leases", "lock-", "lock-x", "__READ__", "lock-00000000030000000003", "0000000003"} {
		if n, ok := parse(name); ok {
			t.Errorf("%q is a place: %+v", name, n)
		}
	}
}

// Numbers wrap: the order of those that are there at one time stays.
func TestOrderOverTheWrap(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range int32(6) {
		names = append(names, numbered("lock-", math.MaxInt32-2+i))
	}
	mixed := slices.Clone(names)
	slices.Sort(mixed)
	if slices.Equal(mixed, names) {
		t.Fatal("this order is that of the texts")
	}
	for i, n := range parseAll(mixed) {
		if n.name != names[i] {
			t.Errorf("place %d is %s, want %s", i, n.name, names[i])
		}
	}
}

// Who holds a key, and who waits for whom.
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
		var q queue
		for i, k := range c.kinds {
			q = append(q, node{kind: map[rune]kind{'r': kindRead, 'w': kindWrite}[k], seq: int32(i)})
		}
		if got := q.holders(); got != c.holders {
			t.Errorf("%q: %d hold, want %d", c.kinds, got, c.holders)
		}
		for i, want := range c.blockers {
			if got := q.blocker(i, q[i].kind); got != want {
				t.Errorf("%q: %d waits for %d, want %d", c.kinds, i, got, want)
			}
		}
	}
}

// Every key has a directory of its own, whose name ZooKeeper takes, and List finds it again.
func FuzzKeys(f *testing.F) {
	for _, key := range []string{"k", ".", "..", "a/b", "%41", "\x00", "\xff", ".released", "é"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if driver.CheckKey(key) != nil {
			return
		}
		name := encodeKey(key)
		if got, ok := decodeKey(name); !ok || got != key {
			t.Errorf("%q is %q, and back %q, %v", key, name, got, ok)
		}
		if !validRoot("/"+name) || strings.Contains(name, "/") || name[0] == '.' {
			t.Errorf("%q is %q", key, name)
		}
	})
}

// Data is read as it was written; what others wrote is a label.
func FuzzContent(f *testing.F) {
	f.Add("label", int64(time.Minute), uint64(12))
	f.Add("a\nb", int64(1), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, label string, ttl int64, fence uint64) {
		want := content{ttl: time.Duration(ttl), fence: fence, label: label}
		if got := decode(want.encode()); got != want {
			t.Errorf("%+v became %+v", want, got)
		}
		if got := decode([]byte(label)); !strings.HasPrefix(label, "hasp/") && got != (content{label: label}) {
			t.Errorf("%q became %+v", label, got)
		}
	})
}

// What a driver cannot do it says before any I/O.
func TestCheck(t *testing.T) {
	t.Parallel()
	good := []string{"localhost:2181"}
	for name, d := range map[string]*Driver{
		"no connection":  New(nil, nil),
		"no servers":     New(Connect(nil, nil), nil),
		"no port":        New(Connect([]string{"localhost"}, nil), nil),
		"short session":  New(Connect(good, &ConnOptions{SessionTimeout: time.Millisecond}), nil),
		"long session":   New(Connect(good, &ConnOptions{SessionTimeout: 1000 * time.Hour}), nil),
		"a colon":        New(Connect(good, &ConnOptions{User: "a:b"}), nil),
		"no user":        New(Connect(good, &ConnOptions{Password: "p"}), nil),
		"the root":       New(Connect(good, nil), &Options{Root: "/"}),
		"no slash":       New(Connect(good, nil), &Options{Root: "a"}),
		"two slashes":    New(Connect(good, nil), &Options{Root: "/a//b"}),
		"a dot":          New(Connect(good, nil), &Options{Root: "/a/../b"}),
		"a control":      New(Connect(good, nil), &Options{Root: "/a\x00"}),
		"another layout": New(Connect(good, nil), &Options{Layout: 9}),
	} {
		err := d.Check()
		if err == nil || d.Classify(err) != driver.ClassMisconfigured {
			t.Errorf("%s: %v, of class %d", name, err, d.Classify(err))
		}
		if _, got := d.Inspect(t.Context(), "k"); got != err {
			t.Errorf("%s: Inspect says %v", name, got)
		}
		d.Tell(nil)
		if err := d.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
	}
	if err := New(Connect(good, nil), &Options{Root: "/a/b"}).Check(); err != nil {
		t.Error(err)
	}
}

// What builds of layout 1 write, and read of each other: it changes with the number only.
func TestLayout1(t *testing.T) {
	t.Parallel()
	m := mark{someOwner, digest("a label")}
	for want, got := range map[string]string{
		"_c_ABCDEFGHIJKLMNOPQRSTUVWXYZ-" + digest("a label") + "-0000000000000007-__WRIT__": nameOf(m, 7, markers[kindWrite]),
		"_c_ABCDEFGHIJKLMNOPQRSTUVWXYZ-" + digest("a label") + "-0000000000000007-s3-lock-": nameOf(m, 7, node{kind: kindWait, want: want{limit: 3}}.marker()),
		"hasp/1 ttl=30000000000 fence=127\na label":                                         string(content{ttl: 30 * time.Second, fence: 127, label: "a label"}.encode()),
	} {
		if got != want {
			t.Errorf("%q is written, want %q", got, want)
		}
	}
}

// A key that a newer hasp uses is refused, with what to do; nothing of it is changed, or listed as left over.
func TestNewerLayout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for layout, name := range map[Layout]string{ReadWrite: "v2-__WRIT__", Mutex: "v2-lock-", Semaphore: "v3-lock-"} {
		d := New(w.connect(w.server.Addr(), time.Hour), &Options{Root: w.root, Layout: layout})
		key, folder := fmt.Sprint("k", layout), strings.TrimPrefix(d.folders()[0]+"/", "/")
		w.stays(d, key)
		if folder != "" {
			w.do(w.admin, zk.Create(d.dir(key)+"/"+locks, nil, w.admin.acl, zk.Container))
		}
		base := d.dir(key) + "/" + folder + nameOf(mark{someOwner, digest("l")}, 9, name)
		w.do(w.admin, zk.Create(numbered(base, 7), []byte("hasp/2 nobody knows"), w.admin.acl, zk.Persistent))
		for _, r := range []contend.Owner{ask(key), queued(ask(key))} {
			_, err := contend.Try(w.ctx, d, r)
			if err == nil || d.Classify(err) != driver.ClassMisconfigured || !strings.Contains(err.Error(), "upgrade this program") {
				t.Errorf("layout %d: %v", layout, err)
			}
		}
		info, err := d.Inspect(w.ctx, key)
		if err != nil || info.Holds+info.Waiters != 1 {
			t.Errorf("layout %d: it is %+v, %v", layout, info, err)
		}
		for l, err := range d.ListLeftovers(w.ctx, key, nil) {
			t.Errorf("layout %d: left over %+v, %v", layout, l, err)
		}
	}
}

// Data of a newer layout is not taken over, nor left over, though its node's name is ours.
func TestNewerData(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver()
	r := ask("k")
	w.stays(d, "k")
	name := numbered(nameOf(markOf(r.Claim()), 9, markers[kindWrite]), 7)
	w.do(w.admin, zk.Create(d.dir("k")+"/"+name, []byte("hasp/2 nobody knows"), w.admin.acl, zk.Persistent))
	if a := w.renew(d, r); d.Classify(a.Err) != driver.ClassMisconfigured {
		t.Errorf("the renewal by an older hasp: %+v", a)
	}
	for l, err := range d.ListLeftovers(w.ctx, "", nil) {
		t.Errorf("left over: %+v, %v", l, err)
	}
	if res := w.refuse(d, ask("k")); res.Holder.Owner != r.Owner {
		t.Errorf("the holder is %+v", res.Holder)
	}
}
