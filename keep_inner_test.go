// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/lifetime"
	"github.com/hasplock/hasp/memdriver"
)

// keptHold has a client keep "k", and returns what it keeps, and the cohort.
func keptHold(t *testing.T, c *Client) (*cohort, *turn) {
	t.Helper()
	lease, err := c.Mutex("k", &LockOptions{Keep: time.Hour}).Lock(t.Context())
	if err == nil {
		err = lease.Release()
	}
	co := c.core.cohorts.keepers["k"]
	if err != nil || co == nil || co.kept == nil || co.kept.life.State() != lifetime.Kept {
		t.Fatal("not kept", err)
	}
	return co, co.kept
}

// A kept hold that may not stay goes back, when it is asked for and when the renewer looks.
func TestKeptThatIsNotFit(t *testing.T) {
	for _, fit := range []bool{true, false} {
		for name, ask := range map[string]func(h *turn, now clock.Instant){
			"take": func(h *turn, now clock.Instant) { h.take(true, now) },
			"due": func(h *turn, now clock.Instant) {
				if renew, over := h.Due(now, false); renew || over {
					t.Errorf("renewed %v, lost %v", renew, over)
				}
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				client := innerClient(t, memdriver.New(), nil)
				_, h := keptHold(t, client)
				h.mu.Lock()
				h.life.Want(!fit)
				h.mu.Unlock()
				ask(h, client.core.now())
				h.mu.Lock()
				defer h.mu.Unlock()
				if (h.life.State() == lifetime.Released) == fit {
					t.Errorf("%s, fit %v: the state is %d", name, fit, h.life.State())
				}
			})
		}
	}
}

// A kept hold that goes back is not renewed as well.
func TestKeptThatGoesBackIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := innerClient(t, memdriver.New(), nil)
		_, h := keptHold(t, client)
		if renew, over := h.Due(later(client.core.now(), DefaultTTL/2), false); renew || over {
			t.Errorf("renewed %v, lost %v", renew, over)
		}
	})
}

// A renewal whose answer came too late takes a kept key back to the store: nobody has lost it.
func TestKeptThatIsRenewedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := innerClient(t, memdriver.New(), nil)
		_, h := keptHold(t, c)
		time.Sleep(time.Second)
		c.core.renewer.Remove(h) // a loop that does not run
		time.Sleep(DefaultTTL)
		h.Renewed(c.core.now(), driver.Renewal{TTL: DefaultTTL})
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.life.State() != lifetime.Released {
			t.Errorf("the state is %d", h.life.State())
		}
	})
}

// Once Close has begun it gives back what is kept, and nobody else takes it or does.
func TestKeptDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := innerClient(t, memdriver.New(), nil)
		co, h := keptHold(t, c)
		c.core.calls.Close()
		<-h.released() // does not wait for it
		co.releaseKept()
		if h.take(true, later(c.core.now(), DefaultTTL)) != nil || h.life.State() != lifetime.Kept || co.habit.level != 0 {
			t.Errorf("the state is %d", h.life.State())
		}
		c.core.renewer.Shut()
	})
}

// What a client knows of a kept key goes with it.
func TestNothingStaysOfWhatWasKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := innerClient(t, memdriver.New(), nil)
		co, h := keptHold(t, c)
		if c.core.cohorts.keeping.Load() != 1 {
			t.Error("not counted")
		}
		other := &cohort{all: &c.core.cohorts, id: co.id}
		other.ends()
		if c.core.cohorts.keepers["k"] != co || c.core.cohorts.keeping.Load() != 1 {
			t.Error("another's end is taken for its own")
		}
		<-h.released()
		if n := len(c.core.renewer.Members()); n > 0 {
			t.Errorf("%d are renewed", n)
		}
		if cs := &c.core.cohorts; len(cs.keepers)+len(cs.byID)+len(cs.habits) > 0 || cs.keeping.Load() != 0 {
			t.Errorf("%d keepers, %d cohorts, %d habits, %d counted", len(cs.keepers), len(cs.byID), len(cs.habits), cs.keeping.Load())
		}
	})
}

// A wait elsewhere that is heard of while the key is being kept is not forgotten, nor is one that is heard of once it was taken.
func TestWantedAtTheWrongMoment(t *testing.T) {
	for _, wanted := range []bool{false, true} { // a turn that one of its cohort may have, who has left since
		synctest.Test(t, func(t *testing.T) {
			store := memdriver.New()
			c := innerClient(t, store, nil)
			store.SetUnreachable(true) // it never heard of the hold, and would end it where it is asked to tell of waiters
			o := &LockOptions{Cohort: time.Hour, Keep: time.Hour}
			co := &cohort{all: &c.core.cohorts, id: cohortID{"k", *o}}
			h := passingTurn(c, co, *o)
			h.life.Want(wanted)
			c.core.renewer.Add(h, c.core.now())
			if passed := co.handOn(h); passed == wanted || co.kept != nil == wanted {
				t.Errorf("wanted is %v: passed %v, kept %v", wanted, passed, co.kept != nil)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c := innerClient(t, memdriver.New(), nil)
		co, h := keptHold(t, c)
		c.core.cohorts.mu.Lock()
		lease := co.take(true, c.core.now())
		c.core.cohorts.mu.Unlock()
		h.mu.Lock()
		tell := h.signals.told(h.life.Want(true))
		h.mu.Unlock()
		tell()
		<-lease.Wanted()
		if err := lease.Release(); err != nil || co.kept != nil || h.life.State() != lifetime.Released {
			t.Error("kept, though somebody waits", err)
		}
	})
}

// A caller who looked before the key was released, and joins the cohort after that, has it at once,
// if it still may; otherwise it waits until the key was given back.
func TestJoinAKeeper(t *testing.T) {
	for _, fit := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := innerClient(t, memdriver.New(), nil)
			co, h := keptHold(t, c)
			if !fit {
				h.mu.Lock()
				h.life.Want(true)
				h.mu.Unlock()
			}
			_, turn := c.core.cohorts.join(co.id)
			g := <-turn.given
			info, err := c.Operator().Inspect(t.Context(), "k")
			if (g.lease != nil) != fit || info.Held != fit || err != nil {
				t.Errorf("fit %v: given %+v while it is held: %v, %v", fit, g, info.Held, err)
			}
		})
	}
}

// Each grant of the store is counted for itself, in a cohort that outlives it, too.
func TestGrantsOfAKeeper(t *testing.T) {
	k := keeper{reused: 7, waited: 2, habit: habit{skip: 1}}
	first := &turn{hold: &hold{}, spare: 5}
	if k.begins(first); k.reused != 0 || first.extra != 3 || !k.shy || k.habit.skip != 0 {
		t.Errorf("%+v, %d extra", k, first.extra)
	}
	if k.begins(&turn{hold: &hold{}}); k.shy || k.habit.skip != 0 {
		t.Errorf("%+v after the last that was not kept", k)
	}
}

// A client remembers a bounded number of keys.
func TestHabitsAreBounded(t *testing.T) {
	cs := &cohorts{}
	for i := range maxHabits + 1 {
		co := &cohort{all: cs, id: cohortID{key: strconv.Itoa(i), opts: LockOptions{Keep: 1}}}
		co.reused = 1
		co.ends()
		if want := i%maxHabits + 1; len(cs.habits) != want {
			t.Fatalf("%d are remembered after %d", len(cs.habits), i+1)
		}
	}
	if co := cs.newCohort(cohortID{key: strconv.Itoa(maxHabits), opts: LockOptions{Keep: 1}}); co.habit.row != 2 {
		t.Error("the latest is forgotten")
	}
}

// A message of a waiter may come after a Release has made the hold passing, and before its follower is noted.
func TestMessageWhileATurnPasses(t *testing.T) {
	for _, queued := range []bool{false, true} {
		t.Run(strconv.FormatBool(queued), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memdriver.New()
				c, elsewhere := innerClient(t, store, nil), innerClient(t, store, nil)
				var armed, void atomic.Bool
				var calls atomic.Int64
				void.Store(true)
				got := make(chan *Lease, 1)
				system := c.core.now
				c.core.now = func() clock.Instant {
					if armed.Load() && calls.Add(1) == 2 { // that of pass; the first is of checkDeadline
						void.Store(false)
						go func() {
							l, err := elsewhere.Mutex("k", nil).Lock(t.Context())
							if err != nil {
								t.Error(err)
							}
							got <- l
						}()
						time.Sleep(time.Nanosecond) // it has joined the queue, and the keeper was told
					}
					return system()
				}
				keptHold(t, c)
				synctest.Wait() // the store has been asked to tell
				m := c.Mutex("k", &LockOptions{Keep: time.Hour})
				lease, err := m.Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				var other sync.WaitGroup
				defer other.Wait()
				if queued {
					other.Go(func() {
						if l, err := m.Lock(t.Context()); err == nil {
							time.Sleep(time.Millisecond)
							_ = l.Release()
						}
					})
					synctest.Wait()
				}
				start := time.Now()
				armed.Store(true)
				if err := lease.Release(); err != nil {
					t.Fatal(err)
				}
				l := <-got
				if took := time.Since(start); void.Load() || took > 2*time.Millisecond {
					t.Errorf("queued %v, void %v: it waited for %v, though the store told the keeper", queued, void.Load(), took)
				}
				_ = l.Release()
			})
		})
	}
}

// A key that is taken just before it is declared lost is lost to whoever took it.
func TestKeptKeyIsTakenAndLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sum atomic.Int64
		var lostTold atomic.Int64
		d := &rkClassify{Store: memdriver.New()}
		c := innerClient(t, d, &Options{Observe: func(_ context.Context, e *event.Event) {
			sum.Add(int64(e.LeaseDelta))
			if e.Kind == event.Lost {
				lostTold.Add(1)
			}
		}})
		_, h := keptHold(t, c)
		synctest.Wait()
		var lease *Lease
		d.hook = func(err error) {
			if lease == nil && errors.Is(err, ErrLost) {
				lease, _ = c.Mutex("k", &LockOptions{Keep: time.Hour}).Lock(t.Context())
			}
		}
		d.Lose("k")
		h.Renewed(c.core.now(), driver.Renewal{Err: ErrNotHeld})
		if lease == nil {
			t.Fatal("void")
		}
		_ = lease.Release()
		if sum.Load() != 0 || lostTold.Load() != 1 {
			t.Errorf("the sum of Event.LeaseDelta is %d, event.Lost was told %d times", sum.Load(), lostTold.Load())
		}
	})
}

type rkClassify struct {
	*memdriver.Store
	hook func(error)
}

func (d *rkClassify) Classify(err error) driver.Class {
	if d.hook != nil {
		d.hook(err)
	}
	return d.Store.Classify(err)
}

// A message that comes while a turn passes finds it, or its follower: what is kept has not been told of anybody.
func TestMessageRacesWithPass(t *testing.T) {
	c := innerClient(t, memdriver.New(), nil)
	o := &LockOptions{Keep: time.Hour}
	for i := range 5000 {
		co := &cohort{all: &c.core.cohorts, id: cohortID{"k", *o}}
		h := passingTurn(c, co, *o)
		co.latest, co.onWanted = h.hold, co.hear
		c.core.renewer.Add(h, c.core.now())
		var both sync.WaitGroup
		both.Go(co.hear)
		both.Go(func() { co.handOn(h) })
		both.Wait()
		c.core.cohorts.mu.Lock()
		k := co.kept
		c.core.cohorts.mu.Unlock()
		if k == nil {
			continue
		}
		k.mu.Lock()
		stays := k.life.State() == lifetime.Kept
		k.mu.Unlock()
		if stays {
			t.Fatalf("round %d: it is kept, and somebody waits", i)
		}
	}
}

// A call that saw a kept key gives it back too late: another took it meanwhile. It does not wait for that holder.
func TestKeptKeyIsTakenBeforeItIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := innerClient(t, memdriver.New(), nil)
		_, kept := keptHold(t, c)
		c.core.calls.Enter()
		defer c.core.calls.Leave()
		lease := kept.take(true, c.core.now())
		_ = lease.Done()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		c.core.cohorts.releaseAndWait(ctx, kept)
		if waited := time.Since(start); waited > 0 {
			t.Errorf("it waited for %v", waited)
		}
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
	})
}
