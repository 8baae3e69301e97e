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
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/contend"
)

var lookCases = []Case{
	{Name: "InspectOfAFreeKey",
		Rule: "Inspect of a key without a holder is not an error, and leaves nothing.",
		play: "free; listed"},
	{Name: "InspectSaysWhoAndHowLong",
		Rule:   "Inspect names the holder with its unchanged label and since when it holds the key; what is left of its lease decreases with time.",
		timely: true, run: inspectSaysWho},
	{Name: "InspectChangesNothing", Needs: queueing, timely: true,
		Rule: "Inspecting a key is no sign of life and takes no owner's turn.",
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
	{Name: "LeftoversAreWhatNobodyRenews", Needs: []Need{needSweeper},
		Rule: "ListLeftovers yields a lease without an expiry with its holder and fence: as Live while that renews it, and then it is not removed; else it is removed when asked to, and the key is abandoned.",
		play: `persist a@live; leftover a@live live; remove a@live gone; remove a@live dead gone; renew a@live; held a@live; desert b;
			refuse c; remove b; inherit d in=b marked; unleft d; release a@live d`},
	{Name: "LiveLocksAreNoLeftovers", Needs: []Need{needSweeper},
		Rule: "ListLeftovers yields nothing that ends by itself: no lease that expires, no waiter, no key that was released; and it names the keys that are held, with the holder, of the prefix alone.",
		play: `grant a@some/a; refuse b@some/a queued; grant c@other; grant d@some/brief brief; grant e@some/released;
			release e@some/released; unleft a@some/a; unleft`},
	{Name: "ARemovalComparesWhatWasListed", Needs: []Need{needSweeper},
		Rule: "RemoveLeftover is ErrNotHeld and changes nothing when what was listed was renewed or released since, or is another owner's now, whether that one is left over or not.",
		play: `desert a@renewed; renew a@renewed; remove a@renewed gone; held a@renewed; desert b; release b; remove b gone; grant c;
			remove b gone; held c; release c; desert d; remove b gone; leftover d`},
	{Name: "TwoSweepsAtOnce",
		Rule:  "Of two that remove one leftover at once one does, and whoever is granted the key then keeps it.",
		Needs: []Need{needSweeper}, run: twoSweepsAtOnce},
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
	if took := time.Since(start); took > e.slack+e.stalled() {
		e.Errorf("Close took %v", took)
	}
	e.heldBy(a)
	e.release(e.d, a)
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

var needSweeper = Need{"operator.Operations.ListLeftovers", func(d driver.Driver) bool { return operator.Of(d).ListLeftovers != nil }}

// persisted returns an owner like a with a lease on the key that has no expiry, and its fence, or skips the case. A busy machine
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
func (e *env) leftovers(prefix string) (left map[string]operator.Leftover, held map[string]driver.Info) {
	e.Helper()
	left, held = make(map[string]operator.Leftover), make(map[string]driver.Info)
	start := time.Now()
	for l, err := range operator.Of(e.d).ListLeftovers(e.ctx, prefix, func(i driver.Info) { held[i.Key] = i }) {
		if err != nil {
			e.TB.Fatalf("ListLeftovers of %q: %v", prefix, err)
		}
		left[l.Key] = l
	}
	e.sent(start)
	return left, held
}

// deserted makes a lease without an expiry that no client renews, and returns its owner and what is listed of it.
func (e *env) deserted(r contend.Owner) (contend.Owner, operator.Leftover) {
	e.Helper()
	a, _ := e.persisted(e.brief(r))
	var l operator.Leftover
	e.eventually(a.TTL, "a lease without an expiry and without renewals is listed", func() bool {
		left, _ := e.leftovers("")
		l = left[r.Key]
		return l.Key == r.Key && !l.Live
	})
	if l.Kind != operator.LeftLease || l.Foreign() || l.Holder.Owner != a.Owner || l.Holder.Label != a.Label {
		e.Fatalf("listed as %+v, and its owner is %s", l, a.Owner)
	}
	return a, l
}

// sweeps are verbs about leases without an expiry.
var sweeps = map[string]func(p *player, s step, name string, r contend.Owner){
	"persist": func(p *player, _ step, name string, r contend.Owner) {
		a, fence := p.persisted(r)
		p.fences[name] = fence
		p.renamed(name, a)
	},
	"desert": func(p *player, _ step, name string, r contend.Owner) {
		a, l := p.deserted(r)
		p.listed[name] = l
		p.renamed(name, a)
	},
	"leftover": func(p *player, s step, name string, r contend.Owner) {
		left, _ := p.leftovers("")
		l := left[r.Key]
		if _, live := s.says["live"]; l.Key != r.Key || l.Holder.Owner != r.Owner || live && (!l.Live || l.Fence != p.fences[name]) {
			p.Fatalf("%s has %q with the fence %d, and listed is %+v", name, r.Key, p.fences[name], l)
		}
		p.listed[name] = l
	},
	"remove": func(p *player, s step, name string, _ contend.Owner) { // what was listed of an owner
		l := p.listed[name]
		_, dead := s.says["dead"]
		l.Live = l.Live && !dead
		if _, gone := s.says["gone"]; gone {
			p.stays(l, s.text)
			return
		}
		stays, err := operator.Of(p.d).RemoveLeftover(p.ctx, l)
		if err != nil {
			p.Fatalf("RemoveLeftover: %v", err)
		}
		p.terms[name] = term{ttl: max(stays, 1)}
	},
}

// renamed has an owner ask from now on as the owner that was granted a lease.
func (p *player) renamed(name string, a contend.Owner) {
	o := p.owners[name]
	o.Owner, o.Label = a.Owner, a.Label
	p.owners[name] = o
}

// unleft waits until just these hold keys that begin like theirs, of which nothing is ever left over.
func (p *player) unleft(s step) {
	p.Helper()
	prefix := "none"
	if len(s.owners) > 0 {
		dir, _, _ := strings.Cut(p.keyOf(s), "/")
		prefix = dir
	}
	p.eventually(p.ttl, s.text, func() bool {
		left, held := p.leftovers(prefix)
		for i, r := range p.all(s) {
			if h := held[r.Key]; !h.Held || !sameOwner(r)(driver.Holding{Holder: h.Holder}) || h.Fence != p.fences[s.owners[i]] {
				p.Fatalf("%s holds %q with the fence %d, and held is %+v", s.owners[i], r.Key, p.fences[s.owners[i]], h)
			}
		}
		if len(left) > 0 {
			p.Fatalf("left over are %+v", left)
		}
		return len(held) == len(s.owners)
	})
}

// stays fails unless RemoveLeftover says that nothing was done.
func (e *env) stays(l operator.Leftover, what string) {
	e.Helper()
	if _, err := operator.Of(e.d).RemoveLeftover(e.ctx, l); !errors.Is(err, driver.ErrNotHeld) {
		e.Fatalf("RemoveLeftover of %s: %v, want ErrNotHeld", what, err)
	}
}

func twoSweepsAtOnce(e *env) {
	clients := []driver.Driver{e.open(), e.open()}
	for range 5 {
		_, l := e.deserted(e.ask("k"))
		var removed atomic.Int32
		var wg sync.WaitGroup
		for _, d := range clients {
			wg.Go(func() {
				switch _, err := operator.Of(d).RemoveLeftover(e.ctx, l); {
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
