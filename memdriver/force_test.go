// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver_test

import (
	"crypto/rand"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
)

func ask() contend.Owner {
	return contend.Owner{Key: "k", Owner: rand.Text(), Label: "{}", TTL: time.Minute, Patience: time.Minute}
}

func try(t *testing.T, s *memdriver.Store, r contend.Owner) driver.Result {
	t.Helper()
	res, err := contend.Try(t.Context(), s, r)
	need(t, err)
	return res
}

func watch(t *testing.T, s *memdriver.Store, r contend.Owner) <-chan driver.Hint {
	t.Helper()
	hints, err := contend.Watch(t.Context(), s, r)
	need(t, err)
	return hints
}

func renew(t *testing.T, s *memdriver.Store, r contend.Owner) (err error) {
	contend.Renew(t.Context(), s, []contend.Owner{r}, func(_ int, a driver.Renewal) { err = a.Err })
	return err
}

// Hold takes the key from its holder, the queue keeps waiting, and the release
// hands the key to its first.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		a, b := ask(), ask()
		first := try(t, s, a)
		b.Queue = true
		try(t, s, b)
		release := s.Hold("k", time.Hour, driver.Label{Host: "web-3"})
		if err := renew(t, s, a); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("the previous holder: %v", err)
		}
		info, _ := s.Inspect(t.Context(), "k")
		if info.Holder.Describe().Host != "web-3" || info.Left != time.Hour || info.Fence <= first.Fence || info.Waiters != 1 {
			t.Errorf("after Hold: %+v", info)
		}
		if err := contend.Release(t.Context(), s, a); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Release by the previous holder: %v", err)
		}
		release()
		res := try(t, s, b)
		failIf(t, !res.Granted, "the first in the queue: %+v", res)
		release()
		b.Queue = false
		if err := renew(t, s, b); err != nil {
			t.Errorf("the second call of release took the successor's key: %v", err)
		}
	})
}

func TestHoldEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		s.Hold("k", time.Minute, driver.Label{})
		time.Sleep(time.Minute)
		if res := try(t, s, ask()); !res.Granted || !res.Abandoned {
			t.Errorf("after the TTL of a Hold: %+v, want a grant of an abandoned key", res)
		}
	})
}

func TestLose(t *testing.T) {
	s := memdriver.New()
	s.Lose("nobody's")
	a, b := ask(), ask()
	try(t, s, a)
	b.Queue = true
	try(t, s, b)
	s.Lose("k")
	if err := renew(t, s, a); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("the holder that was lost: %v", err)
	}
	res := try(t, s, b)
	failIf(t, !res.Granted, "the first in the queue: %+v", res)
}

// Hold and Lose take a key from all that share it, and a snapshot has them all.
func TestForceOnSharers(t *testing.T) {
	s := memdriver.New()
	a, b, c := ask(), ask(), ask()
	a.Mode, a.Limit, b.Mode, b.Limit = driver.Shared, 2, driver.Shared, 2
	share := func() {
		t.Helper()
		for slot, r := range []contend.Owner{a, b} {
			res := try(t, s, r)
			stopIf(t, !res.Granted || res.Slot != slot, "holder %d of 2: %+v", slot, res)
		}
	}
	lost := func() {
		t.Helper()
		for _, r := range []contend.Owner{a, b} {
			if err := renew(t, s, r); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("a holder that was lost: %v", err)
			}
		}
	}
	share()
	saved := s.Snapshot()
	release := s.Hold("k", time.Hour, driver.Label{})
	lost()
	if release(); !try(t, s, c).Granted {
		t.Error("not free after a Hold")
	}
	s.Restart(saved)
	share()
	if s.Lose("k"); !try(t, s, c).Granted {
		t.Error("not free after Lose")
	}
	lost()
	s.Restart(saved)
	share() // as they were
}

func TestSetUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		a := ask()
		try(t, s, a)
		s.SetUnreachable(true)
		_, err := contend.Try(t.Context(), s, a)
		for what, err := range map[string]error{"Try": err, "Renew": renew(t, s, a), "Release": contend.Release(t.Context(), s, a)} {
			failIf(t, s.Classify(err) != driver.ClassUnreachable, "%s of an unreachable store: %v", what, err)
		}
		for _, err := range s.List(t.Context(), "") {
			failIf(t, s.Classify(err) != driver.ClassUnreachable, "List of an unreachable store: %v", err)
		}
		time.Sleep(30 * time.Second)
		s.SetUnreachable(false)
		if err := renew(t, s, a); err != nil {
			t.Errorf("the lease is over after half its TTL: %v", err)
		}
		s.SetUnreachable(true)
		time.Sleep(time.Minute)
		s.SetUnreachable(false)
		if err := renew(t, s, a); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("the lease expired while the store was unreachable: %v", err)
		}
	})
}

// A store that no client reaches hands no key over, whatever becomes free; its waiters get a hint, and the key, when they reach it again.
func TestUnreachableHandsNothingOver(t *testing.T) {
	for name, frees := range map[string]func(s *memdriver.Store, release func()){
		"a Hold ends":                 func(_ *memdriver.Store, release func()) { release() },
		"the lease is lost":           func(s *memdriver.Store, _ func()) { s.Lose("k") },
		"the lease expires, and Lose": func(s *memdriver.Store, _ func()) { time.Sleep(time.Minute); s.Lose("k") },
		"its claim time passes":       func(s *memdriver.Store, release func()) { s.SetUnreachable(false); release(); s.SetUnreachable(true) },
		"the lease expires":           func(*memdriver.Store, func()) { time.Sleep(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memdriver.New()
				release := s.Hold("k", time.Minute, driver.Label{})
				first, second := ask(), ask()
				var hints [2]<-chan driver.Hint
				for i, r := range []*contend.Owner{&first, &second} {
					r.Patience, r.Queue, r.Enters = time.Hour, true, true
					hints[i] = watch(t, s, *r)
					try(t, s, *r)
				}
				s.SetUnreachable(true)
				frees(s, release)
				time.Sleep(time.Second) // longer than a claim time
				handed := name == "its claim time passes"
				for i, hints := range hints {
					select {
					case h := <-hints:
						failIf(t, h.Handover.Fence != 0 && (i > 0 || !handed), "waiter %d was handed %+v", i, h.Handover)
					default:
					}
				}
				s.SetUnreachable(false)
				for i, hints := range hints {
					select {
					case <-hints:
					default:
						t.Errorf("waiter %d has no hint although it reaches the store again", i)
					}
				}
				res := try(t, s, first)
				failIf(t, !res.Granted, "the first waiter is refused: %+v", res)
			})
		})
	}
}

// Memory for keys that are no longer used is freed.
func TestNothingPermanentPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		for i := range 60_000 {
			r := ask()
			r.Key = strconv.Itoa(i)
			r.TTL = time.Second
			try(t, s, r)
			if i%2 == 0 {
				need(t, contend.Release(t.Context(), s, r))
			}
			time.Sleep(10 * time.Millisecond)
		}
		const live = 100*61 + 50*10 // a minute's keys, and those held; ten seconds' tombstones
		n := s.Size()
		failIf(t, n > 2*live+64, "%d entries and tombstones after 60,000 keys", n)
	})
}
