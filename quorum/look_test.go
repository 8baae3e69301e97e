// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
)

// lease is one of an owner, as a node tells it.
func lease(owner string, mode driver.Mode, fence uint64) driver.Holding {
	return driver.Holding{Holder: driver.Holder{Owner: owner, Mode: mode, Since: time.Unix(1000, 0)}, Fence: fence, Left: time.Second}
}

func holding(ls ...driver.Holding) *driver.Info {
	i := &driver.Info{Holders: ls, Leases: len(ls), Held: len(ls) > 0}
	if i.Held {
		i.Holder, i.Fence, i.Left = ls[0].Holder, ls[0].Fence, ls[0].Left
	}
	return i
}

// Who holds a key is whom a majority of the nodes names, or may name: those that did not
// answer count for everybody. One that writes is alone.
func TestWhomAMajorityNames(t *testing.T) {
	const w, r = driver.Exclusive, driver.Shared
	none := holding()
	for name, c := range map[string]struct {
		known []*driver.Info // of three nodes
		want  []string
	}{
		"nobody":                                {[]*driver.Info{none, none, none}, nil},
		"a minority":                            {[]*driver.Info{holding(lease("A", w, 1)), none, none}, nil},
		"one, and another did not answer":       {[]*driver.Info{holding(lease("A", w, 1)), none}, []string{"A"}},
		"a majority":                            {[]*driver.Info{holding(lease("A", w, 1)), none, holding(lease("A", w, 1))}, []string{"A"}},
		"two who may have a majority":           {[]*driver.Info{holding(lease("A", w, 1)), holding(lease("B", w, 2))}, []string{"A"}},
		"two who read":                          {[]*driver.Info{holding(lease("A", r, 1), lease("B", r, 2)), holding(lease("B", r, 2), lease("A", r, 1)), none}, []string{"A", "B"}},
		"one who reads, then one who may write": {[]*driver.Info{holding(lease("A", r, 1)), holding(lease("B", w, 2))}, []string{"A"}},
		"one who writes, then one who may read": {[]*driver.Info{holding(lease("A", w, 1)), holding(lease("B", r, 2))}, []string{"A"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, _ := stubs(t)
			info := d.together("k", c.known)
			var got []string
			for _, l := range info.Holders {
				got = append(got, l.Holder.Owner)
			}
			if !slices.Equal(got, c.want) || info.Held != (len(c.want) > 0) || info.Leases != len(c.want) {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
			if info.Held && info.Holder.Owner != c.want[0] || !info.Held && info.Holder != (driver.Holder{}) {
				t.Errorf("%s: the holder is %+v", name, info.Holder)
			}
		})
	}
}

// What is not of one lease: the queue is that of the node where most wait, and statements
// that free a key are for one that somebody else's lock keeps for ever.
func TestWhatIsToldOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		one, two, less := holding(), holding(), holding()
		one.Waiters, one.Queue = 2, []driver.Holder{{Owner: "A"}, {Owner: "B"}}
		two.Waiters, two.Queue = 2, []driver.Holder{{Owner: "C"}, {Owner: "D"}}
		less.Waiters, less.Queue = 1, []driver.Holder{{Owner: "E"}}
		for _, known := range [][]*driver.Info{{less, one, two}, {one, two, less}} {
			if info := d.together("k", known); info.Waiters != 2 || len(info.Queue) != 2 || info.Queue[0].Owner != "A" {
				t.Errorf("%d wait: %v", info.Waiters, info.Queue)
			}
		}
		for _, c := range []struct {
			foreign bool
			left    time.Duration
			free    bool
		}{{true, -1, true}, {true, 0, false}, {true, time.Second, false}, {false, -1, false}} {
			l := lease("", driver.Exclusive, 0)
			l.Holder.Foreign, l.Left = c.foreign, c.left
			i := holding(l)
			i.FreeCommands = []string{"DEL k"}
			if got := d.together("k", []*driver.Info{i, i, i}).FreeCommands; slices.Equal(got, []string{"DEL k"}) != c.free || !c.free && got != nil {
				t.Errorf("foreign %v, %v left: %q", c.foreign, c.left, got)
			}
		}
		first := lease("A", driver.Exclusive, 1)
		later := first
		later.Holder.Since = first.Holder.Since.Add(time.Second)
		for _, votes := range [][]driver.Holding{{first, later, later}, {later, first, later}} {
			if got := d.merged(votes).Holder.Since; !got.Equal(first.Holder.Since) {
				t.Errorf("held since %v, want the first vote, %v", got, first.Holder.Since)
			}
		}
	})
}

// What a majority has is still found when a node of it has lost its data: until that votes again it does not say that a key is free.
func TestInspectAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		all[1].Hold("k", time.Minute, driver.Label{}) // and all[0] did, which has lost it
		for _, lost := range []bool{false, true} {
			if lost {
				d.nodes[0].setOut(heldFor(time.Minute))
			}
			if info, err := d.Inspect(t.Context(), "k"); err != nil || info.Held != lost {
				t.Errorf("a node is held back: %v; held: %v, %v", lost, info.Held, err)
			}
		}
		if info, err := d.Inspect(t.Context(), "free"); err != nil || info.Held {
			t.Errorf("%+v, %v", info, err)
		}
		synctest.Wait()
	})
}

// A node that is held back is asked, since what it has is still there; one that is away is
// not, but for its probe.
func TestWhoIsInspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		for _, s := range all {
			s.Hold("k", time.Second, driver.Label{})
			s.Hold("only listed", time.Second, driver.Label{})
		}
		d.nodes[0].setOut(heldFor(0))
		d.nodes[1].setOut(errGone)
		if info, err := d.Inspect(t.Context(), "k"); err != nil || !info.Held {
			t.Errorf("%+v, %v", info, err)
		}
		synctest.Wait()
		if a, b, c := all[0].inspects.Load(), all[1].inspects.Load(), all[2].inspects.Load(); a != 1 || b != 0 || c != 1 {
			t.Errorf("the nodes are asked %d, %d and %d times", a, b, c)
		}
		listed := 0
		all[1].list = func(func(driver.Info, error) bool) { t.Error("a node that is away is asked for its list") }
		for info, err := range d.List(t.Context(), "") {
			if listed++; err != nil || !info.Held {
				t.Errorf("%+v, %v", info, err)
			}
		}
		failIf(t, listed != 2, "%d keys are listed, want 2", listed)
	})
}

// A list has the keys that a majority holds, or may hold, or that somebody waits for. One
// node that fails is no reason not to know, two are.
func TestWhatIsListed(t *testing.T) {
	lists := func(infos ...driver.Info) func(func(driver.Info, error) bool) {
		return func(yield func(driver.Info, error) bool) {
			for _, i := range infos {
				if !yield(i, nil) {
					return
				}
			}
		}
	}
	fails := func(yield func(driver.Info, error) bool) { yield(driver.Info{}, errDenied) }
	held := *holding(lease("A", driver.Exclusive, 1))
	held.Key = "held"
	awaited := driver.Info{Key: "awaited", Waiters: 1}
	for name, c := range map[string]struct {
		nodes [3]func(func(driver.Info, error) bool)
		want  []string
		fails bool
	}{
		"a majority holds it":                 {[3]func(func(driver.Info, error) bool){lists(held), lists(), lists(held)}, []string{"held"}, false},
		"a minority holds it":                 {[3]func(func(driver.Info, error) bool){lists(held), lists(), lists()}, nil, false},
		"one holds it, another fails":         {[3]func(func(driver.Info, error) bool){lists(held), lists(), fails}, []string{"held"}, false},
		"somebody waits for it":               {[3]func(func(driver.Info, error) bool){lists(awaited), lists(), lists()}, []string{"awaited"}, false},
		"nobody holds it or waits":            {[3]func(func(driver.Info, error) bool){lists(driver.Info{Key: "free"}), lists(), lists()}, nil, false},
		"two nodes fail":                      {[3]func(func(driver.Info, error) bool){lists(held), fails, fails}, nil, true},
		"held, somebody waits for it as well": {[3]func(func(driver.Info, error) bool){lists(held, awaited), lists(held), lists()}, []string{"awaited", "held"}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, all := stubs(t)
			for i, s := range all {
				s.list = c.nodes[i]
			}
			var got []string
			var failed error
			for info, err := range d.List(t.Context(), "") {
				if err != nil {
					failed = err
					continue
				}
				got = append(got, info.Key)
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) || (failed != nil) != c.fails || c.fails && !errors.Is(failed, errDenied) {
				t.Errorf("%s: %q, %v, want %q", name, got, failed, c.want)
			}
			for _, err := range d.List(t.Context(), "") { // as a caller who has seen enough
				failIf(t, err != nil && !c.fails, "%s: %v", name, err)
				break
			}
		})
	}
}

// A key that is shared is looked at once more, since nodes list one of its holders each;
// when that fails, the list says so.
func TestListOfASharedKeyThatCannotBeInspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		for _, s := range all {
			shared := *holding(lease("A", driver.Shared, 1))
			shared.Key = "k"
			s.list = func(yield func(driver.Info, error) bool) { yield(shared, nil) }
			s.inspect = func(context.Context, string) (driver.Info, error) { return driver.Info{}, errDenied }
		}
		for info, err := range d.List(t.Context(), "") {
			failIf(t, err == nil, "%+v, want an error", info)
		}
	})
}
