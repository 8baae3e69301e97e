// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/memdriver"
)

var need = expect.Need

func TestEngine(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		Fake: true,
		New: func(testing.TB) drivertest.Store {
			s := memdriver.New()
			return drivertest.Store{Open: func() driver.Driver { return s }, Leftovers: s.Leftovers, Persist: persist(s)}
		},
	})
}

// persist is how a store's leases lose their expiry.
func persist(s *memdriver.Store) func(key string) bool {
	return func(key string) bool { s.Persist(key); return true }
}

// The same for a node, with a wall clock that is wrong.
func TestNode(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		Fake: true,
		New: func(testing.TB) drivertest.Store {
			s := memdriver.NewNode(memdriver.NodeOptions{MaxTTL: time.Hour, Now: func() time.Time {
				return time.UnixMicro(time.Now().UnixMicro()).Add(90 * time.Minute)
			}})
			return drivertest.Store{
				Open:      func() driver.Driver { return s },
				Leftovers: s.Leftovers,
				Restart:   func() { s.Restart(nil) },
				Reload:    func() { s.Restart(s.Snapshot()) },
				Flush:     s.Flush,
				Persist:   persist(s),
			}
		},
	})
}

func BenchmarkEngine(b *testing.B) {
	drivertest.Bench(b, drivertest.Harness{New: func(testing.TB) drivertest.Store {
		s := memdriver.New()
		return drivertest.Store{Open: func() driver.Driver { return s }}
	}})
}

// owner is one of those who share the key k, or write it.
func owner(mode driver.Mode, limit int) contend.Owner {
	o := ask()
	o.Mode, o.Limit, o.Queue = mode, limit, true
	return o
}

// The end of a reader leaves the mark of another holder that did not finish.
func TestReaderEndsAfterAnAbandonedSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		slot, reader := owner(driver.Shared, 2), owner(driver.Shared, 0)
		try(t, s, slot)
		reader.TTL = slot.TTL + time.Second
		try(t, s, reader)
		time.Sleep(reader.TTL)
		res := try(t, s, owner(driver.Exclusive, 0))
		failIf(t, !res.Granted || !res.Abandoned, "after both: %+v", res)
	})
}

// What a grant said stays said: a mark that another holder leaves meanwhile is for
// those who come later.
func TestGrantKeepsItsMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		slot, reader := owner(driver.Shared, 2), owner(driver.Shared, 0)
		slot.TTL = time.Second
		try(t, s, slot)
		try(t, s, reader)
		time.Sleep(2 * time.Second)
		res := try(t, s, reader)
		failIf(t, !res.Granted || res.Abandoned, "the reader, once more: %+v", res)
		res = try(t, s, owner(driver.Shared, 0))
		failIf(t, !res.Granted || !res.Abandoned, "the next reader: %+v", res)
	})
}

// An owner that does not claim the key keeps its place once, and only while its
// patience lasts.
func TestUnclaimed(t *testing.T) {
	for _, c := range []struct {
		name     string
		patience time.Duration
		wait     time.Duration // before it is handed the key
		held     []bool        // after each half of a second
	}{
		{"it keeps its place once", time.Minute, time.Second, []bool{true, true, false}},
		{"its patience is over", time.Second, 900 * time.Millisecond, []bool{true, false, false}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := memdriver.New()
			holder, waiter := owner(driver.Exclusive, 0), owner(driver.Exclusive, 0)
			waiter.Patience = c.patience
			try(t, s, holder)
			try(t, s, waiter)
			time.Sleep(c.wait)
			need(t, contend.Release(t.Context(), s, holder))
			time.Sleep(250 * time.Millisecond)
			for i, held := range c.held {
				info, err := s.Inspect(t.Context(), "k")
				if err != nil || info.Held != held || !held && info.Waiters > 0 {
					t.Errorf("%s: look %d: held %v, %d wait, %v", c.name, i, info.Held, info.Waiters, err)
				}
				time.Sleep(500 * time.Millisecond)
			}
		})
	}
}

// The store hands off by itself what nobody claims, also when several were handed the
// key, and the last of them does not claim it.
func TestUnclaimedByReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		holder, hasty, reader, writer := owner(driver.Exclusive, 0), owner(driver.Shared, 0), owner(driver.Shared, 0), owner(driver.Exclusive, 0)
		try(t, s, holder)
		hasty.Patience, reader.Patience, writer.Patience = 200*time.Millisecond, time.Minute, time.Minute
		for _, o := range []contend.Owner{hasty, reader, writer} {
			try(t, s, o)
		}
		hints, err := contend.Watch(t.Context(), s, writer)
		need(t, err)
		need(t, contend.Release(t.Context(), s, holder))
		start := time.Now()
		var had []time.Duration
		for time.Since(start) < 1100*time.Millisecond {
			select {
			case <-hints:
				had = append(had, time.Since(start))
			default:
			}
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
		}
		if len(had) == 0 || had[len(had)-1] < 900*time.Millisecond { // two claim times of the reader
			t.Errorf("the writer had hints after %v", had)
		}
	})
}

// Only the first in the queue gets a RetryIn.
func TestRetryOfTheFirstAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newNode()
		admit(t, s)
		try(t, s, owner(driver.Exclusive, 0))
		for i := range 2 {
			waiter := owner(driver.Exclusive, 0)
			try(t, s, waiter)
			r := waiter.Renewal()
			r.TTL = 1000 * time.Hour // too long for a lease, and a place has none
			s.Renew(t.Context(), []driver.RenewRequest{r}, func(_ int, a driver.Renewal) {
				failIf(t, a.Err != nil || (a.RetryIn > 0) != (i == 0), "waiter %d: %+v", i, a)
			})
		}
	})
}

// A reader that waits only for a writer in front of it learns of the last reader's end.
func TestLeftOfAReaderBehindAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		for _, ttl := range []time.Duration{10 * time.Second, 20 * time.Second, 15 * time.Second} {
			o := owner(driver.Shared, 0)
			o.TTL = ttl
			try(t, s, o)
		}
		for _, o := range []contend.Owner{owner(driver.Exclusive, 0), owner(driver.Shared, 0)} {
			res := try(t, s, o)
			failIf(t, res.Granted || res.Left != 20*time.Second, "%v: %+v", o.Mode, res)
		}
	})
}

// An owner that was handed the key has to claim it before it can convert it.
func TestConvertOfWhatWasNotClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		holder, waiter := owner(driver.Exclusive, 0), owner(driver.Exclusive, 0)
		try(t, s, holder)
		try(t, s, waiter)
		need(t, contend.Release(t.Context(), s, holder))
		early := waiter
		early.Mode, early.Queue, early.Convert = driver.Shared, false, true
		res := try(t, s, early)
		failIf(t, res.Granted, "converted: %+v", res)
		res = try(t, s, waiter)
		failIf(t, !res.Granted, "and not claimed any more: %+v", res)
	})
}

// An owner that was released is refused for ten seconds, and is one like any other then.
func TestReleasedOwnerComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		o := owner(driver.Exclusive, 0)
		o.TTL = time.Minute
		for _, c := range []struct {
			after   time.Duration
			granted bool
		}{{0, true}, {10*time.Second - 1, false}, {1, true}} {
			time.Sleep(c.after)
			res := try(t, s, o)
			if res.Granted != c.granted || (res.Why == driver.WhyReleased) == c.granted {
				t.Errorf("after %v: %+v", c.after, res)
			}
			if c.granted {
				need(t, contend.Release(t.Context(), s, o))
			}
		}
	})
}

// One Watch that ends leaves another of the same owner alone.
func TestTwoWatchesOfOneOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		holder, waiter := owner(driver.Exclusive, 0), owner(driver.Exclusive, 0)
		try(t, s, holder)
		try(t, s, waiter)
		ctx, cancel := context.WithCancel(t.Context())
		_, err1 := contend.Watch(ctx, s, waiter)
		hints, err2 := contend.Watch(t.Context(), s, waiter)
		need(t, errors.Join(err1, err2))
		cancel()
		synctest.Wait()
		need(t, contend.Release(t.Context(), s, holder))
		select {
		case <-hints:
		default:
			t.Error("no hint")
		}
	})
}

// A list ends with the first error, which is part of it.
func TestListOfAStoreThatGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		for _, key := range []string{"a", "b", "c"} {
			o := ask()
			o.Key = key
			try(t, s, o)
		}
		var errs []error
		for _, err := range s.List(t.Context(), "") {
			errs = append(errs, err)
			s.SetUnreachable(true)
		}
		failIf(t, len(errs) != 2 || errs[0] != nil || errs[1] == nil, "the errors are %v", errs)
	})
}

// A waiter leaves the queue whatever vote it withdraws, and who is unknown has none.
func TestWithdrawWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		waiter := owner(driver.Exclusive, 0)
		try(t, s, owner(driver.Exclusive, 0))
		try(t, s, waiter)
		waiter.UpTo = 1
		for _, want := range []error{nil, driver.ErrNotHeld} {
			if err := contend.Release(t.Context(), s, waiter); !errors.Is(err, want) {
				t.Errorf("%v, must be %v", err, want)
			}
		}
	})
}

// failIf fails a test, which goes on, when what it saw is wrong.
func failIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Errorf(format, args...)
	}
}

// stopIf ends a test when what it saw is wrong.
func stopIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Fatalf(format, args...)
	}
}

// A lease that was persisted stays when its time is over, and ends with the removal; the next waiter has the key at once.
func TestPersist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		a, b := ask(), ask()
		if res, err := contend.Try(t.Context(), s, a); err != nil || !res.Granted {
			t.Fatalf("%+v, %v", res, err)
		}
		s.Persist("k")
		s.Persist("free")
		time.Sleep(2 * a.TTL)
		hints, err := contend.Watch(t.Context(), s, b)
		need(t, err)
		b.Queue = true
		res, err := contend.Try(t.Context(), s, b)
		if err != nil || res.Granted || res.Left != 0 || res.RetryIn != 0 {
			t.Fatalf("a lease without an expiry is in the way, and Try says %+v, %v", res, err)
		}
		contend.Renew(t.Context(), s, []contend.Owner{b}, func(_ int, r driver.Renewal) {
			failIf(t, r.Err != nil || r.RetryIn != 0, "its waiter's renewal: %+v", r)
		})
		if info, err := s.Inspect(t.Context(), "k"); err != nil || info.Left >= 0 || info.Holders[0].Left >= 0 {
			t.Errorf("Inspect says %+v, %v", info, err)
		}
		var left []operator.Leftover
		for l, err := range s.ListLeftovers(t.Context(), "", func(i driver.Info) { t.Errorf("%+v is held with an expiry", i) }) {
			need(t, err)
			left = append(left, l)
		}
		stopIf(t, len(left) != 1, "left over are %+v", left)
		if stays, err := s.RemoveLeftover(t.Context(), left[0]); err != nil || stays != 0 {
			t.Fatalf("%v, %v", stays, err)
		}
		<-hints
		if res, err := contend.Try(t.Context(), s, b); err != nil || !res.Granted || !res.Abandoned {
			t.Errorf("the next waiter got %+v, %v", res, err)
		}
		if _, err := s.RemoveLeftover(t.Context(), left[0]); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("a second removal: %v", err)
		}
		s.SetUnreachable(true)
		for _, err := range s.ListLeftovers(t.Context(), "", nil) {
			failIf(t, err == nil, "a store that is cut off lists")
		}
		if _, err := s.RemoveLeftover(t.Context(), left[0]); err == nil {
			t.Error("a store that is cut off removes")
		}
	})
}
