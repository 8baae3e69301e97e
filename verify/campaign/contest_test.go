// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/verify/broken"
	"github.com/hasplock/hasp/verify/engines"
)

// use is what the processes of a contest do.
type use string

// The uses.
const (
	semaphore use = "semaphore"  // all contend for the slots of one key
	lockAll   use = "lock-all"   // each wants several keys at once, drawn at random; some only to read
	election  use = "election"   // all campaign, and observe the leader
	readWrite use = "read-write" // one in four writes, the others read; writers may downgrade
)

// contest tries semaphores, LockAll, elections and read-write locks with many processes on one store, some of which are killed
// (kill -9) or stopped (SIGSTOP) while they hold keys or wait for them, and judges what they recorded.
//
// Every process reports each step before it goes on, by one clock: a hold is valid from when its client learned of it to when it
// began to release it, or to its deadline, whichever is first, and that of a killed process to its deadline as last known.
// internal/history checks what may not overlap; the rest is checked here: that the next holder learns of a holder's death, that every
// process has a turn in the end, and that all keys and slots are free then.
type contest struct {
	use        use
	store      *engines.Store // no other program may use its keys
	processes  int
	slots      int           // of the semaphore
	ttl        time.Duration // of the leases
	lasts      time.Duration // the faults
	kill, stop bool          // the faults
	faults     int           // so many of each there are, however long that takes
	seed       uint64        // of what is drawn; the outcome also depends on timing
	// patience is how long it may take until all keys are acquired after the faults: 0 means
	// 2 minutes, more than any machine's delay.
	patience time.Duration
	broken   string // the name of a variant
}

// manyKeys is the number of keys of LockAll.
const manyKeys = 6

// keys returns the names of the keys that a kind uses.
func (k use) keys() (names []string) {
	if k != lockAll {
		return []string{string(k)}
	}
	for i := range manyKeys {
		names = append(names, fmt.Sprintf("%s/%d", k, i))
	}
	return names
}

// contested is the result of a contest.
type contested struct {
	*player.Outcome
	holding   int // processes that were killed while they held something
	abandoned int // grants with which a client learned that a previous holder did not release the key
}

// String returns the outcome in one line.
func (o *contested) String() string {
	return fmt.Sprintf("%d turns in %v (%d waits cancelled, %d failed, %d lost, %d after one abandoned); %d processes killed, %d of them holders; %d stopped",
		o.Granted, o.Tried.Round(10*time.Millisecond), o.Cancelled, o.Failed, o.Expired, o.abandoned, o.Killed, o.holding, o.Stopped)
}

// faultRest is the least time from one fault to the next: a process that is killed has to be started again.
const faultRest = 100 * time.Millisecond

// run runs the processes. The error says why it could not.
func (o contest) run(ctx context.Context) (*contested, error) {
	o.patience = cmp.Or(o.patience, 2*time.Minute)
	w := &watcher{o: &o, ctx: ctx, seen: map[*player.Member]uint64{}, stalls: stallsOf(nil)}
	trial := &player.Trial{
		Clients: o.processes, Keys: o.use.keys(), TTL: o.ttl, Seed: o.seed,
		For: o.lasts, Kill: o.kill, Stop: o.stop, Faults: o.faults, AtGrant: true, Rest: faultRest, Patience: o.patience,
		Draw: o.draw, Last: true, Hear: w.hear, Hit: w.hit, Judge: w.judge,
		Client: func(int) (*exec.Cmd, player.Job) { return player.Again(clientEnv), o.job() },
	}
	out, _, err := trial.Run(nil)
	if err == nil && out.Trouble != "" {
		err = fmt.Errorf("the store is gone: %s", out.Trouble)
	}
	return &contested{out, w.holding, w.abandoned}, err
}

// longHold: one hold in so many is long.
const longHold = 60

// draw draws what the next turn asks for, and how long it lasts.
func (o *contest) draw(r *rand.Rand) player.Order {
	next := player.Order{Bare: true, Hold: player.Between(r, 0, 4*time.Millisecond)}
	switch n := r.IntN(longHold); {
	case n == 0: // for longer than a renewal takes
		next.Hold = player.Between(r, o.ttl/3, o.ttl*2/3)
	case n < 5:
		next.Hold = player.Between(r, 20*time.Millisecond, 80*time.Millisecond)
	}
	if r.IntN(10) == 0 { // gives up while it waits
		next.Limit = player.Between(r, time.Millisecond, 50*time.Millisecond)
	}
	for _, key := range o.use.keys() {
		next.Wants = append(next.Wants, player.Want{Key: key})
	}
	switch o.use {
	case semaphore:
		next.Slots, next.Wants[0].Shared = o.slots, true
	case election:
		next.Campaign = true
	case readWrite:
		next.Wants[0].Shared = r.IntN(4) > 0
		next.Downgrade = !next.Wants[0].Shared && r.IntN(3) == 0
	case lockAll: // two or three keys, in any order
		r.Shuffle(len(next.Wants), func(i, j int) { next.Wants[i], next.Wants[j] = next.Wants[j], next.Wants[i] })
		next.Wants = next.Wants[:2+r.IntN(2)]
		for i := range next.Wants {
			next.Wants[i].Shared = r.IntN(4) == 0
		}
	}
	return next
}

// job is what a client is told.
func (o *contest) job() player.Job {
	return job{Store: o.store.Kind, Addrs: o.store.Addrs()}.of(o.ttl, o.broken)
}

const (
	// wake is how long a key may be available to a waiter that gets hints by messages: far longer than a message takes, and shorter
	// than the time to the waiter's next Try with a TTL of 10 s or more.
	wake = 2 * time.Second
	// polls is the same where all waiters poll one file, and delay each other.
	polls = 15 * time.Second
	// claim is how long a key is offered to a waiter that was killed or stopped.
	claim = 500 * time.Millisecond
)

// watcher sees what the book does not have: which processes died, and for how long this one did not get to run.
type watcher struct {
	o                  *contest
	ctx                context.Context
	seen               map[*player.Member]uint64 // the fence of the last leader that a process saw
	stalls             *stalls
	first              time.Time // when a hold may first have ended without a release; zero: not yet
	holding, abandoned int       // see contested
}

// hear notes what a client says; see player.Trial.
func (w *watcher) hear(b *player.Book, m *player.Member, e *player.Event) {
	if e == nil {
		w.left(b, m)
		return
	}
	w.stalls.hear(m.ID, b.Wall(e.At), e)
	switch at := b.Wall(e.At); e.What {
	case player.Failed:
		w.trouble(at) // its leases may expire
	case player.Granted:
		if e.Abandoned {
			w.abandoned++
		}
	case player.Ended:
		if e.Lost {
			w.trouble(at)
		}
	case player.Released:
		for _, h := range m.Giving {
			if at.After(h.Deadline) { // the store may take it for too late
				w.trouble(h.Deadline)
			}
		}
	case player.Saw:
		if top := w.seen[m]; e.Fence < top {
			b.Broken("%v observed the leader with fence %d after the one with %d", m, e.Fence, top)
		}
		w.seen[m] = e.Fence
	}
}

// hit notes that a client is about to be killed or stopped.
func (w *watcher) hit(b *player.Book, m *player.Member) {
	w.trouble(b.Wall(player.Now()))
	if a := m.Latest; a != nil && a.Waits() {
		a.Away = true
	}
}

// trouble records that a hold may have ended without a release.
func (w *watcher) trouble(at time.Time) {
	if w.first.IsZero() || at.Before(w.first) {
		w.first = at
	}
}

// left records that a process has ended. Where it was killed, its leases and its place in the queue last for a TTL at most.
func (w *watcher) left(b *player.Book, m *player.Member) {
	at := player.Now().Add(w.o.ttl)
	until := b.Wall(at)
	for _, h := range slices.Concat(m.Open, m.Giving) {
		h.Kept = until
	}
	for _, h := range m.Open {
		h.Cut = true
	}
	if len(m.Open) > 0 {
		w.holding++
	}
	if a := m.Latest; a != nil && a.Waits() {
		a.Away, a.Failed = true, at
	}
	if !m.Killed && m.Errors() != "" {
		b.Broken("%v said at its end: %s", m, m.Last())
	}
}

// judge returns what is wrong.
func (w *watcher) judge(b *player.Book) []string {
	if len(b.Found) == 0 {
		w.acquireAll(b)
	}
	holds := b.History()
	return slices.Concat(history.Found(w.idle(b)), history.Unreported(holds), tooSoon(holds, w.first))
}

// acquireAll acquires every key and every slot, once the processes have ended: the keys of
// killed processes must be free after their TTL, all of them.
func (w *watcher) acquireAll(b *player.Book) {
	ctx, cancel := context.WithTimeout(w.ctx, w.o.patience)
	defer cancel()
	locks, err := open(w.o.job(), nil)
	if err != nil {
		b.Broken("%v", err)
		return
	}
	c := locks.(*haspLocks)
	defer func() {
		if err := c.Close(); err != nil {
			b.Broken("the end: %v", err)
		}
	}()
	orders := []player.Order{}
	for _, key := range w.o.use.keys() {
		orders = append(orders, player.Order{Wants: []player.Want{{Key: key}}})
	}
	if w.o.use == semaphore {
		orders[0].Slots, orders[0].Wants[0].Shared = w.o.slots, true
		orders = slices.Repeat(orders, w.o.slots)
	}
	me := &player.Member{Process: &player.Process{}} // the others' numbers begin with 1
	var all []*player.Holding
	for _, o := range orders {
		me.Order = o
		b.Add(me, &player.Event{What: player.Asked, At: player.Now()})
		h, err := player.Acquire(ctx, c, &o, w.o.ttl)
		if err != nil {
			b.Broken("after all processes have ended: %v", err)
			return
		}
		e := player.Of(player.Granted, h.Leases[0])
		b.Add(me, &e)
		all = append(all, h)
	}
	for _, h := range all {
		e := player.Of(player.Ended, h.Leases[0])
		b.Add(me, &e)
		if err := h.Release(); err != nil {
			b.Broken("the last release of %q: %v", e.Key, err)
		}
	}
	b.Add(me, &player.Event{What: player.Released, At: player.Now()})
	for _, key := range w.o.use.keys() {
		if err := free(ctx, c, key); err != nil {
			b.Broken("after everything was released: %v", err)
		}
	}
}

// free waits until a key is free: it may still be offered to a waiter that was killed.
func free(ctx context.Context, c *haspLocks, key string) error {
	for {
		info, err := c.Operator().Inspect(ctx, key)
		switch {
		case err != nil:
			return err
		case !info.Held:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%q is held: %+v", key, info)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tooSoon finds deaths that were reported before there can have been any.
func tooSoon(holds []history.Hold, first time.Time) (found []string) {
	for _, h := range holds {
		if h.Abandoned && (first.IsZero() || h.From.Before(first)) {
			found = append(found, fmt.Sprintf("%s learned that a previous holder of %q did not release it, and all had", h.Owner, h.Key))
		}
	}
	return found
}

// idle returns an error if a key was available to a waiter for longer than documented.
func (w *watcher) idle(b *player.Book) error {
	holds := b.History()
	for i, h := range b.Holds {
		if holds[i].To = h.Kept; h.Kept.IsZero() {
			holds[i].To = b.Wall(player.Now())
		}
	}
	var waits []history.Wait
	for _, a := range b.Attempts {
		if w.o.use != lockAll && !a.Waits() { // what it holds while it waits for its other keys is not in the history
			to := cmp.Or(a.Granted, a.Failed)
			waits = append(waits, history.Wait{Key: a.Key, Owner: a.By.String(), Shared: a.Shared, Limit: a.Limit,
				Asked: b.Wall(a.Asked), From: b.Wall(cmp.Or(a.Queued, to)), To: b.Wall(to), Away: a.Away}) // it had no place, as far as it said
		}
	}
	return history.CheckIdle(holds, waits, func(_ string, from, to time.Time) time.Duration {
		lost := w.stalls.longest(from, to)
		most := lost + wake
		if w.o.store.Kind == engines.SQLite {
			most = lost + polls
		}
		for _, wait := range waits {
			if wait.Away && wait.Asked.Before(to) && wait.To.Add(claim).After(from) {
				most += max(claim, min(w.o.ttl, 10*time.Second)) // SQLite waits for the patience of a place
			}
		}
		return most
	})
}

var (
	lasting = flag.Duration("for", 3*time.Second, "for how long processes are killed and stopped; beyond the default, no store has fewer of them")
	seeded  = flag.Uint64("seed", 0, "of what is drawn; 0: any")
)

// try runs the options on each kind of store. It takes fewer processes for SQLite,
// since many of them delay each other on a machine that is busy with other tests.
func try(t *testing.T, o contest) {
	t.Helper()
	for _, kind := range []engines.Kind{engines.SQLite, engines.Redis} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel() // they mostly wait
			o := o
			o.store, o.seed, o.lasts = engines.Start(t, kind), cmp.Or(*seeded, rand.Uint64()), *lasting
			if kind == engines.SQLite && o.lasts <= 3*time.Second {
				o.processes = min(o.processes, 12)
			}
			out, err := o.run(t.Context())
			if err != nil {
				t.Fatalf("seed %d: %v", o.seed, err)
			}
			t.Logf("seed %d: %v", o.seed, out)
			if o.kill && out.Killed < o.faults || o.stop && out.Stopped < o.faults {
				t.Errorf("seed %d: fewer than %d faults of a kind", o.seed, o.faults)
			}
			for _, f := range out.Found {
				t.Errorf("seed %d: %s", o.seed, f)
			}
		})
	}
}

// Rule: n slots have n holders at most, each slot one at a time, whichever process is
// killed; and what a killed one held is free after its TTL.
func TestSemaphoreOf64Processes(t *testing.T) {
	try(t, contest{use: semaphore, processes: 64, slots: 5, ttl: time.Second, kill: true, faults: 3})
}

// Rule: LockAll of keys in any order does not deadlock, and what a killed process
// had, of all or some of its keys, is free after its TTL.
func TestLockAllOf32Processes(t *testing.T) {
	try(t, contest{use: lockAll, processes: 32, ttl: time.Second, kill: true, faults: 3})
}

// Rule: there is one leader at most at any instant, and the fences of leaders
// rise, whichever process is killed, or stopped for longer than its TTL.
func TestElection(t *testing.T) {
	try(t, contest{use: election, processes: 8, ttl: time.Second, kill: true, stop: true, faults: 2})
}

// Rule: a writer is alone, whichever process is killed or stopped; later holders learn of a writer's death.
func TestReadersAndWriters(t *testing.T) {
	try(t, contest{use: readWrite, processes: 16, ttl: time.Second, kill: true, stop: true, faults: 2})
}

// contestFaults are what the driver of a client can do without, by name, to show that each oracle notices.
var contestFaults = map[string]broken.Fault{
	"one more than the limit": broken.OneMore,
	"one slot for all":        broken.OneSlot,
	"writers share":           broken.EverybodyShares,
	"fences fall":             broken.FallingFences,
	"leases too long":         broken.TooLong,
	"deaths hidden":           broken.DeathsHidden,
	"deaths made up":          broken.DeathsMadeUp,
	"nothing released":        broken.All(broken.Outliving, broken.NoRelease),
	"no hints":                broken.All(broken.NoHints, broken.NoRetry),
	"the dead hold on":        broken.Outliving,
}

func init() {
	for name, fault := range contestFaults {
		variants["contest, "+name] = &variant{whole: fault}
	}
}

// Each oracle notices the fault that it is for, in one of some runs.
func TestFaultsAreFound(t *testing.T) {
	const most = 20
	for name, c := range map[string]struct {
		o    contest
		want string
	}{
		"one more than the limit": {contest{use: semaphore}, "where the limit is"},
		"one slot for all":        {contest{use: semaphore}, "two have slot 0"},
		"writers share":           {contest{use: readWrite}, "two holders of"},
		"fences fall":             {contest{use: lockAll}, "does not rise"},
		"leases too long":         {contest{use: election, stop: true, faults: 2}, "two holders of"},
		"deaths hidden":           {contest{use: election, kill: true, faults: 3}, "no later holder learned"},
		"deaths made up":          {contest{use: election}, "and all had"},
		"nothing released":        {contest{use: lockAll, patience: 5 * time.Second}, "after the last fault"},
		"no hints":                {contest{use: readWrite, ttl: 30 * time.Second}, "stood open"},
		"the dead hold on":        {contest{use: election, kill: true, faults: 3, patience: 5 * time.Second}, "after the last fault"},
	} {
		t.Run(name, func(t *testing.T) { // not in parallel: several have to hold it at once
			var out *contested
			for seed := range uint64(most) {
				o := c.o
				o.ttl, o.lasts = cmp.Or(o.ttl, time.Second), time.Second
				o.processes, o.slots, o.seed, o.broken = 5, 2, seed, "contest, "+name
				kind := engines.SQLite
				if name == "no hints" || o.use == semaphore { // where waiters poll, the slots are empty most of the time
					kind = engines.Redis
				}
				o.store = engines.Start(t, kind)
				var err error
				if out, err = o.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(strings.Join(out.Found, "\n"), c.want) {
					return
				}
			}
			t.Errorf("%v\nfound %q, want one with %q", out, out.Found, c.want)
		})
	}
}
