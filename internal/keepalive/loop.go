// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package keepalive renews what a client has in a store: leases, and places in the
// queue. It does not know which is which; it looks at the clock, and sends what is due
// together in one Renew.
package keepalive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/gate"
)

const (
	// Tick is how often the clock is asked while there is something to renew: Go's
	// timers stand still while the machine sleeps.
	Tick = 250 * time.Millisecond
	// jumped is how much more than the monotonic clock another clock must show
	// for one Tick before every member is looked at.
	jumped = time.Millisecond
	// maxCalls bounds the Renew calls under way. Only calls without an answer
	// add up: one for each Tick, or a few small ones, until their time is over.
	maxCalls   = 128
	renewLimit = 10 * time.Second // one Renew
	// lanes is how many small calls of one moment are under way at once: each may take a connection of the user's.
	lanes = 4
)

// probes are how many members the small calls have that find out whether a link loses large requests and lets small ones pass.
var probes = [...]int{1, 4, 32}

// Member is a lease or a place in the queue that needs renewal.
type Member interface {
	// Due says whether to renew at now, and whether the member has expired. hurry:
	// the clock jumped, so that less time is left than planned.
	Due(now clock.Instant, hurry bool) (renew, over bool)
	// NextLook is when to call Due again, on the monotonic clock.
	NextLook(now clock.Instant) time.Duration
	// Request is what to send, if anything.
	Request() (r driver.RenewRequest, ok bool)
	// Renewed takes the answer to a renewal that began at start.
	Renewed(start clock.Instant, r driver.Renewal)
	// Expire is called, without locks, when Due said that the member has expired. The
	// function that it returns calls the observer, which may be slow.
	Expire() (tell func())
	entry() *Entry
}

// Entry is a Member's place in the calendar; a Member embeds it. The Loop's mutex
// guards it.
type Entry struct {
	next  time.Duration // when to look, on the monotonic clock
	index int           // 1-based, on its page: 0 is not in the calendar
	round *round        // the latest, while no full call has answered the member
	heard int           // the latest round that answered it
}

func (e *Entry) entry() *Entry { return e } //nolint:unused // by what embeds it: a Member

// Loop renews its members, and ends those that have expired. It is one goroutine,
// which runs only while there are members.
//
// Loss is declared by its clock and never waits for the store: the loop makes
// no calls itself.
type Loop struct {
	renew Renew
	now   clock.Clock
	calls *gate.Gate
	wake  chan struct{} // something is due earlier than the loop thinks

	mu      sync.Mutex
	members calendar
	running bool
	shutOff bool
	until   time.Duration // when the loop looks next
	pending int           // Renew calls under way
	rounds  int           // so far
	last    clock.Instant // of the latest look
}

// Renew is Driver.Renew.
type Renew = func(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal))

// New returns a loop without members.
func New(renew Renew, now clock.Clock, calls *gate.Gate) *Loop {
	return &Loop{renew: renew, now: now, calls: calls, wake: make(chan struct{}, 1)}
}

// Add adds a member. It is false once Shut was called.
func (l *Loop) Add(m Member, now clock.Instant) bool {
	next := m.NextLook(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shutOff {
		return false
	}
	if !l.running {
		l.running, l.until, l.last = true, 0, now
		l.members.begin(now.Mono)
		go l.run()
	}
	l.members.add(m, next)
	l.wakeFor(next)
	return true
}

// Reschedule moves a member to its place in the order, by its NextLook; nothing happens once it was removed.
func (l *Loop) Reschedule(m Member, now clock.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := m.NextLook(now)
	if e := m.entry(); e.index > 0 {
		l.members.add(l.members.remove(e), next) // which may be another with that entry
		l.wakeFor(next)
	}
}

// Replace puts m in the place of old; false when old is not in. m is looked at no later
// than old would have been.
func (l *Loop) Replace(old, m Member, now clock.Instant) bool {
	next := m.NextLook(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	was, is := old.entry(), m.entry()
	if was.index == 0 {
		return false
	}
	is.round, is.heard = was.round, was.heard
	l.members.remove(was)
	l.members.add(m, min(next, was.next))
	l.wakeFor(is.next)
	return true
}

// wakeFor wakes the loop when next is before its next look. l.mu is held.
func (l *Loop) wakeFor(next time.Duration) {
	if next < l.until {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Remove takes a member out, if it is in.
func (l *Loop) Remove(m Member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := m.entry(); e.index > 0 {
		l.members.remove(e)
	}
}

// Members returns the members of this moment.
func (l *Loop) Members() []Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Values(l.members.pages))...)
}

// Shut stops the loop for good and returns its members.
func (l *Loop) Shut() []Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shutOff = true
	all := l.members.take(forever)
	l.until = 1<<63 - 1
	l.wakeFor(0)
	return all
}

func (l *Loop) run() {
	timer := time.NewTimer(Tick)
	defer timer.Stop()
	for {
		wait, ok := l.look()
		if !ok {
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-l.wake:
		}
	}
}

// look does what is due, and returns when to look next. ok is false when there are no
// members left: the loop ends.
func (l *Loop) look() (wait time.Duration, ok bool) {
	now := l.now()
	due, over := l.collect(now)
	var tells []func()
	for _, m := range over {
		if tell := m.Expire(); tell != nil {
			tells = append(tells, tell)
		}
	}
	if len(tells) > 0 {
		go func() {
			for _, tell := range tells {
				tell()
			}
		}()
	}
	l.send(due)

	l.mu.Lock()
	defer l.mu.Unlock()
	now = l.now()
	if l.members.n == 0 {
		// A program that locks and unlocks one key all day keeps its loop.
		if l.shutOff || l.until != 0 && now.Mono >= l.until {
			l.running = false
			return 0, false
		}
		if l.until == 0 {
			l.until = now.Mono + Tick
		}
		return l.until - now.Mono, true // what is added counts on it
	}
	l.until = l.members.first(now.Mono + Tick)
	return max(l.until-now.Mono, 0), true
}

// collect returns what is due or has expired at now, and reschedules it.
func (l *Loop) collect(now clock.Instant) (due, over []Member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	jump := now.Sub(l.last) - (now.Mono - l.last.Mono)
	l.last = now
	upTo := now.Mono + Tick
	if jump > jumped {
		upTo = forever
	}
	looked := l.members.take(upTo)
	l.members.begin(now.Mono)
	full := l.pending >= maxCalls
	for _, m := range looked {
		renew, ended := m.Due(now, jump > Tick)
		switch {
		case ended:
			over = append(over, m)
			continue
		case renew && !full:
			due = append(due, m)
		}
		l.members.add(m, m.NextLook(now))
	}
	return due, over
}

// round is what is sent at one moment: one full call, of all that is due, and small calls beside it.
type round struct {
	n      int // counts the rounds
	passed int // how many members the largest of its small calls had that succeeded; 0: none did
}

// beside returns the small calls that go out beside the full call, as a link may lose every large request and let small
// ones pass. Silence alone does not prove that: it only has a few members probe. Once a small call passed and that of all did not, the
// members of that round are sent in calls as small. The full call goes out in any case: when it is answered, small ones end.
func beside(due []Member) (small [][]Member) {
	by := map[int][]Member{}
	for _, m := range due {
		if r := m.entry().round; r != nil {
			by[r.passed] = append(by[r.passed], m)
		}
	}
	silent := by[0]
	delete(by, 0)
	for passed, ms := range by {
		if passed < len(due) {
			small = slices.AppendSeq(small, slices.Chunk(ms, passed))
		}
	}
	for _, n := range probes {
		if n <= len(silent) && n < len(due) {
			small, silent = append(small, silent[:n]), silent[n:]
		}
	}
	return small
}

// send renews what is due in the background.
func (l *Loop) send(due []Member) {
	if len(due) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	small := beside(due)
	l.rounds++
	r := &round{n: l.rounds}
	for _, m := range due {
		m.entry().round = r
	}
	work := make(chan []Member, len(small))
	for _, part := range small {
		work <- part
	}
	close(work)
	for range min(len(small), max(1, min(lanes, (maxCalls-l.pending)/8))) {
		l.background(func() {
			for part := range work {
				l.renewAll(part, r, len(part))
			}
		})
	}
	l.background(func() { l.renewAll(due, r, 0) })
}

// background runs calls, unless the client is closed. l.mu is held.
func (l *Loop) background(calls func()) {
	if !l.calls.Enter() {
		return
	}
	l.pending++
	go func() {
		defer l.calls.Leave()
		calls()
		l.mu.Lock()
		l.pending--
		l.mu.Unlock()
	}()
}

// unanswered leaves out the members that are gone, that the full call answered, or that are in a later round.
func (l *Loop) unanswered(all []Member, r *round) []Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(all, func(m Member) bool {
		e := m.entry()
		return e.index == 0 || e.round != r
	})
}

// answered notes what came of a member in a small call of so many, or in that of all: 0. Silence is no news of a member that another
// call of the round, or a later one, answered.
func (l *Loop) answered(m Member, r *round, small int, err error) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := m.entry()
	if err != nil {
		if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
			return e.heard < r.n
		}
	}
	e.heard = max(e.heard, r.n)
	switch {
	case small == 0:
		e.round = nil
	case err == nil:
		r.passed = max(r.passed, small)
	}
	return true
}

func (l *Loop) renewAll(due []Member, r *round, small int) {
	due = l.unanswered(due, r)
	items, reqs := due[:0], make([]driver.RenewRequest, 0, len(due))
	for _, m := range due {
		if req, ok := m.Request(); ok {
			items, reqs = append(items, m), append(reqs, req)
		} else {
			l.answered(m, r, 0, nil)
		}
	}
	if len(items) == 0 {
		return
	}
	if byTTL := (byTTL{items, reqs}); !sort.IsSorted(byTTL) {
		sort.Stable(byTTL)
	}
	// An answer that takes longer than this is not worth waiting for: the
	// leases were sent again since, or are over.
	longest := reqs[len(reqs)-1].TTL
	ctx, cancel := context.WithTimeout(l.calls.Open, min(max(longest/3, min(longest, 2*time.Second)), renewLimit))
	defer cancel()
	var mu sync.Mutex
	answered := make([]bool, len(items))
	start := l.now()
	l.renew(ctx, reqs, func(i int, a driver.Renewal) {
		mu.Lock()
		answered[i] = true
		mu.Unlock()
		if l.answered(items[i], r, small, a.Err) {
			items[i].Renewed(start, a)
		}
	})
	for i, ok := range answered {
		if !ok {
			if err := Unanswered(ctx); l.answered(items[i], r, small, err) {
				items[i].Renewed(start, driver.Renewal{Err: err})
			}
		}
	}
}

// byTTL sorts requests with their members: what has a short TTL has the least time left, and engines put what has one TTL into one
// command.
type byTTL struct {
	ms   []Member
	reqs []driver.RenewRequest
}

func (s byTTL) Len() int           { return len(s.ms) }
func (s byTTL) Less(i, j int) bool { return s.reqs[i].TTL < s.reqs[j].TTL }
func (s byTTL) Swap(i, j int) {
	s.ms[i], s.ms[j] = s.ms[j], s.ms[i]
	s.reqs[i], s.reqs[j] = s.reqs[j], s.reqs[i]
}

// Unanswered is the error of a request of Renew that was not reported.
func Unanswered(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the store did not answer: %w", err)
	}
	return errors.New("the store did not answer")
}

// Running reports whether the loop's goroutine runs: for tests.
func (l *Loop) Running() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}
