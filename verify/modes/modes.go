// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package modes tries semaphores, LockAll, elections and read-write locks with
// many processes on one store, some of which are killed (kill -9) or stopped
// (SIGSTOP) while they hold keys or wait for them, and judges what they recorded.
//
// Every process reports each step before it goes on, by one clock: a hold is
// valid from when its client learned of it to when it began to release it, or to
// its deadline, whichever is first, and that of a killed process to its deadline
// as last known. internal/history checks what may not overlap; the rest is checked
// here: that the next holder learns of a holder's death, that every process has a turn in
// the end, and that all keys and slots are free then.
package modes

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/verify/broken"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/redis/go-redis/v9/logging"
)

// Kind is what the processes do.
type Kind string

// The kinds.
const (
	Semaphore Kind = "semaphore"  // all contend for the slots of one key
	LockAll   Kind = "lock-all"   // each wants several keys at once, drawn at random; some only to read
	Election  Kind = "election"   // all campaign, and observe the leader
	ReadWrite Kind = "read-write" // one in four writes, the others read; writers may downgrade
)

// Options configure a run. Kind, Store and Processes are required.
type Options struct {
	Kind       Kind
	Store      *engines.Store // no other program may use its keys
	Processes  int
	Slots      int           // of the semaphore; 0 means 5
	TTL        time.Duration // 0 means 2 s
	For        time.Duration // of faults
	Kill, Stop bool          // the faults
	Faults     int           // so many of each there are, however long that takes
	Seed       uint64        // of what is drawn; the outcome also depends on timing
	// Patience is how long it may take until all keys are acquired after the faults: 0 means
	// 2 minutes, more than any machine's delay.
	Patience time.Duration
	broken   string // a fault of the store's driver; see faults
}

// manyKeys is the number of keys of LockAll.
const manyKeys = 6

// keys returns the names of the keys that a kind uses.
func (k Kind) keys() (names []string) {
	if k != LockAll {
		return []string{string(k)}
	}
	for i := range manyKeys {
		names = append(names, fmt.Sprintf("%s/%d", k, i))
	}
	return names
}

// Outcome is the result of a run.
type Outcome struct {
	*player.Outcome
	Holding   int // processes that were killed while they held something
	Abandoned int // grants with which a client learned that a previous holder did not release the key
}

// String returns the outcome in one line.
func (o *Outcome) String() string {
	return fmt.Sprintf("%d turns in %v (%d waits cancelled, %d failed, %d lost, %d after one abandoned); %d processes killed, %d of them holders; %d stopped",
		o.Granted, o.Tried.Round(10*time.Millisecond), o.Cancelled, o.Failed, o.Expired, o.Abandoned, o.Killed, o.Holding, o.Stopped)
}

// faultRest is the least time from one fault to the next: a process that is
// killed has to be started again.
const faultRest = 100 * time.Millisecond

// Run runs the processes. The error says why it could not. A program
// that calls it calls WorkerMain first.
func Run(t interface{ Context() context.Context }, o Options) (*Outcome, error) {
	o.Slots, o.TTL, o.Patience = cmp.Or(o.Slots, 5), cmp.Or(o.TTL, 2*time.Second), cmp.Or(o.Patience, 2*time.Minute)
	w := &watcher{o: &o, ctx: t.Context(), seen: map[*player.Member]uint64{}}
	trial := &player.Trial{
		Clients: o.Processes, Keys: o.Kind.keys(), TTL: o.TTL, Seed: o.Seed,
		For: o.For, Kill: o.Kill, Stop: o.Stop, Faults: o.Faults, AtGrant: true, Rest: faultRest, Patience: o.Patience,
		Draw: o.draw, Last: true, Hear: w.hear, Hit: w.hit, Judge: w.judge,
		Client: func(int) (*exec.Cmd, player.Job) { return player.Again(workerEnv), o.job() },
	}
	out, _, err := trial.Run(nil)
	if err == nil && out.Trouble != "" {
		err = fmt.Errorf("the store is gone: %s", out.Trouble)
	}
	return &Outcome{out, w.holding, w.abandoned}, err
}

// longHold: one hold in so many is long.
const longHold = 60

// draw draws what the next turn asks for, and how long it lasts.
func (o *Options) draw(r *rand.Rand) player.Order {
	next := player.Order{Bare: true, Hold: player.Between(r, 0, 4*time.Millisecond)}
	switch n := r.IntN(longHold); {
	case n == 0: // for longer than a renewal takes
		next.Hold = player.Between(r, o.TTL/3, o.TTL*2/3)
	case n < 5:
		next.Hold = player.Between(r, 20*time.Millisecond, 80*time.Millisecond)
	}
	if r.IntN(10) == 0 { // gives up while it waits
		next.Limit = player.Between(r, time.Millisecond, 50*time.Millisecond)
	}
	for _, key := range o.Kind.keys() {
		next.Wants = append(next.Wants, player.Want{Key: key})
	}
	switch o.Kind {
	case Semaphore:
		next.Slots, next.Wants[0].Shared = o.Slots, true
	case Election:
		next.Campaign = true
	case ReadWrite:
		next.Wants[0].Shared = r.IntN(4) > 0
		next.Downgrade = !next.Wants[0].Shared && r.IntN(3) == 0
	case LockAll: // two or three keys, in any order
		r.Shuffle(len(next.Wants), func(i, j int) { next.Wants[i], next.Wants[j] = next.Wants[j], next.Wants[i] })
		next.Wants = next.Wants[:2+r.IntN(2)]
		for i := range next.Wants {
			next.Wants[i].Shared = r.IntN(4) == 0
		}
	}
	return next
}

// workerEnv marks a process that is a client.
const workerEnv = "HASP_MODES_WORKER"

// WorkerMain turns this process into a client when it was started as one, and
// does not return then.
func WorkerMain() {
	player.Main(workerEnv, func(in io.Reader, out io.Writer) error {
		return player.Work(in, out, func(j player.Job, observe func(context.Context, *event.Event)) (player.Locks, error) {
			return open(j, observe)
		})
	})
}

// faults are what a client can do without, by name, to show that each oracle notices.
var faults = map[string]broken.Fault{
	"":                        nil,
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

// job is what a client is told.
func (o *Options) job() player.Job {
	return player.Job{Store: string(o.Store.Kind) + "=" + strings.Join(o.Store.Addrs(), ","), TTL: o.TTL, Broken: o.broken}
}

// open connects a client, with a fault of its driver when the job names one.
func open(j player.Job, observe func(context.Context, *event.Event)) (*engines.Client, error) {
	logging.Disable()
	fault, ok := faults[j.Broken]
	if !ok {
		return nil, fmt.Errorf("no fault is called %q", j.Broken)
	}
	kind, addrs, _ := strings.Cut(j.Store, "=")
	conn, err := engines.OpenFor(engines.Kind(kind), strings.Split(addrs, ","), j.TTL)
	if err != nil {
		return nil, err
	}
	conn.Driver = broken.Around(conn.Driver, fault)
	return conn.Client(&hasp.Options{Observe: observe})
}

const (
	// wake is how long a key may be available to a waiter that gets hints by messages:
	// far longer than a message takes, and shorter than the time to the waiter's next
	// Try with a TTL of 10 s or more.
	wake = 2 * time.Second
	// polls is the same where all waiters poll one file, and delay each other.
	polls = 15 * time.Second
	// claim is how long a key is offered to a waiter that was killed or stopped.
	claim = 500 * time.Millisecond
)

// watcher sees what the book does not have: which processes died, and for how long this one did not get to run.
type watcher struct {
	o                  *Options
	ctx                context.Context
	seen               map[*player.Member]uint64 // the fence of the last leader that a process saw
	stalls             history.Stalls            // of this process, whenever another reported something
	first              time.Time                 // when a hold may first have ended without a release; zero: not yet
	holding, abandoned int                       // see Outcome
}

// hear notes what a client says; see player.Trial.
func (w *watcher) hear(b *player.Book, m *player.Member, e *player.Event) {
	if e == nil {
		w.left(b, m)
		return
	}
	w.stalls = append(w.stalls, history.Stall{At: b.Wall(player.Now()), Lost: e.Stalled})
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
	at := player.Now().Add(w.o.TTL)
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
	ctx, cancel := context.WithTimeout(w.ctx, w.o.Patience)
	defer cancel()
	c, err := open(w.o.job(), nil)
	if err != nil {
		b.Broken("%v", err)
		return
	}
	defer func() {
		if err := c.Close(); err != nil {
			b.Broken("the end: %v", err)
		}
	}()
	orders := []player.Order{}
	for _, key := range w.o.Kind.keys() {
		orders = append(orders, player.Order{Wants: []player.Want{{Key: key}}})
	}
	if w.o.Kind == Semaphore {
		orders[0].Slots, orders[0].Wants[0].Shared = w.o.Slots, true
		orders = slices.Repeat(orders, w.o.Slots)
	}
	me := &player.Member{Process: &player.Process{}} // the others' numbers begin with 1
	var all []*player.Holding
	for _, o := range orders {
		me.Order = o
		b.Add(me, &player.Event{What: player.Asked, At: player.Now()})
		h, err := player.Acquire(ctx, c, &o, w.o.TTL)
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
	for _, key := range w.o.Kind.keys() {
		if err := free(ctx, c, key); err != nil {
			b.Broken("after everything was released: %v", err)
		}
	}
}

// free waits until a key is free: it may still be offered to a waiter that was
// killed.
func free(ctx context.Context, c *engines.Client, key string) error {
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
		if w.o.Kind != LockAll && !a.Waits() { // what it holds while it waits for its other keys is not in the history
			to := cmp.Or(a.Granted, a.Failed)
			waits = append(waits, history.Wait{Key: a.Key, Owner: a.By.String(), Shared: a.Shared, Limit: a.Limit,
				Asked: b.Wall(a.Asked), From: b.Wall(cmp.Or(a.Queued, to)), To: b.Wall(to), Away: a.Away}) // it had no place, as far as it said
		}
	}
	return history.CheckIdle(holds, waits, func(_ string, from, to time.Time) time.Duration {
		lost := w.stalls.Between(from, to)
		most := lost + wake
		if w.o.Store.Kind == engines.SQLite {
			most = lost + polls
		}
		for _, wait := range waits {
			if wait.Away && wait.Asked.Before(to) && wait.To.Add(claim).After(from) {
				most += max(claim, min(w.o.TTL, 10*time.Second)) // SQLite waits for the patience of a place
			}
		}
		return most
	})
}
