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

	"github.com/hasplock/hasp"
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
	Session time.Duration // driver.Traits.SessionTTL
	Seed    uint64

	For        time.Duration // of faults; what comes after them takes Bound at most
	Kill, Stop bool          // the faults
	Faults     int           // so many of each there are, however long that takes
	AtGrant    bool          // two thirds, and the first, hit a client as soon as it is granted a key
	Rest       time.Duration // the least time from one fault to the next
	Pace       time.Duration // the least time from one order to the next; 0: there is none
	Patience   time.Duration // in place of Bound, and of the time that a client may take to end, with a store that is silent; 0: these

	Draw     func(*rand.Rand) Order
	Last     bool            // each client is granted one more order in the end
	Prepare  func(*exec.Cmd) // makes a client of this program
	Job      Job             // of a client
	Observer Observer        // or nil
}

// Observer knows more of a trial than its book.
type Observer interface {
	// Hear is told what a client says before it is recorded. A nil event: the client has ended.
	Hear(b *Book, m *Member, e *Event)
	// Hit is told which client is about to be killed or stopped.
	Hit(b *Book, m *Member)
	// Judge returns what it found when all clients have ended. It may add to the book.
	Judge(b *Book) []string
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
	Class   hasp.Class
	Trouble string
}

// report is an event of a client. A nil event: the process has ended, and all of its events
// were received.
type report struct {
	of *Member
	*Event
}

// run is a trial under way. One goroutine does all that is decided.
type run struct {
	*Book
	o       *Trial
	reports chan report
	rested  chan *Member // their pauses are over
	members map[*Member]bool
	started int
	closing bool          // clients that were killed are not replaced
	err     error         // why the run cannot go on
	done    chan struct{} // closed when the run receives no more reports

	rand *rand.Rand // of the orders; which client is given which depends on timing
	idle []*Member  // that asked for an order
	due  []fault    // for clients that are granted a key next

	again map[string]bool  // the keys that were granted since the last fault
	over  Mono             // when that had ended; 0: not yet
	back  Mono             // the latest of the first grants since, over the keys
	final map[*Member]bool // clients that have their last order, and whether it was granted

	silent  int    // failures by trouble since the latest grant
	trouble *Event // the latest of them
}

func newRun(t *Trial) *run {
	return &run{Book: NewBook(), o: t, reports: make(chan report), rested: make(chan *Member), members: map[*Member]bool{}, done: make(chan struct{}),
		rand: rand.New(rand.NewPCG(t.Seed, 2)), again: map[string]bool{}, final: map[*Member]bool{}}
}

// Run tries the store. It ends early when a signal comes, which it returns, or
// when the store is gone. An error says that it could not be done, for reasons
// that are not the store's.
func (t *Trial) Run(signals <-chan os.Signal) (*Outcome, os.Signal, error) {
	r := newRun(t)
	defer r.end()
	begun := time.Now()
	r.hire(t.Clients)
	sig := r.tryAll(signals)
	tried := time.Since(begun)
	r.close(signals)
	if r.err != nil && !errors.Is(r.err, errGone) {
		return nil, sig, r.err
	}
	return r.judge(tried, sig != nil), sig, nil
}

// errGone: no client gets an answer from the store, or all are refused for good.
var errGone = errors.New("the store is gone")

// hire adds clients.
func (r *run) hire(n int) {
	for ; n > 0 && r.err == nil; n-- {
		if err := r.start(); err != nil {
			r.err = fmt.Errorf("a client could not be started: %w", err)
		}
	}
}

func (r *run) start() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe)
	r.o.Prepare(cmd)
	r.started++
	m := &Member{}
	begin := make(chan struct{})
	m.Process, err = Start(r.started, cmd, func(_ *Process, e Event) {
		<-begin
		r.pass(report{m, &e})
	})
	if err != nil {
		return err
	}
	r.members[m] = true
	close(begin)
	m.Send(r.o.Job)
	go func() {
		<-m.Ended
		r.pass(report{m, nil})
	}()
	return nil
}

func (r *run) pass(rep report) {
	select {
	case r.reports <- rep:
	case <-r.done:
	}
}

// left takes note that a client has ended. A killed one is replaced; the run fails when one ends that was not told to.
func (r *run) left(m *Member) {
	delete(r.members, m)
	r.idle = slices.DeleteFunc(r.idle, func(other *Member) bool { return other == m })
	switch {
	case m.Killed && !r.closing:
		r.hire(1)
	case !m.Killed && !m.Order.Stop:
		r.err = fmt.Errorf("%v ended by itself: %s", m, m.Last())
	}
}

// resume lets a stopped client go on.
func (r *run) resume(m *Member) {
	if m.Paused {
		m.Paused = false
		_ = m.Process.Resume() // fails only when it is gone
	}
}

// fit returns the clients that are neither killed nor stopped and that fit, in the order of their
// numbers.
func (r *run) fit(fits func(*Member) bool) (all []*Member) {
	for m := range r.members {
		if !m.Killed && !m.Paused && fits(m) {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *Member) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// end kills the clients that are left, whose reports are no longer received.
func (r *run) end() {
	close(r.done)
	for m := range r.members {
		m.Process.Kill()
	}
}

// tryAll does the faults, and then waits until every key is acquired again.
func (r *run) tryAll(signals <-chan os.Signal) os.Signal {
	var tick <-chan time.Time
	if r.o.Pace > 0 {
		ticker := time.NewTicker(r.o.Pace)
		defer ticker.Stop()
		tick = ticker.C
	}
	faults := r.o.plan()
	var start time.Time // when all clients were at work
	next := time.NewTimer(time.Hour)
	defer next.Stop()
	limit := time.NewTimer(time.Hour)
	defer limit.Stop()
	for r.err == nil && len(r.again) < len(r.o.Keys) {
		select {
		case rep := <-r.reports:
			r.receive(rep)
		case m := <-r.rested:
			r.resume(m)
		case <-tick:
			r.order()
		case <-next.C:
			r.fault(faults[0])
			faults = faults[1:]
			if len(faults) > 0 {
				next.Reset(time.Until(start.Add(faults[0].at)))
			}
		case <-limit.C:
			if r.over != 0 {
				return nil // judge says what was not acquired again
			}
			next.Stop()
			r.finishFaults()
			r.over = Now()
			limit.Reset(r.o.Bound())
		case sig := <-signals:
			return sig
		}
		if start.IsZero() && r.allBegan() {
			start = time.Now()
			length := r.o.For
			if len(faults) > 0 {
				next.Reset(faults[0].at)
				if r.o.Faults > 0 { // all of them, each pause to its end
					length = max(length, faults[len(faults)-1].at+longest(r.o.TTL)+r.o.Rest)
				}
			}
			limit.Reset(length)
		}
	}
	return nil
}

func (r *run) allBegan() bool {
	for m := range r.members {
		if !m.Began {
			return false
		}
	}
	return true
}

// receive records an event of a client.
func (r *run) receive(rep report) {
	m, e := rep.of, rep.Event
	if r.o.Observer != nil {
		r.o.Observer.Hear(r.Book, m, e)
	}
	switch {
	case e == nil:
		r.left(m)
	case e.What == Ready:
		m.Began = true
		switch {
		case r.closing && r.o.Last:
			r.finish(m)
		case r.closing: // it will read that it is to stop
		default:
			if r.idle = append(r.idle, m); r.o.Pace == 0 {
				r.order()
			}
		}
	default:
		if answer := r.add(m, e); answer != nil {
			m.Send(answer)
		}
		if e.What == Granted && len(r.due) > 0 && !m.Paused && !m.Killed {
			r.hit(m, r.due[0])
			r.due = r.due[1:]
		}
		if e.What == Failed && r.fatal(e) {
			r.err = errGone
		}
	}
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
	return kind == "unreachable" || ClassOf(kind) == hasp.ClassUnknown
}

// order gives the next order to the client that has asked for longest. After the
// faults, keys that no client acquired since come first.
func (r *run) order() {
	if len(r.idle) == 0 {
		return
	}
	m := r.idle[0]
	r.idle = r.idle[1:]
	o := r.o.Draw(r.rand)
	if r.over != 0 {
		o.Limit, o.Hold = 0, min(o.Hold, shortHold)
		for i := range r.o.Keys {
			if key := r.o.Keys[(m.ID+i)%len(r.o.Keys)]; !r.again[key] {
				o = Order{Wants: []Want{{Key: key}}, Hold: o.Hold, Bare: o.Bare}
				break
			}
		}
	}
	m.Do(o)
}

// finish gives a client its last order, and lets it end once that was granted.
func (r *run) finish(m *Member) {
	if r.final[m] || r.err != nil {
		m.Do(Order{Stop: true})
		return
	}
	r.final[m] = false
	o := r.o.Draw(r.rand)
	o.Limit = 0
	m.Do(o)
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
	for m := range r.members {
		r.resume(m)
	}
}

func (r *run) hit(m *Member, f fault) {
	if r.o.Observer != nil {
		r.o.Observer.Hit(r.Book, m)
	}
	switch {
	case f.stop == 0:
		m.Killed = true
		_ = m.cmd.Process.Kill() // fails only when it is gone; its last report comes later
		r.Killed++
	case m.Process.Pause() == nil:
		m.Paused = true
		time.AfterFunc(f.stop, func() {
			select {
			case r.rested <- m:
			case <-r.done:
			}
		})
		r.Stopped++
	}
}

// close has every client release what it holds, and end. A second signal makes
// it kill them.
func (r *run) close(signals <-chan os.Signal) {
	r.closing = true
	for m := range r.members {
		r.resume(m)
		if !r.o.Last || r.err != nil {
			m.Do(Order{Stop: true})
		}
	}
	if r.o.Last && r.err == nil {
		for _, m := range r.idle {
			r.finish(m)
		}
	}
	most := cmp.Or(r.o.Patience, lastLimit)
	if r.err != nil { // most often the store is gone, and takes no release
		most = goneLimit
	}
	limit := time.NewTimer(most)
	defer limit.Stop()
	for len(r.members) > 0 {
		select {
		case rep := <-r.reports:
			r.receive(rep)
		case <-r.rested: // it goes on already
		case <-signals:
			return
		case <-limit.C:
			for m := range r.members {
				if r.err == nil {
					r.Broken("%v did not end within %v when asked to", m, most)
				}
			}
			return
		}
	}
}

// judge asks the oracles. A run that a signal ended did not get to the end of the
// faults.
func (r *run) judge(tried time.Duration, interrupted bool) *Outcome {
	o := &Outcome{Counts: r.Counts, Tried: tried, Found: []string{}, Recovered: r.over != 0 && len(r.again) == len(r.o.Keys)}
	var more []string
	if r.o.Observer != nil {
		more = r.o.Observer.Judge(r.Book)
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
				o.Found = append(o.Found, fmt.Sprintf("no client that asked for %q after the last fault acquired it alone within %v", key, r.o.Bound()))
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
