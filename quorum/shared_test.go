// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
)

func reads(key string) contend.Owner {
	r := asks(key)
	r.Mode = driver.Shared
	return r
}

// only lets an owner's Tries through to some nodes.
func only(all []*spy, owners map[string][]int) {
	for i, n := range all {
		n.on(func(r voting.VoteRequest) error {
			if at, ok := owners[r.Owner]; ok && !slices.Contains(at, i) {
				return errors.New("lost on the way")
			}
			return nil
		})
	}
}

func release(t testing.TB, d driver.Driver, r contend.Owner) {
	t.Helper()
	need(t, contend.Release(t.Context(), d, r))
}

func renewed(t *testing.T, d *Driver, r contend.Owner) driver.Renewal {
	t.Helper()
	var got driver.Renewal
	contend.Renew(t.Context(), d, []contend.Owner{r}, func(_ int, r driver.Renewal) { got = r })
	synctest.Wait()
	return got
}

// lease returns what an owner has at a node, or nil.
func (s *spy) lease(t *testing.T, r contend.Owner) *driver.Holding {
	t.Helper()
	info, err := s.Inspect(t.Context(), r.Key)
	need(t, err)
	for _, l := range info.Holders {
		if l.Holder.Owner == r.Owner {
			return &l
		}
	}
	return nil
}

// restarted is a node that forgot everything, and was admitted.
func (s *spy) restarted(t *testing.T) {
	t.Helper()
	s.Restart(nil)
	admit(t, s, ruleTTL)
}

// Readers need a majority each, whichever it is; a writer one where nobody reads.
func TestReadersMajoritiesOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 5)
		readers := []contend.Owner{reads("k"), reads("k"), reads("k")}
		only(nodes, map[string][]int{readers[0].Owner: {0, 1, 2}, readers[1].Owner: {0, 2, 3}, readers[2].Owner: {0, 3, 4}})
		var most uint64
		for _, r := range readers {
			time.Sleep(time.Millisecond)
			most = max(most, granted(t, d, r).Fence)
		}
		synctest.Wait()
		only(nodes, nil)
		w, late := asks("k"), reads("k")
		w.Queue = true
		refused(t, d, w)
		hints, err := contend.Watch(t.Context(), d, w)
		need(t, err)
		refused(t, d, late) // a majority would have it
		for _, r := range readers {
			refused(t, d, w)
			release(t, d, r)
			synctest.Wait()
		}
		failIf(t, !hinted(hints), "the last reader left, and the writer was not told")
		fence := granted(t, d, w).Fence
		failIf(t, fence <= most, "the writer's fence is %d after %d of a reader", fence, most)
	})
}

// A reader whose proposal is overtaken by other readers' needs no second round.
func TestReadersNeedNoOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		other := over(t, nodes, nil)
		time.Sleep(time.Second)
		ahead := reads("k")
		other.clock.saw(uint64(time.Now().Add(time.Second).UnixMicro()))
		granted(t, other, ahead)
		r := reads("k")
		granted(t, d, r)
		synctest.Wait()
		for i, n := range nodes {
			asked := slices.DeleteFunc(n.asked("k"), func(q voting.VoteRequest) bool { return q.Owner != r.Owner })
			failIf(t, len(asked) != 1, "node %d was asked %d times", i, len(asked))
		}
	})
}

// Counting votes for a limit would admit more than that.
func TestLimitIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 5)
		tr := d.Traits()
		failIf(t, !tr.Shared || tr.Slots, "%+v", tr)
		r := reads("k")
		r.Limit = 3
		_, err := contend.Try(t.Context(), d, r)
		if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "there could be 5") {
			t.Errorf("three holders at most, with three of five votes each: %v", err)
		}
		failIf(t, d.Classify(err) != driver.ClassImpossible, "class %v", d.Classify(err))
		for _, n := range nodes {
			failIf(t, len(n.asked("k")) != 0, "a node was asked")
		}
	})
}

// plain is a node that shares nothing.
type plain struct{ *spy }

func (p plain) Traits() driver.Traits {
	t := p.spy.Traits()
	t.Shared = false
	return t
}

// All nodes must know what Shared means.
func TestNodeThatSharesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes := spies(t, 3)
		d := New([]voting.Node{nodes[0], plain{nodes[1]}, nodes[2]}, nil)
		t.Cleanup(func() { _ = d.Close() })
		if res, err := contend.Try(t.Context(), d, reads("k")); !errors.Is(err, driver.ErrUnsupported) || d.Traits().Shared {
			t.Errorf("%+v, %v", res, err)
		}
		granted(t, d, asks("k"))
	})
}

// A lease that stands loses nothing by a Try of its holder that too few nodes
// answer, and nobody in the queue is in its way.
func TestStandingLeaseAskedAgain(t *testing.T) {
	for name, mode := range map[string]driver.Mode{"exclusive": driver.Exclusive, "shared": driver.Shared} {
		bubbled(t, name, func(t *testing.T) {
			d, nodes := spies(t, 3)
			r := asks("k")
			r.Mode = mode
			r.Fence = granted(t, d, r).Fence
			synctest.Wait()
			again := r
			again.Fence = 0
			for _, n := range nodes[1:] {
				n.on(func(voting.VoteRequest) error { return errors.New("lost on the way") })
			}
			fails(t, d, again) // of one node
			only(nodes, nil)
			time.Sleep(time.Second)
			for i, n := range nodes {
				failIf(t, n.lease(t, r) == nil, "node %d has its vote no more", i)
			}
			nodes[0].Lose("k")
			nodes[0].Hold("k", ruleTTL, driver.Label{})
			again.Queue = true
			if res := granted(t, d, again); res.Fence != r.Fence {
				t.Errorf("the fence is %d, want %d", res.Fence, r.Fence)
			}
			synctest.Wait()
			if info, err := nodes[0].Inspect(t.Context(), "k"); err != nil || info.Waiters != 0 {
				t.Errorf("a holder stands in the queue: %+v, %v", info, err)
			}
			check(t, renewed(t, d, r).Err)
			nodes[1].Lose("k")
			nodes[1].Hold("k", ruleTTL, driver.Label{})
			again.Queue = false
			refused(t, d, again) // lost: what is left goes back
			synctest.Wait()
			failIf(t, nodes[2].lease(t, r) != nil, "the rest of a lease that is lost stays")
		})
	}
}

// Of three nodes one has the lease, one has another's, and one is silent: it may
// stand.
func TestLeaseInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		r := asks("k")
		granted(t, d, r)
		synctest.Wait()
		nodes[1].Lose("k")
		nodes[1].Hold("k", ruleTTL, driver.Label{})
		nodes[2].on(func(voting.VoteRequest) error { return errOnTheWay })
		_, err := contend.Try(t.Context(), d, r)
		if err == nil || !strings.Contains(err.Error(), "1 of 3") || !strings.Contains(err.Error(), errVoteGone.Error()) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if nodes[0].lease(t, r) == nil || nodes[2].lease(t, r) == nil {
			t.Error("a vote of a lease that may stand went back")
		}
	})
}

// A key whose nodes name different holders first is held by all of them.
func TestInspectMergesReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		readers := []contend.Owner{reads("k"), reads("k")}
		only(nodes, map[string][]int{readers[0].Owner: {0, 1}, readers[1].Owner: {0, 2}})
		fences := map[string]uint64{}
		for _, r := range readers {
			fences[r.Owner] = granted(t, d, r).Fence
			time.Sleep(time.Millisecond)
		}
		stray := reads("k")
		stray.Fence = d.clock.next()
		granted(t, nodes[1], stray)
		synctest.Wait()
		w := asks("k")
		w.Queue = true
		refused(t, d, w)
		synctest.Wait()
		info, err := d.Inspect(t.Context(), "k")
		need(t, err)
		var owners []string
		for _, l := range info.Holders {
			owners = append(owners, l.Holder.Owner)
			if l.Fence != fences[l.Holder.Owner] || l.Holder.Mode != driver.Shared || l.Left <= 0 {
				t.Errorf("%+v, want the fence %d", l, fences[l.Holder.Owner])
			}
		}
		if want := []string{readers[0].Owner, readers[1].Owner}; !slices.Equal(owners, want) || info.Leases != 2 || info.Holder.Owner != want[0] {
			t.Errorf("held by %v, want %v: %+v", owners, want, info)
		}
		if len(info.Queue) != 1 || info.Queue[0].Owner != w.Owner || info.Queue[0].Mode != driver.Exclusive {
			t.Errorf("the queue: %+v", info.Queue)
		}
		release(t, d, w)
		for info, err := range d.List(t.Context(), "k") {
			failIf(t, err != nil || info.Leases != 2 || info.Holders != nil, "listed as %+v, %v", info, err)
		}
	})
}
