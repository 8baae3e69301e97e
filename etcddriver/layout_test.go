// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func FuzzKeys(f *testing.F) {
	for _, key := range []string{"k", "a|b", "a%7Cb", "\x00", "%", "é", strings.Repeat("\xff", driver.MaxKey)} {
		f.Add(key, "k")
	}
	d := New(nil, nil)
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			return
		}
		key, class, id, ok := d.split(names{d.root(a), "id"}.name(writes))
		if !ok || key != a || class != writes || id != "id" {
			t.Fatalf("%q is read as %q, %c, %q, %v", a, key, class, id, ok)
		}
		if a != b && strings.HasPrefix(d.root(a), d.root(b)) {
			t.Fatalf("the root of %q is in that of %q", a, b)
		}
		if strings.HasPrefix(a, b) != strings.HasPrefix(escape(a), escape(b)) {
			t.Fatalf("List of %q would be wrong about %q", b, a)
		}
	})
}

func TestValues(t *testing.T) {
	t.Parallel()
	for _, label := range []string{"", " ", "a b", "1 2 3", "\x00\n"} {
		s := stored{holds, 3, 2, 64, 99, true, label}
		if got, ok := parse(s.String()); !ok || got != s {
			t.Errorf("%+v is read as %+v, %v", s, got, ok)
		}
	}
	for _, bad := range []string{"", "1", "1 0 0 1 0 0", "2 0 0 1 0 0 l", "1 0 0 x 0 0 l", "1 -1 0 1 0 0 l", "11 0 0 1 0 0 l"} {
		if got, ok := parse(bad); ok {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

// TestForeignData: what hasp did not write below a lock is never deleted, and nobody has the lock.
func TestForeignData(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		a := ask(claim("k"), time.Minute)
		n := d.names(a.ID())
		for _, key := range []string{n.root + "w|x", n.root + "d|" + n.id, n.root + "w", n.name(writes)} {
			if _, err := d.client.Put(t.Context(), key, "theirs"); err != nil {
				t.Fatal(err)
			}
			var data *DataError
			if res, err := d.Try(t.Context(), ask(claim("k"), time.Minute)); !errors.As(err, &data) || d.Classify(err) != driver.ClassImpossible {
				t.Errorf("beside %q: %+v, %v", key, res, err)
			}
			if got, err := d.client.Get(t.Context(), key); err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "theirs" {
				t.Errorf("%q is %v now, %v", key, got, err)
			}
			if _, err := d.client.Delete(t.Context(), n.root, clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
		}
		grant(t, d, a)
	})
}
