// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
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

// TestForeignData: what hasp did not write below a lock is never deleted, and no owner has the lock.
func TestForeignData(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		a := ask(claim("k"), time.Minute)
		n := d.names(a.ID())
		for _, key := range []string{n.root + "w|x", n.root + "d|" + n.id, n.root + "w", n.name(writes)} {
			put(t, d, key, "theirs")
			var data *DataError
			if res, err := d.Try(t.Context(), ask(claim("k"), time.Minute)); !errors.As(err, &data) || d.Classify(err) != driver.ClassImpossible {
				t.Errorf("beside %q: %+v, %v", key, res, err)
			}
			for info, err := range d.List(t.Context(), "") { // it hides no other key
				if err != nil || info.Key != "k" {
					t.Errorf("beside %q List says %+v, %v", key, info, err)
				}
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

// TestNewerLayout: what a newer hasp wrote is refused with an error that says so, stays as it is, and costs no holder
// its lease.
func TestNewerLayout(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		a := ask(claim("k"), time.Minute)
		a.Queue = false // a place comes before the look
		n, other := d.names(a.ID()), d.names(claim("k").ID())
		const newer = "v2 anything"
		refused := func(what string, err error) {
			t.Helper()
			if d.Classify(err) != driver.ClassImpossible || err == nil || !strings.Contains(err.Error(), "written by a newer hasp (layout 2; this build knows 1): upgrade this program") {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, key := range []string{other.name(writes), other.name(unfinished), n.root + "f|anything", n.name(slotted)} {
			put(t, d, key, newer)
			_, err := d.Try(t.Context(), a)
			refused("Try", err)
			_, err = d.Inspect(t.Context(), "k")
			refused("Inspect", err)
			for info, err := range d.List(t.Context(), "") {
				if err != nil || info.Key != "k" || info.Holder.String() != `a foreign client (value "(a newer hasp, layout 2)")` {
					t.Errorf("List says %+v, %v", info, err)
				}
			}
		}
		refused("Release", d.Release(t.Context(), driver.ReleaseRequest{Claim: a.Claim, TTL: a.TTL, Settled: true}))
		refused("Renew", renew(t, d, a)[0].Err)
		var last error
		for l, err := range d.ListLeftovers(t.Context(), "", nil) {
			if last = err; err == nil {
				t.Errorf("left over: %+v", l)
			}
		}
		refused("ListLeftovers", last)
		_, err := d.RemoveLeftover(t.Context(), operator.Leftover{Key: "k", Name: other.name(writes), Kind: operator.LeftLease, State: modified(t, d, other.name(writes))})
		refused("RemoveLeftover", err)
		if all := everything(t, d.client, n.root, false); len(all) != 4 {
			t.Errorf("of four keys there are %q", all)
		}
		if _, err := d.client.Delete(t.Context(), n.root, clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}

		grant(t, d, a)
		put(t, d, other.name(writes), newer)
		age(d, 30*time.Second)
		if got := renewed(t, d, a); got.TTL < a.TTL {
			t.Errorf("beside a newer waiter: %+v", got)
		}
		give(t, d, a, driver.EndFinished)
	})
}

// modified is the revision that a key was written at.
func modified(t *testing.T, d *Driver, name string) string {
	t.Helper()
	got, err := d.client.Get(t.Context(), name)
	if err != nil || len(got.Kvs) == 0 {
		t.Fatalf("%q: %v, %v", name, got, err)
	}
	return strconv.FormatInt(got.Kvs[0].ModRevision, 10)
}
