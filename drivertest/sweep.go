// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var sweepCases = []Case{
	{Name: "LeftoversAreWhatNobodyRenews",
		Rule:  "A Sweeper lists a lease without an expiry with its holder and fence: as Live while that renews it, and then it is not removed; else it is removed when asked to, and the key is abandoned.",
		Needs: []Need{needSweeper}, run: leftoversAreWhatNobodyRenews},
	{Name: "LiveLocksAreNoLeftovers",
		Rule:  "A Sweeper lists nothing that ends by itself: no lease that expires, no waiter, no key that was released; and it names the keys that are held, with the holder, of the prefix alone.",
		Needs: []Need{needSweeper}, run: liveLocksAreNoLeftovers},
	{Name: "ARemovalComparesWhatWasListed",
		Rule:  "RemoveLeftover is ErrNotHeld and changes nothing when what was listed was renewed or released since, or is another owner's now, whether that one is left over or not.",
		Needs: []Need{needSweeper}, run: aRemovalComparesWhatWasListed},
	{Name: "TwoSweepsAtOnce",
		Rule:  "Of two that remove one leftover at once one does, and whoever is granted the key then keeps it.",
		Needs: []Need{needSweeper}, run: twoSweepsAtOnce},
}

var needSweeper = Need{"driver.Sweeper", func(d driver.Driver) bool { _, ok := d.(driver.Sweeper); return ok }}

// persisted returns an owner like a whose lease on the key has no expiry, and its fence, or skips the case. A machine that is busy
// gets more time for it.
func (e *env) persisted(a contend.Owner) (contend.Owner, uint64) {
	e.Helper()
	if e.store.Persist == nil {
		e.Skip("the harness cannot take the expiry from a lease (Store.Persist is nil)")
	}
	for ; a.TTL <= e.long; a.TTL *= 2 {
		fence := e.grant(e.d, a).Fence
		if e.store.Persist(a.Key) {
			return a, fence
		}
		next := e.ask(a.Key)
		a.Owner, a.Label = next.Owner, next.Label
	}
	e.TB.Fatalf("a lease of %v on %q has ended before its expiry could be taken", a.TTL/2, a.Key)
	return a, 0
}

// leftovers lists what is left over, and what is held.
func (e *env) leftovers(prefix string) (left map[string]driver.Leftover, held map[string]driver.Info) {
	e.Helper()
	left, held = make(map[string]driver.Leftover), make(map[string]driver.Info)
	start := time.Now()
	for l, err := range e.d.(driver.Sweeper).ListLeftovers(e.ctx, prefix, func(i driver.Info) { held[i.Key] = i }) {
		if err != nil {
			e.TB.Fatalf("ListLeftovers of %q: %v", prefix, err)
		}
		left[l.Key] = l
	}
	e.sent(start)
	return left, held
}

// deserted makes a lease without an expiry that nobody renews, and returns its owner and what is listed of it.
func (e *env) deserted(key string) (contend.Owner, driver.Leftover) {
	e.Helper()
	a, _ := e.persisted(e.brief(e.ask(key)))
	var l driver.Leftover
	e.eventually(a.TTL, "a lease without an expiry that nobody renews is listed", func() bool {
		left, _ := e.leftovers("")
		l = left[key]
		return l.Key == key && !l.Live
	})
	if l.Kind != driver.LeftLease || l.Foreign() || l.Holder.Owner != a.Owner || l.Holder.Label != a.Label {
		e.Fatalf("listed as %+v, and its owner is %s", l, a.Owner)
	}
	return a, l
}

// stays fails unless RemoveLeftover says that nothing was done.
func (e *env) stays(l driver.Leftover, what string) {
	e.Helper()
	if _, err := e.d.(driver.Sweeper).RemoveLeftover(e.ctx, l); !errors.Is(err, driver.ErrNotHeld) {
		e.Fatalf("RemoveLeftover of %s: %v, want ErrNotHeld", what, err)
	}
}

func leftoversAreWhatNobodyRenews(e *env) {
	a, fence := e.persisted(e.ask("live"))
	l := e.leftover("live")
	if !l.Live || l.Holder.Owner != a.Owner || l.Fence != fence {
		e.Fatalf("a lease that is renewed is listed as %+v, and its fence is %d", l, fence)
	}
	e.stays(l, "a lease that is renewed")
	l.Live = false
	e.stays(l, "a lease that is renewed, and said not to be")
	e.renewed(e.d, a)
	e.heldBy(a)

	_, l = e.deserted("k")
	e.refuse(e.d, e.ask("k"))
	stays, err := e.d.(driver.Sweeper).RemoveLeftover(e.ctx, l)
	if err != nil {
		e.Fatalf("RemoveLeftover: %v", err)
	}
	var res driver.Result
	b := e.ask("k")
	e.eventually(stays, "a key whose leftover was removed is granted", func() bool {
		res = e.try(e.d, b)
		return res.Granted
	})
	if e.traits.Abandons && !res.Abandoned {
		e.Errorf("the key is not abandoned, and its holder did not release it: %+v", res)
	}
	left, _ := e.leftovers("")
	if delete(left, "live"); len(left) != 0 { // its renewal may have given that an expiry again
		e.Errorf("left over is still %+v", left)
	}
	e.release(e.d, a)
	e.release(e.d, b)
}

// leftover returns what is listed of one key.
func (e *env) leftover(key string) driver.Leftover {
	e.Helper()
	left, _ := e.leftovers("")
	if left[key].Key != key {
		e.Fatalf("%q is not among what is left over: %+v", key, left)
	}
	return left[key]
}

func liveLocksAreNoLeftovers(e *env) {
	a, other := e.ask("some/a"), e.ask("other")
	fence := e.grant(e.d, a).Fence
	e.refuse(e.d, queued(e.ask("some/a")))
	e.grant(e.d, other)
	brief := e.brief(e.ask("some/brief"))
	e.grant(e.d, brief)
	e.grantAndRelease(e.ask("some/released"))
	look := func() map[string]driver.Info {
		e.Helper()
		left, held := e.leftovers("some/")
		if len(left) != 0 {
			e.Fatalf("left over are %+v", left)
		}
		return held
	}
	look()
	e.eventually(e.ttl, "a lease that expired is not held", func() bool { return len(look()) == 1 })
	got := look()["some/a"]
	if !got.Held || got.Holder.Owner != a.Owner || got.Holder.Label != a.Label || got.Fence != fence {
		e.Errorf("held is %+v, by %s with fence %d", got, a.Owner, fence)
	}
	if left, _ := e.leftovers("none"); len(left) != 0 {
		e.Errorf("left over of nothing are %+v", left)
	}
}

func aRemovalComparesWhatWasListed(e *env) {
	renewed, l := e.deserted("renewed")
	renewed.TTL = e.long
	e.renewed(e.d, renewed)
	e.stays(l, "a lease that was renewed since")
	e.heldBy(renewed)

	released, l := e.deserted("k")
	e.release(e.d, released)
	e.stays(l, "a lease that was released since")
	next := e.ask("k")
	e.grant(e.d, next)
	e.stays(l, "a lease whose key is another's now")
	e.heldBy(next)
	e.release(e.d, next)

	_, other := e.deserted("k")
	e.stays(l, "a lease whose key is another's now, and left over as well")
	if now := e.leftover("k"); now.Holder.Owner != other.Holder.Owner {
		e.Errorf("left over is %+v, want what %s has", now, other.Holder.Owner)
	}
}

func twoSweepsAtOnce(e *env) {
	clients := []driver.Driver{e.open(), e.open()}
	for range 5 {
		_, l := e.deserted("k")
		var removed atomic.Int32
		var wg sync.WaitGroup
		for _, d := range clients {
			wg.Go(func() {
				switch _, err := d.(driver.Sweeper).RemoveLeftover(e.ctx, l); {
				case err == nil:
					removed.Add(1)
				case !errors.Is(err, driver.ErrNotHeld):
					e.Errorf("RemoveLeftover: %v", err)
				}
			})
		}
		b := e.ask("k")
		e.eventually(0, "the key is granted", func() bool { return e.try(e.d, b).Granted })
		wg.Wait()
		if n := removed.Load(); n != 1 {
			e.Fatalf("%d of %d removed it, want one", n, len(clients))
		}
		e.stays(l, "a lease that was removed")
		e.heldBy(b)
		e.release(e.d, b)
	}
}
