// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
)

// listened counts the subscriptions at each node that were begun, and that are open.
type listened struct {
	mu          sync.Mutex
	begun, open [3]int
	confirms    [3]chan struct{} // closed when the node confirms; nil: at once
	fails       [3]error
}

func (l *listened) at(i int) func(context.Context) (<-chan driver.Hint, error) {
	return func(ctx context.Context) (<-chan driver.Hint, error) {
		l.mu.Lock()
		l.begun[i]++
		confirms, fails := l.confirms[i], l.fails[i]
		l.mu.Unlock()
		if confirms != nil {
			select {
			case <-confirms:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if fails != nil {
			return nil, fails
		}
		l.mu.Lock()
		l.open[i]++
		l.mu.Unlock()
		context.AfterFunc(ctx, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.open[i]--
		})
		return make(chan driver.Hint), nil
	}
}

func (l *listened) want(t *testing.T, when string, begun, open [3]int) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun != begun || l.open != open {
		t.Errorf("%s: begun %v, open %v, want %v and %v", when, l.begun, l.open, begun, open)
	}
}

func (l *listened) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// listens is a watch that listens at node 0, the queue node.
func listens(t *testing.T) (*Driver, *listened, <-chan driver.Hint) {
	t.Helper()
	d, all := stubs(t)
	l := &listened{}
	for i, s := range all {
		s.watch = l.at(i)
	}
	granted(t, d, asks("k"))
	synctest.Wait()
	hints, err := d.Watch(t.Context(), asks("k").Claim())
	need(t, err)
	l.want(t, "at first", [3]int{1}, [3]int{1})
	return d, l, hints
}

func hinted(hints <-chan driver.Hint) bool {
	synctest.Wait()
	select {
	case <-hints:
		return true
	default:
		return false
	}
}

// Who found too few nodes is told when they are enough again, and not of each node that comes back.
func TestWatchIsToldOfAMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, hints := listens(t)
		turn := func(i int, out error, told bool) {
			t.Helper()
			d.nodes[i].setOut(out)
			failIf(t, hinted(hints) != told, "node %d is out: %v; told: %v", i, out, !told)
		}
		turn(2, errSilent, false)
		turn(2, nil, false) // there was a majority all the time
		turn(2, errSilent, false)
		turn(1, errSilent, false)
		turn(2, nil, true)
		turn(1, nil, false)
	})
}

// leaves returns a watch on its way to the queue at node 1, and what confirms that it is heard there.
func leaves(t *testing.T) (d *Driver, l *listened, hints <-chan driver.Hint, confirmed chan struct{}) {
	t.Helper()
	d, l, hints = listens(t)
	confirmed = make(chan struct{})
	l.set(func() { l.confirms[1] = confirmed })
	queueAt(d, 1)
	l.want(t, "on its way", [3]int{1, 1}, [3]int{1})
	return d, l, hints, confirmed
}

// A watch stays at the old queue node until it is heard at the new one, and is told then,
// since what was said in between is lost.
func TestWatchFollowsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, hints, confirmed := leaves(t)
		failIf(t, hinted(hints), "told before it is heard there")
		close(confirmed)
		l.want(t, "there", [3]int{1, 1}, [3]int{0, 1})
		failIf(t, !hinted(hints), "not told that it is heard there")
		if time.Sleep(10 * time.Second); hinted(hints) {
			t.Error("told without a reason")
		}
		l.want(t, "later", [3]int{1, 1}, [3]int{0, 1})
	})
}

// The queue is back before the watch has left: it stays, and gives up the way.
func TestQueueComesBackToAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, l, hints, confirmed := leaves(t)
		queueAt(d, 0)
		l.want(t, "back", [3]int{1, 1}, [3]int{1})
		failIf(t, !hinted(hints), "not told that the queue is back, where its place may be gone")
		close(confirmed)
		l.want(t, "confirmed, and nobody wants it", [3]int{1, 1}, [3]int{1})
		failIf(t, !d.nodes[1].serving(), "the node that was left is taken for silent")
		queueAt(d, 1)
		l.want(t, "there once more", [3]int{1, 2}, [3]int{0, 1})
	})
}

// The queue moves on before the watch has arrived: it goes to where the queue is now.
func TestQueueMovesOnBeforeAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, l, _, confirmed := leaves(t)
		queueAt(d, 2)
		l.want(t, "where the queue is now", [3]int{1, 1, 1}, [3]int{0, 0, 1})
		close(confirmed)
		l.want(t, "later", [3]int{1, 1, 1}, [3]int{0, 0, 1})
	})
}

// thereAndBack moves the queue twice before anybody sees the first.
func thereAndBack(d *Driver) {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.moved)
	d.moved = make(chan struct{})
}

// A move there and back that is seen as one is no reason to go anywhere else than before.
func TestQueueMovesTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, l, hints, confirmed := leaves(t)
		hinted(hints)
		thereAndBack(d)
		l.want(t, "on its way there already", [3]int{1, 1}, [3]int{1})
		failIf(t, hinted(hints), "told without a reason")
		close(confirmed)
		l.want(t, "there", [3]int{1, 1}, [3]int{0, 1})
	})
}

// A node that does not let us listen is asked to once a second; also when the queue comes
// back to it.
func TestDeafWatchListensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, l, hints := listens(t)
		l.set(func() { l.fails[1] = errDenied })
		queueAt(d, 1)
		l.want(t, "it fails", [3]int{1, 1}, [3]int{0, 0})
		hinted(hints)
		time.Sleep(deafPause / 2)
		l.want(t, "half a second later", [3]int{1, 1}, [3]int{0, 0})
		l.set(func() { l.fails[1], l.confirms[2] = nil, make(chan struct{}) })
		queueAt(d, 2)
		l.want(t, "the queue moves on", [3]int{1, 1, 1}, [3]int{0, 0})
		queueAt(d, 1)
		l.want(t, "and back", [3]int{1, 2, 1}, [3]int{0, 1})
		time.Sleep(10 * time.Second)
		l.want(t, "later", [3]int{1, 2, 1}, [3]int{0, 1})
	})
	synctest.Test(t, func(t *testing.T) {
		d, l, _ := listens(t)
		l.set(func() { l.fails[1] = errDenied })
		queueAt(d, 1)
		synctest.Wait()
		l.set(func() { l.fails[1] = nil })
		thereAndBack(d)
		l.want(t, "the queue moves on and back at once", [3]int{1, 2}, [3]int{0, 1})
	})
	synctest.Test(t, func(t *testing.T) {
		d, l, _ := listens(t)
		l.set(func() { l.fails[1] = errDenied })
		queueAt(d, 1)
		synctest.Wait()
		l.set(func() { l.fails[1] = nil })
		time.Sleep(deafPause + deafPause/2)
		l.want(t, "a second later", [3]int{1, 2}, [3]int{0, 1})
	})
}

// How a subscription ends that its node did not confirm: nobody is heard there, and the node
// is judged by it, unless nobody wanted it any more.
func TestSubscriptionFails(t *testing.T) {
	late := min((&Driver{}).probeLimit(), maxListen)
	for name, c := range map[string]struct {
		watch func(ctx context.Context) (<-chan driver.Hint, error)
		left  bool // the watch is left meanwhile
		heard bool
		deaf  bool
		out   error
	}{
		"confirmed": {func(context.Context) (<-chan driver.Hint, error) { return make(chan driver.Hint), nil }, false, true, false, nil},
		"refused":   {func(context.Context) (<-chan driver.Hint, error) { return nil, errDenied }, false, false, true, nil},
		"away":      {func(context.Context) (<-chan driver.Hint, error) { return nil, errGone }, false, false, true, errGone},
		"silent":    {func(ctx context.Context) (<-chan driver.Hint, error) { <-ctx.Done(); return nil, errDenied }, false, false, true, errSilent},
		"confirmed too late": {func(ctx context.Context) (<-chan driver.Hint, error) {
			time.Sleep(late + 1)
			return make(chan driver.Hint), nil
		}, false, false, true, errSilent},
		"left": {func(ctx context.Context) (<-chan driver.Hint, error) { <-ctx.Done(); return nil, errGone }, true, false, false, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, all := stubs(t)
			all[1].record = func(context.Context) (voting.Record, error) { return voting.Record{}, errGone }
			all[1].watch = c.watch
			w := &watch{d: d, ctx: t.Context(), claim: asks("k").Claim(), out: make(chan driver.Hint, 1)}
			e := w.listen(d.nodes[1])
			if c.left {
				e.leave()
			}
			<-e.ready
			if got := d.nodes[1].why(); (e.in != nil) != c.heard || e.deaf != c.deaf || (got != nil) != (c.out != nil) {
				t.Errorf("%s: heard %v, deaf %v, out of service: %v", name, e.in != nil, e.deaf, got)
			}
			e.leave()
		})
	}
}

// Without a queue node there is nothing to listen to, and a watch waits for one.
func TestWatchWithoutAQueueNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		l := &listened{}
		for i, s := range all {
			s.watch = l.at(i)
			d.nodes[i].setOut(errGone)
		}
		stopIf(t, d.queue.Load() != nil, "there is one")
		if _, err := d.Watch(t.Context(), asks("k").Claim()); err != nil {
			t.Fatal(err)
		}
		l.want(t, "without", [3]int{}, [3]int{})
		d.nodes[1].setOut(nil)
		l.want(t, "with one", [3]int{0, 1}, [3]int{0, 1})
	})
}

// Whoever watches before anything was asked has the nodes say who they are: those in service
// that keep a record.
func TestWhoIsMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		d.nodes[0].rec = nil
		d.nodes[1].setOut(errGone)
		d.meet(t.Context())
		got := []int64{all[0].records.Load(), all[1].records.Load(), all[2].records.Load()}
		failIf(t, !slices.Equal(got, []int64{0, 0, 1}), "asked %v times, want the last one alone", got)
		d.met.Store(true)
		if d.meet(t.Context()); all[2].records.Load() != 1 {
			t.Error("met once more")
		}
	})
}

// A watch whose caller is gone leaves nothing behind.
func TestWatchOfACallerWhoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		ctx, cancel := context.WithCancel(t.Context())
		all[0].record = func(context.Context) (voting.Record, error) {
			cancel() // while the nodes say who they are
			return voting.Record{}, errDenied
		}
		if _, err := d.Watch(ctx, asks("k").Claim()); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the end of its context", err)
		}
		synctest.Wait()
		d.mu.Lock()
		defer d.mu.Unlock()
		n := len(d.waiters["k"])
		failIf(t, n != 0, "%d watches stay", n)
	})
}

// renews is a node of which a test decides when it renews.
type renews struct {
	voting.Node
	calls  atomic.Int64
	before func()
}

func (n *renews) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	n.calls.Add(1)
	if n.before != nil {
		n.before()
	}
	n.Node.Renew(context.WithoutCancel(ctx), rs, done)
}

// watched puts a renews in front of each node.
func watched(d *Driver) []*renews {
	var all []*renews
	for _, n := range d.nodes {
		r := &renews{Node: n.drv}
		n.drv = r
		all = append(all, r)
	}
	return all
}

// With a context that has ended nothing is asked, and nothing is claimed.
func TestRenewAfterTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		held, none := asks("k"), asks("none")
		granted(t, d, held)
		for _, n := range nodes[1:] { // so that a waiter has the vote of the queue node only
			n.Hold("gate", ruleTTL, driver.Label{})
		}
		gate, place := asks("gate"), asks("k")
		gate.Queue, place.Queue = true, true
		refused(t, d, gate)
		refused(t, d, place)
		synctest.Wait()
		all := watched(d)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		rs := []contend.Owner{held, none, gate, place}
		told := 0
		var mu sync.Mutex
		contend.Renew(ctx, d, rs, func(i int, r driver.Renewal) {
			mu.Lock()
			defer mu.Unlock()
			told++
			failIf(t, !errors.Is(r.Err, context.Canceled), "request %d: %v, want that the context has ended", i, r.Err)
		})
		synctest.Wait()
		failIf(t, told != len(rs), "%d of %d outcomes", told, len(rs))
		for i, n := range all {
			failIf(t, n.calls.Load() != 0, "node %d was asked %d times", i, n.calls.Load())
		}
	})
}

// What is not decided when the context ends is not known, whatever the answers
// that came, and that come later.
func TestRenewWhileTheContextEnds(t *testing.T) {
	for name, answers := range map[string]int{"a majority, and not the queue node": 2, "one node": 1} {
		bubbled(t, name, func(t *testing.T) {
			d, _ := spies(t, 3)
			held, none := asks("k"), asks("none")
			granted(t, d, held)
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			goOn := make(chan struct{})
			for _, n := range watched(d)[:3-answers] {
				n.before = func() { <-goOn }
			}
			go func() {
				synctest.Wait() // the others have answered
				cancel()
			}()
			var returned atomic.Bool
			told := map[int]error{}
			var mu sync.Mutex
			contend.Renew(ctx, d, []contend.Owner{held, none}, func(i int, r driver.Renewal) {
				mu.Lock()
				defer mu.Unlock()
				failIf(t, returned.Load(), "an outcome is told after Renew returned")
				if _, twice := told[i]; twice {
					t.Errorf("request %d has two outcomes", i)
				}
				told[i] = r.Err
			})
			returned.Store(true)
			close(goOn)
			synctest.Wait()
			if err := told[0]; err == nil || errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("the lease: %v, want that it is not known", err)
			}
			if err := told[1]; err == nil || answers == 1 && errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("the owner of nothing: %v", err)
			}
		})
	}
}

// Neither Try nor Release begins with a context that has ended, or an answer could
// be there before anybody looked at the context.
func TestNothingBeginsAfterTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := asks("k")
		if res, err := contend.Try(ctx, d, r); !errors.Is(err, context.Canceled) {
			t.Errorf("Try: %+v, %v", res, err)
		}
		if err := contend.Release(ctx, d, r); !errors.Is(err, context.Canceled) {
			t.Errorf("Release: %v", err)
		}
		synctest.Wait()
		for i, n := range nodes {
			last := n.lastRelease()
			failIf(t, len(n.asked("k")) > 0 || last.Key == "k", "node %d was asked", i)
		}
	})
}
