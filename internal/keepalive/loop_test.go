// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package keepalive_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/gate"
	"github.com/hasplock/hasp/internal/keepalive"
)

// store notes the Renew calls that it answers.
type store struct {
	mu    sync.Mutex
	calls []string // the keys of each
	mute  bool     // no answer until the context ends
	most  int      // calls of more have no answer, either; 0: no bound
	trip  time.Duration
}

func (s *store) renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	var keys []string
	for _, r := range rs {
		keys = append(keys, r.Key)
	}
	s.mu.Lock()
	s.calls = append(s.calls, strings.Join(keys, " "))
	mute := s.mute || s.most > 0 && len(rs) > s.most
	s.mu.Unlock()
	if mute {
		<-ctx.Done()
		return
	}
	time.Sleep(s.trip)
	for i := range rs {
		done(i, driver.Renewal{TTL: rs[i].TTL})
	}
}

func (s *store) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// member is renewed at an interval until it ends.
type member struct {
	keepalive.Entry
	key   string
	ttl   time.Duration
	every time.Duration

	mu     sync.Mutex
	next   time.Duration
	over   time.Duration // 0: never
	ended  time.Duration
	errs   []error
	hurry  bool
	silent bool // nothing to send
}

func (m *member) Due(now clock.Instant, hurry bool) (renew, over bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hurry = m.hurry || hurry
	if m.over > 0 && now.Mono >= m.over {
		m.ended = now.Mono
		return false, true
	}
	if renew = now.Mono >= m.next || hurry; renew {
		m.next = now.Mono + m.every
	}
	return renew, false
}

func (m *member) NextLook(clock.Instant) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over > 0 {
		return min(m.next, m.over)
	}
	return m.next
}

func (m *member) Request() (driver.RenewRequest, bool) {
	return driver.RenewRequest{Claim: driver.Claim{Key: m.key}, TTL: m.ttl}, !m.silent
}

func (m *member) Renewed(_ clock.Instant, r driver.Renewal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errs = append(m.errs, r.Err)
}

func (m *member) Expire() func() { return nil }

// world is a loop under a fake clock.
type world struct {
	store
	*keepalive.Loop
	gate *gate.Gate
	now  clock.Clock
	step atomic.Int64 // of the wall clock
}

func within(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := &world{gate: gate.New()}
		w.now = func() clock.Instant {
			mono := time.Since(began) + time.Hour
			return clock.Instant{Mono: mono, Wall: mono + time.Duration(w.step.Load())}
		}
		w.Loop = keepalive.New(w.renew, w.now, w.gate)
		f(w)
		w.gate.Close()
		w.Shut()
		synctest.Wait()
		<-w.gate.Idle()
		if w.Running() {
			t.Error("the loop runs after Shut")
		}
	})
}

// add adds members that are due first after so long.
func (w *world) add(first time.Duration, ms ...*member) {
	now := w.now()
	for _, m := range ms {
		m.next = now.Mono + first
		w.Add(m, now)
	}
}

func TestWhatIsDueTogetherGoesOutTogether(t *testing.T) {
	within(t, func(w *world) {
		w.add(time.Second, &member{key: "b", ttl: 2 * time.Minute, every: time.Minute}, &member{key: "a", ttl: time.Minute, every: time.Minute})
		w.add(10*time.Second, &member{key: "later", ttl: time.Minute, every: time.Minute})
		time.Sleep(15 * time.Second)
		synctest.Wait()
		// By their TTL, as engines put what has one into one command.
		if got := w.seen(); !slices.Equal(got, []string{"a b", "later"}) {
			t.Errorf("the calls: %q", got)
		}
	})
}

// The end of one member never waits for a store that does not answer.
func TestTheEndNeedsNoStore(t *testing.T) {
	within(t, func(w *world) {
		w.mute = true
		m := &member{key: "k", ttl: 3 * time.Second, every: 500 * time.Millisecond, over: w.now().Mono + 3*time.Second}
		w.add(time.Second, m)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if m.ended != m.over {
			t.Errorf("it ended at %v, want %v", m.ended, m.over)
		}
		for i, err := range m.errs {
			if err == nil {
				t.Errorf("renewal %d had an answer", i)
			}
		}
		if len(m.errs) == 0 {
			t.Error("nothing was renewed")
		}
	})
}

// Calls without an answer do not add up without bound.
func TestCallsAreBounded(t *testing.T) {
	within(t, func(w *world) {
		w.mute = true
		w.add(0, &member{key: "k", ttl: time.Hour, every: time.Millisecond})
		time.Sleep(9 * time.Second) // less than what ends a call
		synctest.Wait()
		if n := len(w.seen()); n != 128 {
			t.Errorf("%d calls under way, want 128 at most", n)
		}
	})
}

// A clock that jumps by more than a tick renews everything at once.
func TestClockJumps(t *testing.T) {
	within(t, func(w *world) {
		m := &member{key: "k", ttl: time.Hour, every: time.Hour}
		w.add(time.Hour, m)
		time.Sleep(time.Second)
		w.step.Store(int64(time.Minute))
		time.Sleep(time.Second)
		synctest.Wait()
		if len(w.seen()) != 1 || !m.hurry {
			t.Errorf("%d calls, in a hurry: %v", len(w.seen()), m.hurry)
		}
	})
}

func TestRemoveAndAgain(t *testing.T) {
	within(t, func(w *world) {
		gone, m := &member{key: "gone", ttl: time.Minute, every: time.Minute}, &member{key: "k", ttl: time.Minute, every: time.Minute}
		w.add(time.Second, gone)
		w.add(time.Minute, m)
		w.Remove(gone)
		w.Remove(gone)
		w.Reschedule(gone, w.now())
		m.mu.Lock()
		m.next = w.now().Mono + 2*time.Second
		m.mu.Unlock()
		w.Reschedule(m, w.now())
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := w.seen(); !slices.Equal(got, []string{"k"}) {
			t.Errorf("the calls: %q", got)
		}
	})
}

func TestShut(t *testing.T) {
	within(t, func(w *world) {
		m := &member{key: "k", ttl: time.Minute, every: time.Second}
		w.add(time.Minute, m)
		if got := w.Shut(); len(got) != 1 || got[0] != m {
			t.Errorf("Shut returns %v", got)
		}
		if w.Add(&member{key: "late", next: w.now().Mono + time.Hour, every: time.Hour}, w.now()) {
			t.Error("a member was added after Shut")
		}
		w.Remove(m) // harmless
		time.Sleep(2 * time.Minute)
		if got := w.seen(); len(got) > 0 {
			t.Errorf("calls after Shut: %q", got)
		}
	})
}

// What has nothing to send is not renewed, and a loop without members ends.
func TestNothingToSend(t *testing.T) {
	within(t, func(w *world) {
		m := &member{key: "k", ttl: time.Minute, every: time.Second, silent: true}
		w.add(time.Second, m)
		time.Sleep(5 * time.Second)
		w.Remove(m)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := w.seen(); len(got) > 0 {
			t.Errorf("the calls: %q", got)
		}
		if w.Running() {
			t.Error("the loop runs without members")
		}
	})
}

// The loop stays a tick for who comes back at once, and then ends.
func TestLoopStaysForATick(t *testing.T) {
	within(t, func(w *world) {
		m := &member{key: "k", ttl: time.Minute, every: time.Minute}
		w.add(time.Minute, m)
		w.Remove(m)
		for _, runs := range []bool{true, false} {
			synctest.Wait()
			if w.Running() != runs {
				t.Errorf("the loop runs: %v", w.Running())
			}
			time.Sleep(2 * keepalive.Tick)
		}
	})
}

// slowEnd is a member whose end takes long to note.
type slowEnd struct{ *member }

func (m slowEnd) Expire() func() {
	time.Sleep(100 * time.Millisecond)
	return nil
}

// A look that took long, as on a busy machine, does not put off the next, on which
// counts what is added meanwhile.
func TestLoopKeepsItsMoment(t *testing.T) {
	within(t, func(w *world) {
		first := &member{key: "first", ttl: time.Hour, every: time.Hour}
		w.add(time.Hour, first) // the next look is after a Tick
		time.Sleep(keepalive.Tick / 5)
		now := w.now()
		w.Add(slowEnd{&member{next: now.Mono, over: now.Mono}}, now) // the look that takes long
		time.Sleep(keepalive.Tick / 5)
		w.Remove(first)
		time.Sleep(keepalive.Tick * 2 / 5)
		now = w.now()
		last := &member{next: now.Mono + time.Hour, over: now.Mono + keepalive.Tick*2/5}
		w.Add(last, now)
		time.Sleep(time.Second)
		synctest.Wait()
		if last.ended != last.over {
			t.Errorf("it ended at %v, want %v", last.ended, last.over)
		}
	})
}

// What was removed is not looked at again, whatever else there is.
func TestAgainOfWhatWasRemoved(t *testing.T) {
	within(t, func(w *world) {
		gone, m := &member{key: "gone", ttl: time.Minute, every: time.Minute}, &member{key: "k", ttl: time.Minute, every: time.Minute}
		w.add(time.Hour, gone, m)
		w.Remove(gone)
		w.Reschedule(gone, w.now())
		w.Remove(m)
		w.Reschedule(m, w.now())
	})
}

// Once the client is closed nothing is sent.
func TestNothingIsSentAfterClose(t *testing.T) {
	within(t, func(w *world) {
		w.add(time.Second, &member{key: "k", ttl: time.Minute, every: time.Second})
		w.gate.Close()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := w.seen(); len(got) > 0 {
			t.Errorf("the calls: %q", got)
		}
	})
}

// A request without an answer says why there is none, where that is known.
func TestUnanswered(t *testing.T) {
	if err := keepalive.Unanswered(t.Context()); err == nil || errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := keepalive.Unanswered(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A member in the place of another is looked at when it wants to be, or when the other did if
// that is earlier; in the place of one that is gone it is not taken.
func TestReplace(t *testing.T) {
	for name, c := range map[string]struct{ first, second, at time.Duration }{
		"earlier": {10 * time.Second, 2 * time.Second, 2 * time.Second},
		"later":   {2 * time.Second, 10 * time.Second, 10 * time.Second},
	} {
		within(t, func(w *world) {
			old, m := &member{key: "old", every: time.Hour}, &member{key: "new", every: time.Hour}
			w.add(c.first, old)
			w.add(5*time.Second, &member{key: "beside", every: time.Hour})
			m.next = w.now().Mono + c.second
			if !w.Replace(old, m, w.now()) || w.Replace(old, m, w.now()) {
				t.Errorf("%s: what is in was not replaced, or what is not", name)
			}
			time.Sleep(c.at - 2*keepalive.Tick)
			synctest.Wait()
			if slices.Contains(w.seen(), "new") {
				t.Errorf("%s: renewed too early", name)
			}
			time.Sleep(3 * keepalive.Tick)
			synctest.Wait()
			if got := w.seen(); !slices.Contains(got, "new") || slices.Contains(got, "old") {
				t.Errorf("%s: renewed are %q", name, got)
			}
			w.Remove(m)
			if n := len(w.Members()); n != 1 {
				t.Errorf("%s: %d members stay", name, n)
			}
		})
	}
}

// Small calls go beside the one of all once that has no answer. They are for all members only when small ones were answered, and only
// until the large one is: silence alone splits nothing.
func TestLargeCallsVanish(t *testing.T) {
	const n, every = 96, 30 * time.Second / 6
	probing, split := []int{1, 4, 32, n}, append(slices.Repeat([]int{4}, n/4), n)
	within(t, func(w *world) {
		w.trip = 20 * time.Millisecond
		ms := make([]*member, n)
		for i := range ms {
			ms[i] = &member{key: "k", ttl: 6 * every, every: every}
		}
		w.add(every, ms...)
		time.Sleep(every / 2)
		for i, c := range []struct {
			mute bool
			most int
			want []int
		}{
			{true, 0, []int{n}}, {true, 0, probing}, {true, 0, probing}, {false, 4, probing}, {false, 4, split}, {false, 4, split},
			{true, 0, []int{4, 4, 4, 4, n}}, {true, 0, probing}, {false, 0, probing}, {false, 0, []int{n}},
		} {
			w.store.mu.Lock()
			w.mute, w.most, w.calls = c.mute, c.most, nil
			w.store.mu.Unlock()
			time.Sleep(every)
			synctest.Wait()
			var sizes []int
			for _, call := range w.seen() {
				sizes = append(sizes, len(strings.Fields(call)))
			}
			slices.Sort(sizes)
			if !slices.Equal(sizes, c.want) {
				t.Errorf("round %d: the calls are of %v, want %v", i, sizes, c.want)
			}
		}
	})
}

// That a large call had no answer is no news of members that small ones answered.
func TestSilenceOfAnsweredMembers(t *testing.T) {
	within(t, func(w *world) {
		const n, every = 96, 30 * time.Second / 6
		w.trip, w.most = 20*time.Millisecond, 4
		ms := make([]*member, n)
		for i := range ms {
			ms[i] = &member{key: "k", ttl: 6 * every, every: every}
		}
		w.add(0, ms...)
		time.Sleep(20 * every)
		for i, m := range ms {
			m.mu.Lock()
			failed := slices.DeleteFunc(m.errs, func(err error) bool { return err == nil })
			m.mu.Unlock()
			if len(failed) > 2 { // before small ones were known to pass
				t.Fatalf("member %d was told of silence %d times", i, len(failed))
			}
		}
	})
}

// A call that waited for another is not made for members that are gone.
func TestGoneMembersAreNotRenewed(t *testing.T) {
	within(t, func(w *world) {
		const n, every = 96, 30 * time.Second / 6
		w.most = 1
		ms := make([]*member, n)
		for i := range ms {
			ms[i] = &member{key: "k", ttl: 6 * every, every: every}
		}
		w.add(0, ms...)
		time.Sleep(2*every - time.Second) // one alone was answered
		w.store.mu.Lock()
		w.mute = true
		w.store.mu.Unlock()
		time.Sleep(2 * time.Second) // the small calls began, and have no answer
		synctest.Wait()
		before := len(w.seen())
		for _, m := range ms {
			w.Remove(m)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if late := w.seen()[before:]; len(late) > 0 {
			t.Errorf("%d calls for members that are gone", len(late))
		}
	})
}
