// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/admission"
)

// A probe asks for the node's record, or if it keeps none, about a key. A node that was not
// heard in time is silent, whatever its client says.
func TestProbe(t *testing.T) {
	ok := func(context.Context, string) (driver.Info, error) { return driver.Info{}, nil }
	fails := func(context.Context, string) (driver.Info, error) { return driver.Info{}, errDenied }
	record := func(err error) func(context.Context) (voting.Record, error) {
		return func(context.Context) (voting.Record, error) { return voting.Record{Voting: true}, err }
	}
	hangs := func(ctx context.Context) (voting.Record, error) {
		<-ctx.Done()
		return voting.Record{}, errDenied
	}
	for name, c := range map[string]struct {
		record   func(context.Context) (voting.Record, error)
		inspect  func(context.Context, string) (driver.Info, error)
		want     error
		inspects int64
	}{
		"its record":          {record(nil), fails, nil, 0},
		"an error":            {record(errDenied), ok, errDenied, 0},
		"silent":              {hangs, ok, errSilent, 0},
		"no record":           {record(driver.ErrUnsupported), ok, nil, 1},
		"no record, an error": {record(driver.ErrUnsupported), fails, errDenied, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, all := stubs(t)
			all[1].record, all[1].inspect = c.record, c.inspect
			n := d.nodes[1]
			if err := n.probe(); !errors.Is(err, c.want) || all[1].inspects.Load() != c.inspects {
				t.Errorf("%s: %v after %d looks, want %v", name, err, all[1].inspects.Load(), c.want)
			} else if (n.lastHeard() != never) != (c.want == nil) {
				t.Errorf("%s: heard %v", name, n.lastHeard() != never)
			}
		})
	}
}

// A node that answers again is in service once what was to be released there is: a vote that
// nobody wants would be in the way of others.
func TestServiceBeginsAfterTheCleanUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		var fails atomic.Bool
		fails.Store(true)
		all[1].withdraw = func(context.Context, voting.WithdrawRequest) error {
			if fails.Load() {
				return errGone
			}
			return nil
		}
		var away atomic.Bool
		away.Store(true)
		all[1].record = func(context.Context) (voting.Record, error) {
			if away.Load() {
				return voting.Record{}, errGone
			}
			return voting.Record{Voting: true}, nil
		}
		n := d.nodes[1]
		n.leave(errGone)
		n.cleanUpLater(nil, asks("k").Withdrawal())
		away.Store(false) // no probe was answered before that
		if time.Sleep(time.Second); n.serving() {
			t.Error("it is in service, and a release cannot be delivered")
		}
		fails.Store(false)
		if time.Sleep(time.Second); !n.serving() {
			t.Errorf("it is out of service: %v", n.why())
		}
	})
}

// While a node is away, what it forgets by itself is dropped every ten seconds.
func TestCleanUpsOfANodeThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		all[1].record = func(context.Context) (voting.Record, error) { return voting.Record{}, errGone }
		n := d.nodes[1]
		n.leave(errGone)
		r := asks("k").Withdrawal()
		r.TTL = time.Second
		n.cleanUpLater(nil, r)
		n.mu.Lock()
		n.cleanups.all[r.ID()] = cleanup{req: r, until: time.Now()} // it could be dropped at once
		n.mu.Unlock()
		waiting := func() int {
			n.mu.Lock()
			defer n.mu.Unlock()
			return len(n.cleanups.all)
		}
		if time.Sleep(sweepPause - time.Second); waiting() != 1 {
			t.Error("it is looked for all the time")
		}
		if time.Sleep(2 * time.Second); waiting() != 0 {
			t.Error("it stays")
		}
	})
}

// A node that refused to write is asked to every few seconds, while it is in service, until
// it does.
func TestRefusedWriteIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		n := d.nodes[1]
		var fails atomic.Bool
		fails.Store(true)
		all[1].vote = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			if fails.Load() {
				return driver.Result{}, errDenied
			}
			return all[1].Store.Vote(ctx, r)
		}
		n.setOut(errGone)
		n.refusedWrite()
		if time.Sleep(time.Minute); all[1].votes.Load() != 0 {
			t.Error("it is out of service, and asked to write")
		}
		n.setOut(nil)
		if time.Sleep(time.Minute); all[1].votes.Load() < 5 || !n.readOnly.Load() {
			t.Errorf("asked %d times in a minute", all[1].votes.Load())
		}
		fails.Store(false)
		if time.Sleep(time.Minute); n.readOnly.Load() {
			t.Error("it is not known that it writes again")
		}
		before := all[1].votes.Load()
		n.refusedWrite()
		n.wrote()
		if time.Sleep(time.Minute); all[1].votes.Load() != before {
			t.Error("it wrote, and is asked to write")
		}
	})
}

// Whether a node writes: it grants a key of ours, with a larger fence if it wants one.
func TestWhetherANodeWrites(t *testing.T) {
	low := driver.Result{Why: voting.FenceTooLow, Fence: 1 << 62}
	yes := driver.Result{Granted: true, Fence: 1}
	type answer struct {
		res driver.Result
		err error
	}
	for name, c := range map[string]struct {
		said []answer
		want bool
	}{
		"granted":                       {[]answer{{yes, nil}}, true},
		"an error":                      {[]answer{{driver.Result{}, errDenied}}, false},
		"an error, with a grant":        {[]answer{{yes, errDenied}}, false},
		"an error, with a refusal":      {[]answer{{low, errDenied}}, false},
		"refused":                       {[]answer{{driver.Result{Why: voting.NotVoting}, nil}}, false},
		"granted with a larger fence":   {[]answer{{low, nil}, {yes, nil}}, true},
		"too low again":                 {[]answer{{low, nil}, {low, nil}}, false},
		"an error after a larger fence": {[]answer{{low, nil}, {yes, errDenied}}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, all := stubs(t)
			all[1].vote = func(_ context.Context, r voting.VoteRequest) (driver.Result, error) {
				i := all[1].votes.Load() - 1
				if int(i) >= len(c.said) || !strings.HasPrefix(r.Key, probeKey+"/") || i == 1 && r.Proposal != low.Fence+1 {
					t.Errorf("%s: asked %+v", name, r)
					return driver.Result{}, errDenied
				}
				return c.said[i].res, c.said[i].err
			}
			if got := d.nodes[1].writes(); got != c.want || int(all[1].votes.Load()) != len(c.said) {
				t.Errorf("%s: %v, after %d requests", name, got, all[1].votes.Load())
			}
		})
	}
}

// The round trip of a node that comes back is measured anew.
func TestRoundTripIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		n := d.nodes[1]
		n.trip.ns.Store(int64(time.Second))
		all[1].inspect = func(context.Context, string) (driver.Info, error) {
			time.Sleep(3 * time.Millisecond)
			return driver.Info{}, errDenied
		}
		if n.measure(); n.trip.ns.Load() != int64(time.Second) {
			t.Error("an error is taken for a round trip")
		}
		all[1].inspect = func(context.Context, string) (driver.Info, error) {
			time.Sleep(3 * time.Millisecond)
			return driver.Info{}, nil
		}
		if n.measure(); n.trip.ns.Load() != int64(3*time.Millisecond) || n.trip.usual.Load() != n.trip.ns.Load() {
			t.Errorf("%v, usually %v, want 3 ms", time.Duration(n.trip.ns.Load()), time.Duration(n.trip.usual.Load()))
		}
	})
}

// How a node is let in whose wait is over: it votes when its record says so.
func TestAdmissionOfANode(t *testing.T) {
	for name, c := range map[string]struct {
		admit error
		after voting.Record
		err   error // of the second look
		want  error
	}{
		"it votes":              {nil, voting.Record{Voting: true}, nil, nil},
		"it cannot be admitted": {errDenied, voting.Record{Voting: true}, nil, errDenied},
		"it forgot once more":   {nil, voting.Record{}, nil, voting.ErrNotVoting},
		"it does not say":       {nil, voting.Record{Voting: true}, errDenied, errDenied},
		"another was faster":    {driver.ErrNotHeld, voting.Record{Voting: true}, nil, voting.ErrNotVoting},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, all := stubs(t)
			n, rec := d.nodes[1], voting.Record{Text: "x"}
			all[1].admit = func() error { return c.admit }
			all[1].record = func(context.Context) (voting.Record, error) { return c.after, c.err }
			if err := n.admission(t.Context(), rec); !errors.Is(err, voting.ErrNotVoting) || leftOf(err) == 0 {
				t.Fatalf("%s: %v, want a wait", name, err)
			}
			time.Sleep(admission.Wait(ruleTTL))
			if err := n.admission(t.Context(), rec); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		})
	}
}

// The longest lease that a node may have forgotten is that of the others that vote: not its
// own, of the life before, nor that of a node without a record.
func TestLongestLeaseThatWasForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		n := d.nodes[1]
		n.noted(voting.Record{Voting: true, MaxTTL: 3 * time.Hour})
		n.setOut(errGone)
		d.nodes[0].rec = nil
		all[2].record = func(context.Context) (voting.Record, error) {
			return voting.Record{Voting: true, MaxTTL: time.Hour}, nil
		}
		if longest, err := d.agreed(n); err != nil || longest != time.Hour {
			t.Errorf("%v, %v, want an hour", longest, err)
		}
	})
}

// What Nodes tells of each node, and who has the queue.
func TestStatesOfTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		unsupported := func(context.Context) (voting.Record, error) { return voting.Record{}, driver.ErrUnsupported }
		all[1].record, all[2].record = unsupported, unsupported
		all[2].inspect = func(context.Context, string) (driver.Info, error) { return driver.Info{}, errDenied }
		queueAt(d, 1)
		states := d.Nodes(t.Context())
		for i, want := range []NodeState{{Voting: true}, {Voting: true, Queue: true}, {Err: errDenied}} {
			if s := states[i]; s.Voting != want.Voting || s.Queue != want.Queue || !errors.Is(s.Err, want.Err) {
				t.Errorf("node %d: %+v, want %+v", i, s, want)
			}
		}
	})
}

// Nothing is begun, and nothing waited for, once the driver is closed.
func TestNothingBeginsAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		failIf(t, !d.spawn(func() {}) || !d.sleep(time.Second), "before: something does not begin")
		need(t, d.Close())
		failIf(t, d.spawn(func() {}) || d.sleep(time.Hour), "something begins")
		if _, err := d.Watch(t.Context(), asks("k").Claim()); err == nil {
			t.Error("a watch begins")
		}
	})
}
