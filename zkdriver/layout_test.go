// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

const someOwner = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// Every key has a directory of its own, whose name ZooKeeper takes, and List finds it again.
func FuzzKeys(f *testing.F) {
	for _, key := range []string{"k", ".", "..", "a/b", "%41", "\x00", "\xff", ".released", "é"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if driver.CheckKey(key) != nil {
			return
		}
		name := recipe.EncodeKey(key)
		if got, ok := recipe.DecodeKey(name); !ok || got != key {
			t.Errorf("%q is %q, and back %q, %v", key, name, got, ok)
		}
		if !validRoot("/"+name) || strings.Contains(name, "/") || name[0] == '.' {
			t.Errorf("%q is %q", key, name)
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

// A key that a newer hasp uses is refused, with what to do; nothing of it is changed, or listed as left over.
func TestNewerLayout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for layout, name := range map[Layout]string{ReadWrite: "v2-__WRIT__", Mutex: "v2-lock-", Semaphore: "v3-lock-"} {
		d := New(w.connect(w.server.Addr(), time.Hour), &Options{Root: w.root, Layout: layout})
		key, folder := fmt.Sprint("k", layout), strings.TrimPrefix(d.folders()[0]+"/", "/")
		w.stays(d, key)
		if folder != "" {
			w.do(w.admin, zk.Create(d.dir(key)+"/"+recipe.Locks, nil, w.admin.acl, zk.Container))
		}
		base := d.dir(key) + "/" + folder + strings.TrimSuffix(recipe.Node{Kind: recipe.Write}.Prefix(recipe.Mark{Owner: someOwner, Label: recipe.Digest("l")}, 9), "__WRIT__") + name
		w.do(w.admin, zk.Create(recipe.Numbered(base, 7), []byte("hasp/2 unknown"), w.admin.acl, zk.Persistent))
		for _, r := range []contend.Owner{ask(key), queued(ask(key))} {
			_, err := contend.Try(w.ctx, d, r)
			if err == nil || d.Classify(err) != driver.ClassMisconfigured || !strings.Contains(err.Error(), "upgrade this program") {
				t.Errorf("layout %d: %v", layout, err)
			}
		}
		info, err := d.Inspect(w.ctx, key)
		if err != nil || info.Leases+info.Waiters != 1 {
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
	name := recipe.Numbered(recipe.Node{Kind: recipe.Write}.Prefix(recipe.MarkOf(r.Claim()), 9), 7)
	w.do(w.admin, zk.Create(d.dir("k")+"/"+name, []byte("hasp/2 unknown"), w.admin.acl, zk.Persistent))
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
