// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var lookCases = []Case{
	{Name: "InspectOfAFreeKey",
		Rule: "Inspect of a key that nobody holds is not an error, and leaves nothing.",
		play: "free; listed"},
	{Name: "InspectSaysWhoAndHowLong",
		Rule:   "Inspect names the holder with its unchanged label and since when it holds the key; what is left of its lease decreases with time.",
		timely: true, run: inspectSaysWho},
	{Name: "InspectChangesNothing",
		Rule:  "Inspecting a key is no sign of life and takes no owner's turn.",
		Needs: queueing, timely: true,
		play: "grant a brief; join d brief; join b; until claim=b in=3ttl; turn b in=long"},
	{Name: "LongestTTL",
		Rule: "A lease of the longest possible TTL has nearly all of it left in every answer.",
		play: each([]string{"a", "r1"}, `grant # endless lasts; grant # endless lasts; renew # endless lasts; has # lasts; listed # lasts;
			join b fresh lasts; join b lasts; queue? renew b queued someday; queue? release b; release #; noshared? end`)},
	{Name: "ListFindsByPrefix",
		Rule: "List yields the keys that start with the prefix, byte by byte, and no others, whatever bytes they hold.",
		run:  listFindsByPrefix},
	{Name: "ListOfMany",
		Rule: "List yields each of many keys, while others are acquired and released.",
		run:  listOfMany},
	{Name: "ListMayBeLeft",
		Rule: "A range over List may stop at any key, and the driver continues to work.",
		run:  listMayBeLeft},
	{Name: "NothingStays", // promise 6; failure cases 11 and 12
		Rule: "After every release, abandoned wait, unclaimed handoff and expiry the store holds nothing that does not expire.",
		play: each(rounds(10), `grant a@k#; refuse b@k#; queue? join b@k#; queue? join c@k# brief; release a@k#; queue? turn b@k#;
			queue? release b@k#; release d@never# gone; grant e@gone# brief`) + "empty"},
	{Name: "CloseEndsWhatTheDriverOpened",
		Rule: "Close ends the driver's own goroutines, and the store still serves others.",
		run:  closeEnds},
}

func inspectSaysWho(e *env) {
	a := e.ask("k")
	e.grant(e.d, a)
	before := e.heldBy(a)
	if before.Key != "k" || before.Holder.Foreign {
		e.Errorf("it is %+v", before)
	}
	if before.Left == 0 { // not known
		time.Sleep(e.ttl)
	} else {
		e.eventually(e.ttl, "Left falls with time", func() bool { return before.Left-e.heldBy(a).Left >= e.ttl })
	}
	e.renewed(e.d, a)
	after := e.heldBy(a)
	if d := after.Holder.Since.Sub(before.Holder.Since).Abs(); d > e.ttl/2 { // an engine may compute it from what is left
		e.Errorf("Since was %v, is %v after a renewal", before.Holder.Since, after.Holder.Since)
	}
}

func (e *env) endless() time.Duration { return cmp.Or(e.traits.MaxTTL, math.MaxInt64) }

func (e *env) list(prefix string) map[string]driver.Info {
	e.Helper()
	found := make(map[string]driver.Info)
	for info, err := range e.d.List(e.ctx, prefix) {
		if err != nil {
			e.Fatalf("List of %q: %v", prefix, err)
		}
		found[info.Key] = info
	}
	return found
}

func listFindsByPrefix(e *env) {
	held := make(map[string]contend.Owner)
	for _, key := range hostileKeys {
		held[key] = e.ask(key)
		e.grant(e.d, held[key])
	}
	prefixes := append(slices.Clone(hostileKeys), "", "a", "zzz", strings.Repeat("k", driver.MaxKey+1))
	for _, prefix := range prefixes {
		want := slices.Sorted(maps.Keys(held))
		want = slices.DeleteFunc(want, func(k string) bool { return !strings.HasPrefix(k, prefix) })
		found := e.list(prefix)
		if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
			e.Errorf("List of %q: %q, want %q", prefix, got, want)
		}
		for key, info := range found {
			if r := held[key]; !info.Held || info.Holder.Owner != r.Owner || info.Holder.Label != r.Label {
				e.Errorf("List says of %q: %+v", key, info)
			}
		}
	}
}

func listOfMany(e *env) {
	const n = 300
	for i := range n {
		e.grant(e.d, e.ask("many/"+strconv.Itoa(i)))
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	other := e.open()
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			r := e.ask("many/guest" + strconv.Itoa(i))
			if _, err := contend.Try(e.ctx, other, r); err != nil {
				e.Errorf("Try: %v", err)
				return
			}
			if err := contend.Release(e.ctx, other, r); err != nil {
				e.Errorf("Release: %v", err)
				return
			}
		}
	})
	for range 3 {
		found := e.list("many/")
		for i := range n {
			if _, ok := found["many/"+strconv.Itoa(i)]; !ok {
				e.Errorf("List lacks key %d of %d", i, n)
			}
		}
	}
	close(stop)
	wg.Wait()
}

func listMayBeLeft(e *env) {
	for i := range 20 {
		e.grant(e.d, e.ask("k"+strconv.Itoa(i)))
	}
	for range 30 { // more than the connections of any pool
		for _, err := range e.d.List(e.ctx, "k") {
			if err != nil {
				e.Fatalf("List: %v", err)
			}
			break
		}
	}
	if n := len(e.list("k")); n != 20 {
		e.Errorf("%d keys, want 20", n)
	}
}

// goesAway fails unless List is soon empty, and nothing in the store would stay for
// ever.
func (e *env) goesAway() {
	e.Helper()
	e.eventually(4*e.ttl, "List is empty", func() bool { return len(e.list("")) == 0 })
	if e.store.Leftovers == nil {
		return
	}
	var left []string
	defer func() {
		if len(left) > 0 {
			e.Logf("left in the store: %q", left)
		}
	}()
	e.eventually(4*e.ttl, "nothing in the store stays for ever", func() bool {
		left = e.store.Leftovers()
		return len(left) == 0
	})
}

func closeEnds(e *env) {
	d := e.store.Open()
	a, b := e.ask("k"), e.ask("k")
	e.grant(d, a)
	ctx, cancel := context.WithCancel(e.ctx)
	if _, err := contend.Watch(ctx, d, b); err != nil {
		e.Errorf("Watch: %v", err)
	}
	e.refuse(d, b)
	cancel()
	start := time.Now()
	if err := d.Close(); err != nil {
		e.Errorf("Close: %v", err)
	}
	if took := time.Since(start); took > e.slack+e.lost() {
		e.Errorf("Close took %v", took)
	}
	e.heldBy(a)
	e.release(e.d, a)
}

var keyCases = []Case{
	{Name: "HostileKeys", // failure case 29
		Rule: "Any key of 1 to 512 bytes works from grant to release, and is no other key's.",
		play: each(hostile(hostileKeys), "grant a@hostile#") + each(hostile(hostileKeys), `held a@hostile#;
			refuse c@hostile# elsewhere=1; renew a@hostile# elsewhere=1; queue? await b@hostile# elsewhere=1; queue? renew b@hostile# queued;
			release a@hostile# here; queue? enter b@hostile#; queue? release b@hostile#; free a@hostile#`)}, // all at once: the engine may take two for one
	{Name: "HostileLabels",
		Rule: "Any label of up to 512 bytes is returned unchanged, for a holder and in the queue.",
		play: each(hostile(hostileLabels), `grant a fresh label=hostile#; held a; refuse b fresh label=hostile# by=a; queue? join b; queue? waits b;
			queue? release b; renew a; release a; free`)},
	{Name: "KeysNamedLikeTheStoresOwn",
		Rule: "A key with the name of something that the engine keeps for another key never harms that key.",
		play: "grant a; queue? join b; collide; held a; queue? waits b; release a; queue? turn b"},
}

// hostileLabels are labels that some layer of an engine may misinterpret, and hostileKeys such keys.
var hostileLabels = []string{
	"", "{}", "plain", "|", "a|b", "\x00", "\n", "a\r\nb", "\xff\xfe", "'\"`;--", "\x1b[2J", "%s%n",
	`{"host":"h","pid":1}`, `{"host":"` + strings.Repeat("x", 400) + `"}`,
	strings.Repeat("l", driver.MaxLabel), strings.Repeat("\x00", driver.MaxLabel),
}

var hostileKeys = []string{
	" ", "\x00", "a\x00b", "a\x00", "\n", "a\nb", "a\r\nb", "\x1b[31m", "\x7f",
	"{", "}", "{}", "}{", "{a}", "{a}b", "a{b}c", "a{}b", "{{a}}", "a}b", "{a", "}a{b}",
	"\xff", "\xff\xfe", "a\x80", "\xc3", "é", "e\u0301", "日本", "\ufeff",
	"*", "?", "[a-z]", "a*", "\\", "\\*", "%", "_", "a%b", "'", "\"", "';--", "`", "$1", ":1", "?1",
	"/", "//", "a/", "a//b", ".", "..", "../a", "a\\b", "C:", "a:b", ":", "lock", "lock:", "lock:lock:",
	"k", "K", "k ", " k", "k:line", "k:fence", "{k}:line", "lock:{k}:line", "0", "-1", "nil", "NULL", "\\x00",
	strings.Repeat("k", driver.MaxKey), strings.Repeat("\xff", driver.MaxKey), strings.Repeat("{", driver.MaxKey),
	strings.Repeat("k", driver.MaxKey-1) + "}",
}

// hostile are the numbers of some of them.
func hostile(all []string) []string { return rounds(len(all)) }

// askForNames takes as keys every end of every name that the store shows while
// "k" is held: whatever prefix the engine adds, one of them meets what is kept
// for "k".
func (e *env) askForNames() {
	e.Helper()
	if e.store.Names == nil {
		e.Skip("the harness cannot show the names in this store (Store.Names is nil)")
	}
	tried := map[string]bool{"k": true}
	for _, name := range e.store.Names() {
		for i := range name {
			key := name[i:]
			if tried[key] || len(key) > driver.MaxKey {
				continue
			}
			tried[key] = true
			rs := []contend.Owner{e.ask(key)}
			if needShared.Met(e.d) {
				rs = append(rs, e.reader(key))
			}
			for _, r := range rs {
				if res, err := contend.Try(e.ctx, e.d, r); err == nil && res.Granted {
					e.release(e.d, r)
				} // an error is allowed: the name is taken
			}
		}
	}
}

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
	released := e.ask("some/released")
	e.grant(e.d, released)
	e.release(e.d, released)
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
