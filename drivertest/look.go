// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var lookCases = []Case{
	{Name: "InspectOfAFreeKey",
		Rule: "Inspect of a key that nobody holds is not an error, and leaves nothing.",
		run:  inspectFree},
	{Name: "InspectSaysWhoAndHowLong",
		Rule:   "Inspect names the holder with its unchanged label and since when it holds the key; what is left of its lease decreases with time.",
		timely: true, run: inspectSaysWho},
	{Name: "InspectChangesNothing",
		Rule:  "Inspecting a key is no sign of life and takes no owner's turn.",
		Needs: queueing, timely: true, run: inspectChangesNothing},
	{Name: "LongestTTL",
		Rule: "A lease of the longest possible TTL has nearly all of it left in every answer.",
		run:  longestTTL},
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

func inspectFree(e *env) {
	e.free("k")
	if info := e.inspect("k"); info.Key != "k" || len(info.Queue) != 0 || info.Holder.Owner != "" {
		e.Errorf("a free key: %+v", info)
	}
	for info, err := range e.d.List(e.ctx, "") {
		e.Errorf("an empty store lists %+v, %v", info, err)
	}
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

func longestTTL(e *env) {
	lasts := func(what string, left time.Duration) {
		e.Helper()
		if most := cmp.Or(e.traits.MaxTTL, math.MaxInt64); !plausible(left, most-most/10) {
			e.Errorf("%s says %v", what, left)
		}
	}
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
		if mode == driver.Shared && !e.traits.Shared {
			continue
		}
		r := e.ask("k")
		r.TTL, r.Mode = cmp.Or(e.traits.MaxTTL, math.MaxInt64), mode
		lasts("the grant", e.grant(e.d, r).TTL)
		lasts("a second Try", e.grant(e.d, r).TTL)
		lasts("the renewal", e.renewed(e.d, r).TTL)
		info := e.heldBy(r)
		lasts("Inspect", info.Left)
		lasts("Inspect, of the one lease,", info.Holders[0].Left)
		lasts("List", e.list("k")["k"].Left)
		b := e.ask("k")
		res := e.join(e.d, b, 0)
		lasts("the refusal", res.Left)
		if again := e.join(e.d, b, 0); res.RetryIn < 0 || again.RetryIn < 0 {
			e.Errorf("it may try again in %v, then %v", res.RetryIn, again.RetryIn)
		}
		if e.traits.Queue != driver.QueueNone {
			if in := e.renewed(e.d, queued(b)).RetryIn; in < 0 {
				e.Errorf("the renewal of its place says %v", in)
			}
			e.release(e.d, b)
		}
		e.release(e.d, r)
	}
}

func inspectChangesNothing(e *env) {
	a, dead, b := e.brief(e.ask("k")), e.brief(e.ask("k")), e.ask("k")
	e.grant(e.d, a)
	e.join(e.d, dead, 0)
	e.join(e.d, b, 1)
	e.eventually(3*e.ttl, "the key that only Inspect looks at is the patient waiter's to claim", func() bool {
		info := e.inspect("k")
		return !info.Held && info.Waiters <= 1 || info.Holder.Owner == b.Owner
	})
	e.turn(e.d, b, e.long)
}

// hostileKeys are keys that some layer of an engine may misinterpret.
func hostileKeys() []string {
	return []string{
		" ", "\x00", "a\x00b", "a\x00", "\n", "a\nb", "a\r\nb", "\x1b[31m", "\x7f",
		"{", "}", "{}", "}{", "{a}", "{a}b", "a{b}c", "a{}b", "{{a}}", "a}b", "{a", "}a{b}",
		"\xff", "\xff\xfe", "a\x80", "\xc3", "é", "e\u0301", "日本", "\ufeff",
		"*", "?", "[a-z]", "a*", "\\", "\\*", "%", "_", "a%b", "'", "\"", "';--", "`", "$1", ":1", "?1",
		"/", "//", "a/", "a//b", ".", "..", "../a", "a\\b", "C:", "a:b", ":", "lock", "lock:", "lock:lock:",
		"k", "K", "k ", " k", "k:line", "k:fence", "{k}:line", "lock:{k}:line", "0", "-1", "nil", "NULL", "\\x00",
		strings.Repeat("k", driver.MaxKey), strings.Repeat("\xff", driver.MaxKey), strings.Repeat("{", driver.MaxKey),
		strings.Repeat("k", driver.MaxKey-1) + "}",
	}
}

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
	for _, key := range hostileKeys() {
		held[key] = e.ask(key)
		e.grant(e.d, held[key])
	}
	prefixes := append(hostileKeys(), "", "a", "zzz", strings.Repeat("k", driver.MaxKey+1))
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
