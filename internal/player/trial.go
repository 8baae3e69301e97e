// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package player

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/history"
)

const (
	// margin is what a busy machine may take on top of what a store may.
	margin = 30 * time.Second
	// lastLimit is how long a client may take to end when asked to.
	lastLimit = 30 * time.Second
	// goneLimit is the same where the run could not go on.
	goneLimit = time.Second
	// shortHold is the longest of most holds, and of all after the faults.
	shortHold = 20 * time.Millisecond
	// mostFound bounds what is listed: one broken rule shows in many places.
	mostFound = 10
)

// Trial tries a store with clients that are killed, stopped, and give up, and judges what they saw.
//
// The clients are processes of this very program. They hold keys of their own and change a register that their parent keeps, and
// report every step; the parent draws the faults from a seed and hands the reports to the oracles of internal/history. Nothing is
// done to servers or to the network.
type Trial struct {
	Clients int
	Keys    []string // which no other program may use
	TTL     time.Duration
	Session time.Duration // what a client that dies held may last for about so long; 0: no longer than its TTL
	Seed    uint64

	For        time.Duration // of faults; what comes after them takes Bound at most
	Kill, Stop bool          // the faults
	Faults     int           // so many of each there are, however long that takes
	AtGrant    bool          // two thirds, and the first, hit a client as soon as it is granted a key
	Rest       time.Duration // the least time from one fault to the next
	Pace       time.Duration // the least time from one order to the next; 0: there is none
	Patience   time.Duration // in place of Bound, and of the time that a client may take to end, with a store that is silent; 0: these

	Draw   func(*rand.Rand) Order
	Last   bool                            // each client is granted one more order in the end
	Client func(slot int) (*exec.Cmd, Job) // of this program; a killed client has its successor in the same slot

	Hear  func(b *Book, m *Member, e *Event) // nil, or told what a client says before it is recorded. A nil event: the client has ended
	Hit   func(b *Book, m *Member)           // nil, or told which client is about to be killed or stopped
	Judge func(b *Book) []string             // nil, or returns what it found when all clients have ended. It may add to the book
}

// Bound is how long after the last fault every key must have been acquired again: the
// lease of a killed holder expires after the TTL, or with its session, and so may the
// place in the queue of a client that was killed right behind it.
func (t *Trial) Bound() time.Duration { return cmp.Or(t.Patience, 2*max(t.TTL, t.Session)+margin) }

// fault is something that is done to a client.
type fault struct {
	at   time.Duration // since all clients are at work
	stop time.Duration // how long it stands still; 0: it is killed
	held bool          // to a client that holds a key, if there is one
	pick uint64        // which of the clients that qualify
}

// plan returns the faults of a trial. They follow from the seed.
func (t *Trial) plan() (faults []fault) {
	r := rand.New(rand.NewPCG(t.Seed, 1))
	kills, stops := 0, 0
	for at := time.Duration(0); t.Kill || t.Stop; {
		at += Between(r, t.Rest, 3*t.Rest)
		if at >= t.For && (!t.Kill || kills >= t.Faults) && (!t.Stop || stops >= t.Faults) {
			break
		}
		f := fault{at: at, held: r.IntN(2) == 0, pick: r.Uint64()}
		f.held = f.held || t.AtGrant && (len(faults) == 0 || r.IntN(3) == 0)
		beyond := Between(r, t.TTL*11/10, longest(t.TTL)) // any lease's deadline
		if heads := r.IntN(2) == 0; t.Stop && (heads || !t.Kill) {
			f.stop = beyond
			stops++
		} else {
			kills++
		}
		faults = append(faults, f)
	}
	return faults
}

// longest is the longest pause.
func longest(ttl time.Duration) time.Duration { return ttl * 16 / 10 }

// Between returns a random time.
func Between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}

// Outcome is the result of a trial.
type Outcome struct {
	Counts
	// Tried is how long it took, until the clients were asked to end.
	Tried time.Duration
	// Handoff is the longest time from the end of a hold to the next hold of an owner
	// that waited already.
	Handoff time.Duration
	// Recovered: every key was acquired again after the last fault, within Back.
	Recovered bool
	Back      time.Duration
	// Found are the rules that were broken; none when all is well.
	Found []string
	// Class and Trouble are those of the store's latest error, when it was gone
	// at the end; Trouble is empty otherwise.
	Class   driver.Class
	Trouble string
}

// run is a trial under way with faults that are drawn.
type run struct {
	*Stage
	due []fault // for clients that are granted a key next

	again map[string]bool  // the keys that were granted since the last fault
	stood time.Duration    // by how much stalls prolonged the wait for that
	over  Mono             // when that had ended; 0: not yet
	back  Mono             // the latest of the first grants since, over the keys
	final map[*Member]bool // clients that have their last order, and whether it was granted

	silent  int    // failures by trouble since the latest grant
	trouble *Event // the latest of them
}

func newRun(t *Trial) *run {
	r := &run{Stage: newStage(t), again: map[string]bool{}, final: map[*Member]bool{}}
	r.Stage.add, r.Stage.next = r.record, r.next
	return r
}

// Run tries the store. It ends early when a signal comes, which it returns, or
// when the store is gone. An error says that it could not be done, for reasons
// that are not the store's.
func (t *Trial) Run(signals <-chan os.Signal) (*Outcome, os.Signal, error) {
	r := newRun(t)
	begun := time.Now()
	r.signals = signals
	r.open()
	r.tryAll()
	tried, most := time.Since(begun), cmp.Or(t.Patience, lastLimit)
	gone := r.Err() != nil
	if gone { // most often the store is gone, and takes no release
		most = goneLimit
	}
	late := r.Close(most)
	r.End()
	if r.err != nil && !errors.Is(r.err, errGone) {
		return nil, r.sig, r.err
	}
	for _, m := range late {
		if r.err == nil {
			r.Broken("%v did not end within %v when asked to", m, within(most, r.longer))
		}
	}
	return r.judge(tried, r.sig != nil), r.sig, nil
}

// errGone: no client gets an answer from the store, or all are refused for good.
var errGone = errors.New("the store is gone")

// tryAll does the faults, and then waits until every key is acquired again.
func (r *run) tryAll() {
	faults, length := r.o.plan(), r.o.For
	if n := len(faults); n > 0 && r.o.Faults > 0 { // all of them, each pause to its end
		length = max(length, faults[n-1].at+longest(r.o.TTL)+r.o.Rest)
	}
	began := func() bool {
		return !slices.ContainsFunc(r.All, func(m *Member) bool { return !m.Left && !m.Began })
	}
	if !r.goesOn(time.Hour, began) {
		return
	}
	start := time.Now() // all clients are at work
	pass := func(at time.Duration) bool {
		return r.goesOn(time.Until(start.Add(at)), func() bool { return false })
	}
	for _, f := range faults {
		if !pass(f.at) {
			return
		}
		r.Do(func() { r.fault(f) })
	}
	if pass(length) {
		r.Do(func() {
			r.finishFaults()
			r.over = Now()
		})
		r.goesOn(r.o.Bound(), func() bool { return len(r.again) >= len(r.o.Keys) }) // judge says what was not acquired again
		r.stood = r.longer
	}
}

// goesOn waits until enough, or for a limit. It is false when the trial ends early.
func (r *run) goesOn(limit time.Duration, enough func() bool) bool {
	r.Await(limit, func() bool { return r.err != nil || enough() })
	return r.sig == nil && r.Err() == nil
}

// within says what was awaited: a limit, and the stalls that prolonged it.
func within(limit, longer time.Duration) string {
	if longer = longer.Round(time.Millisecond); longer > 0 {
		return fmt.Sprintf("%v, and the %v for which this process did not run", limit, longer)
	}
	return limit.String()
}

// record records what a client said, and does what follows. It returns the answer, if there is one.
func (r *run) record(m *Member, e *Event) (answer *Order) {
	answer = r.add(m, e)
	if e.What == Granted && len(r.due) > 0 && !m.Paused && !m.Killed {
		r.hit(m, r.due[0])
		r.due = r.due[1:]
	}
	if e.What == Failed && r.fatal(e) {
		r.err = errGone
	}
	return answer
}

// add records what a client said. It returns the answer, if there is one.
func (r *run) add(m *Member, e *Event) (answer *Order) {
	switch {
	case e.What == Granted:
		r.silent = 0
		if _, last := r.final[m]; last {
			r.final[m] = true
		}
		// A writer that asked since: where waiters queue, the places of dead clients before it have ended, too.
		if r.over != 0 && m.Asked > r.over && !e.Shared && !r.again[e.Key] {
			r.again[e.Key] = true
			r.back = max(r.back, e.At)
		}
	case e.What == Failed && e.Kind != Cancelled:
		r.silent++
		r.trouble = e
	}
	return r.Add(m, e)
}

// fatal says whether a failure means that it makes no sense to go on: the
// store refuses for good, or answers no client, and there is no Patience.
func (r *run) fatal(e *Event) bool {
	return e.Kind != Cancelled && (!temporary(e.Kind) || r.silent >= r.o.Clients && r.o.Patience == 0)
}

// temporary says whether a wait may go on after such an error.
func temporary(kind string) bool {
	return kind == "unreachable" || ClassOf(kind) == driver.ClassUnknown
}

// next draws the next order of a client. After the faults, keys that no client acquired since come first. In the end each has its
// last one, and may end once that was granted.
func (r *run) next(m *Member) Order {
	if granted, last := r.final[m]; r.closing && (granted || r.err != nil) {
		return Order{Stop: true}
	} else if r.closing && !last {
		r.final[m] = false
	}
	o := r.o.Draw(r.rand)
	switch {
	case r.closing:
		o.Limit = 0
	case r.over != 0:
		o.Limit, o.Hold = 0, min(o.Hold, shortHold)
		for i := range r.o.Keys {
			if key := r.o.Keys[(m.ID+i)%len(r.o.Keys)]; !r.again[key] {
				return Order{Wants: []Want{{Key: key}}, Hold: o.Hold, Bare: o.Bare}
			}
		}
	}
	return o
}

// fault kills or stops a client. At least one is left at work.
func (r *run) fault(f fault) {
	if len(r.fit(func(*Member) bool { return true })) < 2 {
		return
	}
	if f.held && r.o.AtGrant {
		r.due = append(r.due, f)
		return
	}
	all := r.fit(func(m *Member) bool { return m.Began })
	if holding := r.fit(func(m *Member) bool { return len(m.Open) > 0 }); f.held && len(holding) > 0 {
		all = holding
	}
	if len(all) == 0 {
		return
	}
	r.hit(all[f.pick%uint64(len(all))], f)
}

// finishFaults does what is still due, and ends all pauses.
func (r *run) finishFaults() {
	for _, f := range r.due { // no client was granted a key
		f.held = false
		r.fault(f)
	}
	r.due = nil
	for _, m := range r.All {
		r.resume(m)
	}
}

func (r *run) hit(m *Member, f fault) {
	if r.o.Hit != nil {
		r.o.Hit(r.Book, m)
	}
	switch {
	case f.stop == 0:
		m.Killed = true
		_ = m.cmd.Process.Kill() // fails only when it is gone; its last report comes later
		r.Killed++
	case m.Process.Pause() == nil:
		m.Paused = true
		time.AfterFunc(f.stop, func() {
			r.Do(func() { r.resume(m) })
		})
		r.Stopped++
	}
}

// judge asks the oracles. A run that a signal ended did not get to the end of the
// faults.
func (r *run) judge(tried time.Duration, interrupted bool) *Outcome {
	o := &Outcome{Counts: r.Counts, Tried: tried, Found: []string{}, Recovered: r.over != 0 && len(r.again) == len(r.o.Keys)}
	var more []string
	if r.o.Judge != nil {
		more = r.o.Judge(r.Book)
	}
	holds := r.History()
	o.Handoff = handoff(holds)
	if o.Recovered {
		o.Back = r.back.Sub(r.over)
	}
	o.Found = append(o.Found, slices.Concat(history.Judge(holds), more, r.Book.Found)...)
	switch {
	case r.silent > 0 && !o.Recovered && !interrupted:
		o.Class, o.Trouble = ClassOf(r.trouble.Kind), r.trouble.Err
	case !o.Recovered && !interrupted:
		for _, key := range r.o.Keys {
			if !r.again[key] {
				o.Found = append(o.Found, fmt.Sprintf("no client that asked for %q after the last fault acquired it alone within %s", key, within(r.o.Bound(), r.stood)))
			}
		}
	}
	o.Found = history.Few(o.Found, mostFound)
	return o
}

// handoff is the longest time from the end of a hold to the next hold of an owner that
// waited already.
func handoff(holds []history.Hold) (longest time.Duration) {
	slices.SortStableFunc(holds, func(a, b history.Hold) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), a.From.Compare(b.From))
	})
	for i := 1; i < len(holds); i++ {
		before, h := &holds[i-1], &holds[i]
		if h.Key != before.Key {
			continue
		}
		asked := h.From.Add(-time.Duration(h.Granted - h.Asked))
		if asked.Before(before.To) {
			longest = max(longest, h.From.Sub(before.To))
		}
	}
	return longest
}
