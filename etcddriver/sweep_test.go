// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/testserver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// left lists what is left over, by its name in etcd.
func left(t testing.TB, d *Driver, prefix string) map[string]operator.Leftover {
	t.Helper()
	all := map[string]operator.Leftover{}
	for l, err := range d.ListLeftovers(t.Context(), prefix, nil) {
		if err != nil {
			t.Fatalf("ListLeftovers: %v", err)
		}
		all[l.Name] = l
	}
	return all
}

// only returns the one thing that is left over.
func only(t testing.TB, d *Driver) operator.Leftover {
	t.Helper()
	all := left(t, d, "")
	if len(all) != 1 {
		t.Fatalf("left over are %+v, want one", all)
	}
	return slices.Collect(maps.Values(all))[0]
}

// removes fails unless a leftover is removed, and kept for so long nevertheless.
func removes(t testing.TB, d *Driver, l operator.Leftover, stays time.Duration) {
	t.Helper()
	if got, err := d.RemoveLeftover(t.Context(), l); err != nil || got != stays {
		t.Fatalf("RemoveLeftover of %+v: %v, %v, want %v", l, got, err, stays)
	}
}

// leavesIt fails unless a leftover is no longer as it was listed.
func leavesIt(t testing.TB, d *Driver, l operator.Leftover) {
	t.Helper()
	if _, err := d.RemoveLeftover(t.Context(), l); !errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("RemoveLeftover of %+v: %v, want ErrNotHeld", l, err)
	}
}

func put(t testing.TB, d *Driver, name, value string) {
	t.Helper()
	if _, err := d.client.Put(t.Context(), name, value); err != nil {
		t.Fatal(err)
	}
}

func del(t testing.TB, d *Driver, name string) {
	t.Helper()
	if got, err := d.client.Delete(t.Context(), name); err != nil || got.Deleted != 1 {
		t.Fatalf("delete %q: %v, %v", name, got, err)
	}
}

// desert has somebody take the lease from an owner's key, and the owner end.
func desert(t testing.TB, d *Driver, r driver.TryRequest, class byte) (name string) {
	t.Helper()
	name = d.names(r.ID()).name(class)
	lease, found := own(t, d, r, class)
	if !found {
		t.Fatalf("the owner has no key in the class %c", class)
	}
	persist(t, d.client, name)
	if _, err := d.client.Revoke(t.Context(), clientv3.LeaseID(lease)); err != nil {
		t.Fatal(err)
	}
	return name
}

// compact forgets all versions but the present ones.
func compact(t testing.TB, d *Driver) {
	t.Helper()
	got, err := d.client.Get(t.Context(), "x")
	if err == nil {
		_, err = d.client.Compact(t.Context(), got.Header.Revision)
	}
	must(t, err)
}

func reader(r driver.TryRequest) driver.TryRequest {
	r.Mode = driver.Shared
	return r
}

// TestStride: the way through the names misses none, takes none twice, and counts few of them.
func TestStride(t *testing.T) {
	t.Parallel()
	const prefix, page, crowd, n = "p/", 10, 40, 4000
	alphabet := []byte("!#%09AZaz|~\x7f\xff\x00")
	word := func() string {
		b := make([]byte, 1+rand.IntN(6))
		for i := range b {
			b[i] = alphabet[rand.IntN(len(alphabet))]
		}
		return string(b)
	}
	for shape, name := range map[string]func(i int) string{
		"numbered":      func(i int) string { return fmt.Sprintf("orders/%07d|w|x", i) },
		"one queue":     func(int) string { return "k|w|" + fmt.Sprint(rand.Uint64()) },
		"far apart":     func(i int) string { return strings.Repeat("k", i%8) + word() },
		"random":        func(int) string { return word() + word() },
		"nested":        func(i int) string { return strings.Repeat("a", i/80) + "|" + word() },
		"two crowds":    func(i int) string { return string("az"[i%2]) + fmt.Sprint(i) },
		"outside, only": func(int) string { return "\x01" },
	} {
		var names []string
		for i := range n {
			names = append(names, prefix+name(i))
		}
		names = append(names, "o", "p", "p0", "q")
		slices.Sort(names)
		names = slices.Compact(names)
		var want, found []string
		for _, name := range names {
			if strings.HasPrefix(name, prefix) && name >= prefix+"!" {
				want = append(want, name)
			}
		}
		counted, asked := 0, 0
		for w := newStride(prefix, page, crowd); !w.over; asked++ {
			end := w.end()
			if end <= w.from {
				t.Fatalf("%s: from %q to %q", shape, w.from, end)
			}
			i, _ := slices.BinarySearch(names, w.from)
			j, _ := slices.BinarySearch(names, end)
			got := &clientv3.GetResponse{Count: int64(j - i), More: j-i > page}
			for _, name := range names[i:min(j, i+page)] {
				got.Kvs, found = append(got.Kvs, &mvccpb.KeyValue{Key: []byte(name)}), append(found, name)
			}
			counted += int(got.Count)
			w.next(end, got)
		}
		if !slices.Equal(found, want) {
			t.Errorf("%s: %d names are found, want %d", shape, len(found), len(want))
		}
		t.Logf("%s: %d names, %d requests, which counted %d", shape, len(want), asked, counted)
		if counted > 20*n || asked > 4*n/page {
			t.Errorf("%s: %d requests counted %d of %d names", shape, asked, counted, len(want))
		}
	}
	all := newStride("\xff", page, crowd) // nothing is behind these
	if end := all.end(); end != "\x00" {
		t.Errorf("the end of all is %q", end)
	}
	if all.next(all.end(), &clientv3.GetResponse{}); !all.over {
		t.Error("the end of all is not the last")
	}
}

// TestLeftoversWalk: all is found that is below the prefix, which is a text, over any number of pages.
func TestLeftoversWalk(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		const n = sweepCrowd + sweepPage
		d := open(t, s.Addr())
		l, err := d.client.Grant(t.Context(), 3600)
		must(t, err)
		holder := stored{state: holds, many: 1, label: "held"}
		var ops []clientv3.Op
		flush := func() {
			t.Helper()
			if _, err := d.client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
			ops = nil
		}
		for i := range n {
			c := claim(fmt.Sprint("n", i))
			ops = append(ops, clientv3.OpPut(d.names(c.ID()).name(writes), holder.String(), clientv3.WithLease(l.ID)))
			if len(ops) == chunk {
				flush()
			}
		}
		for _, key := range []string{"a*", "ab", "a|b", "b", "\x00\n", "\xff\xfe", strings.Repeat("%", driver.MaxKey)} {
			ops = append(ops, clientv3.OpPut(d.names(claim(key).ID()).name(writes), holder.String()))
		}
		for _, name := range []string{"hasp/", "hasp/k", "hasp/k|", "hasp/k|a|x", "hasp/k|z|x", "hasp/k|z", "hasp/%41|w|x", "hasp.k|w|x"} { // no lock's
			ops = append(ops, clientv3.OpPut(name, "x"))
		}
		flush()
		held := 0
		for _, err := range d.ListLeftovers(t.Context(), "", func(i driver.Info) {
			if held++; !i.Held || i.Left < time.Minute || i.Left > time.Hour || i.Fence == 0 || i.Holder.Label != "held" || i.Key[0] != 'n' {
				t.Errorf("held is %+v", i)
			}
		}) {
			must(t, err)
		}
		if held != n {
			t.Errorf("%d are held, want %d", held, n)
		}
		for prefix, want := range map[string]int{"a": 3, "a*": 1, "a|": 1, "\x00": 1, "\xff": 1, "%": 1, "%%": 1, "": 7, "none": 0, "n": 0} {
			if all := left(t, d, prefix); len(all) != want {
				t.Errorf("of %q there are %d left over, want %d", prefix, len(all), want)
			}
		}
		for _, err := range d.ListLeftovers(t.Context(), "", nil) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for l, err := range d.ListLeftovers(ctx, "", nil) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("after the end of its context: %+v, %v", l, err)
			}
		}
	})
}

// TestForeignLeftovers: what hasp did not write stands in the way of a lock for ever. It goes only while it is what was seen.
func TestForeignLeftovers(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		for _, key := range []string{"k", "\x1b]0;t\a\n\u202e", "\xff", "a|b"} {
			n := d.names(claim(key).ID())
			value := "peer\x00\n" + strings.Repeat("x", driver.MaxLabel)
			for _, name := range []string{n.root + "w|x", n.root + "d|" + n.id, n.root + "w", n.name(writes), n.name(reads), n.root + "u|\xff"} {
				put(t, d, name, value)
				l := only(t, d)
				if l.Key != key || l.Name != name || !l.Foreign() || l.Live || l.Fence != 0 || l.Holder.Label != value[:driver.MaxLabel] {
					t.Fatalf("%q is listed as %+v", name, l)
				}
				put(t, d, name, value)
				leavesIt(t, d, l)
				l = only(t, d)
				live := l
				live.Live = true
				leavesIt(t, d, live)
				unnamed := l
				unnamed.Holder.Foreign = false
				if _, err := d.RemoveLeftover(t.Context(), unnamed); err == nil || errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("another program's is removed as ours: %v", err)
				}
				removes(t, d, l, 0)
				leavesIt(t, d, l)
				a := ask(claim(key), time.Minute)
				grant(t, d, a)
				leavesIt(t, d, l)
				give(t, d, a, driver.EndFinished)
			}
		}
		on, err := d.client.Grant(t.Context(), 60)
		if err == nil {
			_, err = d.client.Put(t.Context(), d.root("k")+"w|x", "peer", clientv3.WithLease(on.ID))
		}
		if all := left(t, d, ""); err != nil || len(all) != 0 {
			t.Errorf("with a lease: %+v, %v", all, err)
		}
	})
}

// TestLeftoverOfAWriter: while the lease stands that its key was on it is not removed, and then the key is abandoned, whether
// its mark stands or not.
func TestLeftoverOfAWriter(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		for _, mark := range []string{"stands", "gone", "permanent"} {
			a := ask(claim("k"), time.Minute)
			fence := grant(t, d, a).Fence
			n := d.names(a.ID())
			persist(t, d.client, n.name(writes))
			persist(t, d.client, n.name(writes)) // once more: the version before has no lease either
			l := only(t, d)
			if !l.Live || l.Kind != operator.LeftLease || l.Fence != fence || l.Holder.Owner != a.Owner || l.Name != n.name(writes) {
				t.Fatalf("%s: listed as %+v", mark, l)
			}
			leavesIt(t, d, l)
			l.Live = false
			leavesIt(t, d, l)
			switch mark {
			case "gone":
				del(t, d, n.name(unfinished))
			case "permanent":
				persist(t, d.client, n.name(unfinished))
			}
			renewed(t, d, a)
			if all := left(t, d, ""); len(all) != 0 {
				t.Fatalf("%s: after a renewal there is left over %+v", mark, all)
			}
			desert(t, d, a, writes)
			switch mark {
			case "gone":
				del(t, d, n.name(unfinished))
			case "permanent":
				persist(t, d.client, n.name(unfinished))
			}
			l = only(t, d)
			if l.Live {
				t.Fatalf("%s: it is not renewed: %+v", mark, l)
			}
			removes(t, d, l, 0)
			leavesIt(t, d, l)
			if all := left(t, d, ""); len(all) != 0 {
				t.Fatalf("%s: left over are %+v", mark, all)
			}
			b := ask(claim("k"), time.Minute)
			if !grant(t, d, b).Abandoned {
				t.Errorf("%s: the key is not abandoned", mark)
			}
			give(t, d, b, driver.EndFinished)
		}
	})
}

// TestLeftoverFromACopy: what was written without a lease from the start is a copy of hasp's, of no owner.
func TestLeftoverFromACopy(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		a := reader(ask(claim("k"), time.Minute))
		grant(t, d, a)
		name := d.names(a.ID()).name(reads)
		got, err := d.client.Get(t.Context(), name)
		must(t, err)
		give(t, d, a, driver.EndFinished)
		put(t, d, name, string(got.Kvs[0].Value))
		compact(t, d)
		l := only(t, d)
		if l.Live || l.Holder.Owner != a.Owner {
			t.Fatalf("listed as %+v", l)
		}
		removes(t, d, l, 0)
		grant(t, d, ask(claim("k"), time.Minute))
	})
}

// TestLeftoverWithoutHistory: what cannot be known to be gone expires, later than any holder needs to renew it.
func TestLeftoverWithoutHistory(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		for what, c := range map[string]struct {
			r     func(driver.TryRequest) driver.TryRequest
			class byte
			spoil func(mark string)
			live  bool
			stays time.Duration
		}{
			"a writer":                   {func(r driver.TryRequest) driver.TryRequest { return r }, writes, func(string) {}, true, 0},
			"its mark has expired":       {func(r driver.TryRequest) driver.TryRequest { return r }, writes, func(mark string) { del(t, d, mark) }, false, 0},
			"its mark is permanent, too": {func(r driver.TryRequest) driver.TryRequest { return r }, writes, func(mark string) { persist(t, d.client, mark) }, false, holderKeep + window},
			"a reader":                   {reader, reads, func(string) {}, false, holderKeep + window},
		} {
			a := c.r(ask(claim("k"), time.Minute))
			grant(t, d, a)
			n := d.names(a.ID())
			persist(t, d.client, n.name(c.class))
			c.spoil(n.name(unfinished))
			compact(t, d)
			l := only(t, d)
			if l.Live != c.live || l.Kind != operator.LeftLease {
				t.Errorf("%s: listed as %+v", what, l)
			}
			if l.Live = false; c.live {
				leavesIt(t, d, l)
			} else {
				removes(t, d, l, c.stays)
				leavesIt(t, d, l)
			}
			if c.stays > 0 {
				if on, _ := own(t, d, a, c.class); on == 0 {
					t.Errorf("%s: it has no lease", what)
				}
				renewed(t, d, a)
			}
			if len(left(t, d, "")) > 0 != c.live {
				t.Errorf("%s: left over are %+v", what, left(t, d, ""))
			}
			_ = d.Release(t.Context(), driver.ReleaseRequest{Claim: a.Claim, TTL: a.TTL, Settled: true}) // where it is there still
			b := ask(claim("k"), time.Minute)
			grant(t, d, b)
			give(t, d, b, driver.EndFinished)
		}
	})
}

// TestPlacesLeftOver: a waiter's key without a lease is none while the lease stands that it was on.
func TestPlacesLeftOver(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, other := open(t, s.Addr()), open(t, s.Addr())
		holder, dead, live := ask(claim("k"), time.Minute), ask(claim("k"), time.Minute), ask(claim("k"), time.Minute)
		grant(t, d, holder)
		refuse(t, other, dead)
		refuse(t, d, live)
		persist(t, d.client, d.names(live.ID()).name(writes))
		if all := left(t, d, ""); len(all) != 0 {
			t.Fatalf("of a waiter there is left over %+v", all)
		}
		name := desert(t, other, dead, writes)
		l := only(t, d)
		if l.Kind != operator.LeftPlace || l.Name != name || l.Holder.Owner != dead.Owner || l.Holder.Label != dead.Label || l.Live || l.Fence != 0 {
			t.Fatalf("listed as %+v", l)
		}
		persist(t, d.client, name)
		leavesIt(t, d, l)
		removes(t, d, only(t, d), 0)
		give(t, d, holder, driver.EndFinished)
		if res := grant(t, d, live); res.Abandoned {
			t.Errorf("a waiter that is gone has abandoned the key: %+v", res)
		}

		refuse(t, other, dead)
		desert(t, other, dead, writes)
		compact(t, d)
		removes(t, d, only(t, d), placeKeep+window)
		if on, _ := own(t, d, dead, writes); on == 0 {
			t.Error("it has no lease")
		}
	})
}

// TestSidecarsLeftOver: the mark of a lock that is gone, and an owner that was released, expire as they would have.
func TestSidecarsLeftOver(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		a := ask(claim("k"), time.Minute)
		grant(t, d, a)
		n := d.names(a.ID())
		persist(t, d.client, n.name(unfinished))
		if all := left(t, d, ""); len(all) != 0 {
			t.Errorf("beside a lock: %+v", all)
		}
		del(t, d, n.name(writes))
		l := only(t, d)
		if l.Kind != operator.LeftSidecar || l.Key != "k" || l.Name != n.name(unfinished) || l.Holder != (driver.Holder{}) {
			t.Errorf("listed as %+v", l)
		}
		removes(t, d, l, memory+window)
		leavesIt(t, d, l)
		b := ask(claim("k"), time.Minute)
		if !grant(t, d, b).Abandoned {
			t.Error("the key is not abandoned any more")
		}
		put(t, d, n.name(released), "")
		l = only(t, d)
		if l.Kind != operator.LeftSidecar || l.Name != n.name(released) {
			t.Errorf("listed as %+v", l)
		}
		removes(t, d, l, tombTTL+window)
		if all := left(t, d, ""); len(all) != 0 {
			t.Errorf("left over are %+v", all)
		}
	})
}

// TestRemovalOvertaken: whatever happens between the look at a leftover and its removal, the removal does nothing.
func TestRemovalOvertaken(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, p := tapped(t, s.Addr())
		other := open(t, s.Addr())
		for n := int64(1); n <= 2; n++ { // the try to put it on its lease again, and the removal
			a := ask(claim("k"), time.Minute)
			grant(t, other, a)
			desert(t, other, a, writes)
			l := only(t, d)
			p.before(n, func() { renewed(t, other, a) })
			leavesIt(t, d, l)
			p.before(1, func() {})
			if info, err := d.Inspect(t.Context(), "k"); err != nil || info.Holder.Owner != a.Owner {
				t.Errorf("it was taken from its holder: %+v, %v", info, err)
			}
			give(t, other, a, driver.EndFinished)
		}
		put(t, other, d.root("k")+"w|x", "peer")
		l := only(t, d)
		p.before(1, func() { put(t, other, l.Name, "peer") })
		leavesIt(t, d, l)
	})
}

// TestLeftoverAskedOfALaggard: a member that does not know a lease yet says that it has ended. That removes nothing.
func TestLeftoverAskedOfALaggard(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		a := ask(claim("k"), time.Minute)
		grant(t, d, a)
		lease, _ := own(t, d, a, writes)
		name := d.names(a.ID()).name(writes)
		persist(t, d.client, name)
		blind := forgetful(t, s.Addr(), func(r *pb.LeaseTimeToLiveResponse) { r.TTL = -1 })
		l := only(t, blind)
		if l.Live {
			t.Fatalf("listed as %+v", l)
		}
		stays, err := blind.RemoveLeftover(t.Context(), l)
		if again, _ := own(t, d, a, writes); err != nil || again != lease {
			t.Errorf("it is on the lease %d, want %d; %v, %v", again, lease, stays, err)
		}
		renewed(t, d, a)
	})
}

// TestLeftoversOfOthersAreRefused: a State that came from elsewhere removes nothing.
func TestLeftoversOfOthersAreRefused(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		a := ask(claim("k"), time.Minute)
		grant(t, d, a)
		name := desert(t, d, a, writes)
		put(t, d, "hasp/other", "x")
		l := only(t, d)
		for _, change := range []func(*operator.Leftover){
			func(l *operator.Leftover) { l.Key = "" }, func(l *operator.Leftover) { l.Key = "other" }, func(l *operator.Leftover) { l.Name = "other" },
			func(l *operator.Leftover) { l.Name = "hasp/other" }, func(l *operator.Leftover) { l.State = "" }, func(l *operator.Leftover) { l.State = "0" },
			func(l *operator.Leftover) { l.Kind = "other" }, func(l *operator.Leftover) { l.Kind = operator.LeftPlace }, func(l *operator.Leftover) { l.Kind = operator.LeftSidecar },
			func(l *operator.Leftover) { l.Holder.Foreign = true },
		} {
			bad := l
			change(&bad)
			if _, err := d.RemoveLeftover(t.Context(), bad); err == nil {
				t.Errorf("removed %+v", bad)
			}
		}
		if got, err := d.client.Get(t.Context(), name); err != nil || len(got.Kvs) != 1 {
			t.Errorf("it is gone: %v, %v", got, err)
		}
		broken := New(nil, nil)
		for _, err := range broken.ListLeftovers(t.Context(), "", nil) {
			if err == nil {
				t.Error("a driver without a client lists")
			}
		}
		if _, err := broken.RemoveLeftover(t.Context(), l); err == nil {
			t.Error("a driver without a client removes")
		}
	})
}
