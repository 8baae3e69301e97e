// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
)

func TestCheck(t *testing.T) {
	node := func() voting.Node { return memdriver.NewNode(memdriver.NodeOptions{MaxTTL: ruleTTL}) }
	one := node()
	for _, c := range []struct {
		name  string
		nodes []voting.Node
		o     *Options
		want  string // in the error; empty: none
	}{
		{"three", []voting.Node{node(), node(), node()}, nil, ""},
		{"none", nil, nil, "0 nodes"},
		{"one", []voting.Node{node()}, nil, "1 nodes"},
		{"four", []voting.Node{node(), node(), node(), node()}, nil, "an even number survives no more failures than 3"},
		{"nine", make([]voting.Node, 9), nil, "9 nodes"},
		{"nil", []voting.Node{node(), nil, node()}, nil, "node 2 is nil"},
		{"twice", []voting.Node{one, node(), one}, nil, "node 1 and node 3 are one driver"},
		{"no record", []voting.Node{node(), node(), memdriver.New()}, nil, "node 3 (memory) would vote again right after a restart"},
		{"another largest TTL", []voting.Node{node(), node(), memdriver.NewNode(memdriver.NodeOptions{MaxTTL: time.Hour})}, nil, "1h0m0s on node 3"},
		{"names", []voting.Node{node(), node(), node()}, &Options{Names: []string{"a"}}, "1 names for 3 nodes"},
		{"time-out", []voting.Node{node(), node(), node()}, &Options{NodeTimeout: -1}, "node time-out"},
	} {
		d := New(c.nodes, c.o)
		err := d.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if c.want == "" {
			continue
		}
		if _, err := hasp.New(d, nil); err == nil {
			t.Errorf("%s: hasp.New takes it", c.name)
		}
		if _, err := contend.Try(t.Context(), d, ask("k")); err == nil {
			t.Errorf("%s: Try goes on", c.name)
		}
		if err := d.Close(); err != nil {
			t.Errorf("%s: Close: %v", c.name, err)
		}
	}
}

// The fence of a holder is the majority's: one node may have granted it a larger
// one, which it asked for in vain elsewhere. Adopt goes by it.
func TestInspectNamesTheFenceOfTheMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 5)
		d, _ := connect(t, stores)
		r := ask("k")
		fence := mustTry(t, d, r).Fence
		synctest.Wait()
		one := r
		one.Fence, one.Raise = fence+1000, true
		res := mustTry(t, stores[3], one)
		stopIf(t, res.Fence != one.Fence, "%+v", res)
		info, err := d.Inspect(t.Context(), "k")
		if err != nil || info.Fence != fence {
			t.Errorf("the fence is %d, %v, want the %d of four nodes", info.Fence, err, fence)
		}
		other, _ := client(t, stores)
		lease, err := other.Operator().Adopt(t.Context(), "k", r.Owner, nil)
		need(t, err)
		failIf(t, lease.Fence() != fence, "adopted with the fence %d, want %d", lease.Fence(), fence)
	})
}

// One store that is listed twice has one vote.
func TestTwins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		stores[1] = stores[0]
		c, _ := client(t, stores)
		_, err := c.Mutex("k", nil).TryLock(t.Context())
		var e *hasp.Error
		if !errors.As(err, &e) || e.Class != driver.ClassMisconfigured || !strings.Contains(err.Error(), "are one server") {
			t.Fatalf("TryLock: %v, want one that names the twins", err)
		}
	})
}

// A vote that comes after the time of its node goes back when there is no lease.
func TestLateVoteGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		d, links := connect(t, stores)
		for _, s := range stores[1:] {
			s.Hold("k", ruleTTL, driver.Label{Host: "other"})
		}
		links[0].stop()
		r := ask("k")
		res := mustTry(t, d, r)
		stopIf(t, res.Granted, "granted by one of three: %+v", res)
		links[0].cont()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		n := votes(t, stores, "k", r.Owner)
		failIf(t, n != 0, "%d votes were not given back", n)
	})
}

// Nodes whose fences are ahead, by a clock that was wrong, are left out as long as
// there is a majority without them.
func TestNodeWithFencesAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 5)
		for i := range 2 {
			stores[i] = storesAhead(t, 1, time.Hour)[0]
		}
		c, _ := client(t, stores)
		fence := uint64(0)
		for range 10 {
			begun := time.Now()
			lease := mustLock(t, c, "k")
			failIf(t, time.Since(begun) > 100*time.Millisecond, "a lock took %v", time.Since(begun))
			if lease.Fence() <= fence || lease.Fence() > uint64(time.Now().Add(time.Minute).UnixMicro()) {
				t.Errorf("the fence is %d after %d", lease.Fence(), fence)
			}
			fence = lease.Fence()
			check(t, lease.Release())
		}
	})
}

// A renewal counts what nodes had without a gap: votes that they lost are asked
// for again, and count from the next one on.
func TestRenewalNeedsNoNewVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 5)
		d, _ := connect(t, stores)
		r := ask("k")
		r.Fence = mustTry(t, d, r).Fence
		synctest.Wait()
		lose := func(some []*memdriver.Store) {
			for _, s := range some {
				s.Lose("k")
			}
		}
		lose(stores[:2])
		need(t, renewed(t, d, r).Err) // three of five nodes have it
		n := votes(t, stores, "k", r.Owner)
		failIf(t, n != 5, "%d votes after the renewal, want all five again", n)
		lose(stores[2:])
		if a := renewed(t, d, r); !errors.Is(a.Err, driver.ErrNotHeld) {
			t.Errorf("three of five nodes lost it: %v, want ErrNotHeld", a.Err)
		}
		n = votes(t, stores, "k", r.Owner)
		failIf(t, n != 2, "%d votes after a renewal that failed, want the two that are left", n)
	})
}

// Whoever was granted the key in between keeps a lease from coming back.
func TestVotesDontComeBackAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		d, _ := connect(t, stores)
		a, b := ask("k"), ask("k")
		a.Fence = mustTry(t, d, a).Fence
		synctest.Wait()
		stores[2].Lose("k")
		between := contend.Owner{Key: "k", Owner: b.Owner, Label: b.Label, TTL: ruleTTL, Fence: a.Fence + 1000, Settled: true}
		res := mustTry(t, stores[2], between)
		stopIf(t, !res.Granted, "%+v", res)
		release(t, stores[2], between)
		contend.Renew(t.Context(), d, []contend.Owner{a}, func(int, driver.Renewal) {})
		synctest.Wait()
		n := votes(t, stores, "k", a.Owner)
		failIf(t, n != 2, "%d votes, want two: the third node granted a larger fence", n)
	})
}

// With many clients on one key somebody always gets it, everybody their share,
// and waiting is by message.
func TestManyWaiters(t *testing.T) {
	for name, shuffled := range map[string]bool{"one order": false, "each its own order": true} {
		bubbled(t, name, func(t *testing.T) {
			const clients, hold, span = 64, 5 * time.Millisecond, manySpan
			stores := newStores(t, 5)
			shares := make([]int, clients)
			ctx, cancel := context.WithTimeout(t.Context(), span)
			defer cancel()
			var wg sync.WaitGroup
			for i := range clients {
				mine := stores
				if shuffled {
					mine = append([]*memdriver.Store{}, stores...)
					rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
				}
				c, _ := client(t, mine)
				wg.Go(func() {
					for ctx.Err() == nil {
						lease, err := c.Mutex("k", nil).Lock(ctx)
						if err != nil {
							failIf(t, ctx.Err() == nil, "client %d: %v", i, err)
							return
						}
						time.Sleep(hold)
						shares[i]++
						if err := lease.Release(); err != nil {
							t.Errorf("client %d: %v", i, err)
						}
					}
				})
			}
			wg.Wait()
			total, most, least := 0, 0, int(span)
			for _, n := range shares {
				total += n
				most, least = max(most, n), min(least, n)
			}
			t.Logf("%d holds in %v, %d to %d for each", total, span, least, most)
			floor := int(span/hold) * 9 / 10 // nothing else takes time here
			if shuffled {
				floor /= 10
			}
			failIf(t, total < floor, "%d holds in %v, want %d at least", total, span, floor)
			if fair := total/clients + 1; most > 3*fair {
				t.Errorf("one client had %d of %d holds, which is more than 3 times its share", most, total)
			}
		})
	}
}

// A node that answers late, but does, costs no lock its time, also where it would
// be the queue node.
func TestSlowNode(t *testing.T) {
	for slow := range 3 {
		synctest.Test(t, func(t *testing.T) {
			stores := newStores(t, 3)
			c, links := client(t, stores)
			links[slow].delay(20 * time.Millisecond)
			for range 1000 {
				need(t, mustLock(t, c, "k").Release())
			}
			begun := time.Now()
			for range 100 {
				need(t, mustLock(t, c, "k").Release())
			}
			took := time.Since(begun)
			failIf(t, took > 100*time.Millisecond, "node %d is slow: 100 locks took %v", slow, took)
		})
	}
}

// Processes that live for less than a wait finish it together.
func TestWaitIsRemembered(t *testing.T) {
	dir := t.TempDir()
	stores := []*memdriver.Store{}
	for range 3 {
		stores = append(stores, memdriver.NewNode(memdriver.NodeOptions{MaxTTL: ruleTTL}))
	}
	left := func() (all []time.Duration) {
		d := over(t, stores, &Options{StateDir: dir})
		defer d.Close()
		for _, n := range d.Nodes(t.Context()) {
			stopIf(t, n.Voting || n.Left <= 0, "a new node: %+v", n)
			all = append(all, n.Left)
		}
		return all
	}
	first := left()
	if second := left(); fmt.Sprint(second) == fmt.Sprint(first) || second[0] >= first[0] {
		t.Errorf("%v are left, and for the next process %v", first, second)
	}
}
