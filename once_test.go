// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

// once is a job that counts its runs.
func once(c *hasp.Client, occurrence string, runs *int, end error) (bool, error) {
	return c.Once("job", occurrence, 25*time.Hour, nil).Do(context.Background(), func(context.Context, *hasp.Lease) error {
		*runs++
		return end
	})
}

func TestOnceForEachOccurrence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, runs := memdriver.New(), 0
		hosts := []*hasp.Client{newClient(t, store, nil), newClient(t, store, nil), newClient(t, store, nil)}
		broke := errors.New("broke")
		if ran, err := once(hosts[0], "monday", &runs, broke); !ran || !errors.Is(err, broke) {
			t.Fatalf("ran: %v, %v", ran, err)
		}
		for i, c := range hosts { // it failed, and so the first of these runs it
			if ran, err := once(c, "monday", &runs, nil); ran != (i == 0) || err != nil {
				t.Errorf("host %d ran: %v, %v", i, ran, err)
			}
		}
		if ran, err := once(hosts[1], "tuesday", &runs, nil); !ran || err != nil || runs != 3 {
			t.Errorf("another occurrence ran: %v, %v; %d runs in all", ran, err, runs)
		}
		time.Sleep(25*time.Hour - time.Second)
		if ran, err := once(hosts[2], "monday", &runs, nil); ran || err != nil {
			t.Errorf("a second before keep is over it ran: %v, %v", ran, err)
		}
		time.Sleep(time.Minute)
		if ran, err := once(hosts[2], "monday", &runs, nil); !ran || err != nil {
			t.Errorf("after that it ran: %v, %v", ran, err)
		}
	})
}

// A waiter that gets the key from a holder that did the work does not do it again. After a holder that died it does, and is told.
func TestOnceWhileAnotherRuns(t *testing.T) {
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memdriver.New()
			first, second := newClient(t, store, nil), newClient(t, store, nil)
			began, end := make(chan struct{}), make(chan struct{})
			go func() {
				defer func() { _ = recover() }()
				_, _ = first.Once("job", "monday", time.Hour, nil).Do(context.Background(), func(context.Context, *hasp.Lease) error {
					close(began)
					<-end
					if dies {
						panic("as a crash, but at once")
					}
					return nil
				})
			}()
			<-began
			told := false
			done := make(chan bool)
			go func() {
				ran, err := second.Once("job", "monday", time.Hour, nil).Do(context.Background(), func(_ context.Context, l *hasp.Lease) error {
					told = l.Abandoned()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				done <- ran
			}()
			synctest.Wait()
			close(end)
			if ran := <-done; ran != dies || told != dies {
				t.Errorf("the first one died: %v; the second ran: %v, and was told: %v", dies, ran, told)
			}
		})
	}
}

// What the store shows of a mark, and that the mark leaves nothing that was abandoned.
func TestMarkIsAKeptKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, runs := newClient(t, memdriver.New(), nil), 0
		if _, err := once(c, "monday\x1b[2J", &runs, nil); err != nil {
			t.Fatal(err)
		}
		key := "job#monday\x1b[2J"
		info, err := c.Operator().Inspect(t.Context(), key)
		if l := info.Holder.Describe(); err != nil || !info.Held || info.Holder.Mode != hasp.Shared || !l.Kept || l.Reason != "(done: monday\x1b[2J)" || l.PID == 0 {
			t.Errorf("%+v, %+v, %v", info, l, err)
		}
		time.Sleep(26 * time.Hour)
		l, err := c.Mutex(key, nil).Lock(t.Context())
		if err != nil || l.Abandoned() {
			t.Errorf("abandoned: %v, %v", l.Abandoned(), err)
		}
	})
}

// A lock that has the name of a mark is no mark. Where it leaves no room for one, that is found before the work.
func TestLockWithTheNameOfAMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, runs := newClient(t, memdriver.New(), nil), 0
		kept := &hasp.LockOptions{Label: &driver.Label{Kept: true}} // as hasp run --hold-at-least has it
		l, err := c.Mutex("job#monday", kept).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ran, err := once(c, "monday", &runs, nil); ran || !errors.Is(err, hasp.ErrHeld) || l.Err() != nil {
			t.Errorf("while another writes, it ran: %v, %v", ran, err)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.RWMutex("job#monday", nil).RLock(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if ran, err := once(c, "monday", &runs, nil); ran != (i == 0) || err != nil {
				t.Errorf("beside a reader, the run %d: %v, %v", i, ran, err)
			}
		}
	})
}

// deafDriver describes no key.
type deafDriver struct {
	driver.Driver
	deaf bool
}

func (d *deafDriver) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if d.deaf {
		return driver.Info{}, errDown
	}
	return d.Driver.Inspect(ctx, key)
}

// A holder that does no work leaves the next holder to be told of a crash.
func TestOnceDoneAfterACrash(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d, runs := &deafDriver{Driver: memdriver.New()}, 0
			c := newClient(t, d, nil)
			if _, err := once(c, "monday", &runs, nil); err != nil {
				t.Fatal(err)
			}
			l, err := c.Mutex("job", nil).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Abandon(); err != nil { // as a crash in tuesday's work
				t.Fatal(err)
			}
			d.deaf = deaf
			if ran, err := once(c, "monday", &runs, nil); ran || (err != nil) != deaf {
				t.Errorf("deaf: %v; monday ran again: %v, %v", deaf, ran, err)
			}
			d.deaf = false
			ran, err := c.Once("job", "tuesday", time.Hour, nil).Do(t.Context(), func(_ context.Context, l *hasp.Lease) error {
				if !l.Abandoned() {
					t.Errorf("deaf: %v; tuesday's work runs again, and was not told", deaf)
				}
				return nil
			})
			if !ran || err != nil {
				t.Errorf("tuesday ran: %v, %v", ran, err)
			}
		})
	}
}

func TestMarksHaveKeysOfTheirOwn(t *testing.T) {
	seen := map[string]string{}
	long := strings.Repeat("x", driver.MaxKey)
	for _, key := range []string{"a", "a#", "a#b", "a_b", "#", "a##", long, long[:500], long[:440]} {
		for _, occurrence := range []string{"b", "#b", "b#c", "##", "#", "\x00", "\xff", long, long + "y", "c", "~b", "~#b", "~", strings.Repeat("0", 64), "#" + strings.Repeat("0", 64)} {
			mark, run := hasp.OnceKeys(key, occurrence)
			for _, k := range []string{mark, run} {
				if err := driver.CheckKey(k); err != nil {
					t.Errorf("%q of %q: %v", occurrence, key, err)
				}
				if other, twice := seen[k]; twice {
					t.Errorf("%q of %q has the key of %s", occurrence, key, other)
				}
				seen[k] = key + " " + occurrence
			}
		}
	}
}

// What cannot be kept is refused before the work.
func TestOnceIsRefused(t *testing.T) {
	limited := &limits{Driver: memdriver.New(), most: time.Hour}
	c := newClient(t, limited, nil)
	for _, o := range []*hasp.Once{c.Once("job", "", time.Hour, nil), c.Once("job", "monday", 0, nil), c.Once("job", "monday", 25*time.Hour, nil), c.Once("", "monday", time.Minute, nil)} {
		ran, err := o.Do(t.Context(), func(context.Context, *hasp.Lease) error { return nil })
		var e *hasp.Error
		if ran || !errors.As(err, &e) || e.Class != driver.ClassImpossible {
			t.Errorf("ran: %v, %v", ran, err)
		}
		t.Log(err)
	}
}

// A store that does not tell the next holder of a crash is refused, too: ZooKeeper's marks end with the session, however short keep is.
func TestOnceNeedsToTell(t *testing.T) {
	c := newClient(t, silentDriver{memdriver.New()}, nil)
	if ran, err := once(c, "monday", new(int), nil); ran || !errors.Is(err, hasp.ErrUnsupported) {
		t.Errorf("ran: %v, %v", ran, err)
	}
}

type silentDriver struct{ driver.Driver }

func (d silentDriver) Traits() driver.Traits {
	tr := d.Driver.Traits()
	tr.MarksAbandoned = false
	return tr
}

// limits is a store that keeps nothing for longer.
type limits struct {
	driver.Driver
	most time.Duration
}

func (l *limits) Traits() driver.Traits {
	tr := l.Driver.Traits()
	tr.MaxTTL = l.most
	return tr
}

// The mark survives an answer that is lost; where it cannot be written, the work may be done again, and the next holder is told.
func TestMarkInTrouble(t *testing.T) {
	for _, down := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d, c := newHooked(t)
			marks, runs := 0, 0
			d.onTry(func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
				if !strings.Contains(r.Key, "#") || strings.Contains(r.Key, "#~") {
					return next(ctx, r)
				}
				if marks++; down {
					return driver.Result{}, errDown
				}
				res, err := next(ctx, r)
				if marks == 1 {
					return driver.Result{}, errDown
				}
				return res, err
			})
			if ran, err := once(c, "monday", &runs, nil); !ran || (err != nil) != down || marks < 2 {
				t.Errorf("down: %v; ran: %v, %v, after %d attempts", down, ran, err, marks)
			}
			if info, err := c.Operator().Inspect(t.Context(), "job#monday"); err != nil || info.Held == down || len(info.Holders) > 1 {
				t.Errorf("down: %v; the mark: %+v, %v", down, info, err)
			}
			down = false
			ran, err := c.Once("job", "monday", time.Hour, nil).Do(t.Context(), func(_ context.Context, l *hasp.Lease) error {
				if !l.Abandoned() {
					t.Error("it runs again, and was not told")
				}
				return nil
			})
			if ran == (marks == 2) || err != nil {
				t.Errorf("again: %v, %v", ran, err)
			}
		})
	}
}

// Work whose lock was lost is not marked: another may have begun, and is told.
func TestLostWorkIsNotMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		_, err := c.Once("job", "monday", time.Hour, nil).Do(t.Context(), func(ctx context.Context, l *hasp.Lease) error {
			if err := newClient(t, store, nil).Operator().Break(ctx, "job", l.Owner()); err != nil {
				t.Fatal(err)
			}
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, hasp.ErrLost) {
			t.Errorf("the error is %v", err)
		}
		if info, err := c.Operator().Inspect(t.Context(), "job#monday"); err != nil || info.Held {
			t.Errorf("the mark: %+v, %v", info, err)
		}
	})
}

// A crash is told to the next that works on the same occurrence, also if another occurrence came in between, and was told of it, too.
func TestCrashOfAnOccurrence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		work := func(occurrence string, f func(*hasp.Lease)) {
			c := newClient(t, store, nil)
			defer func() { _ = recover() }()
			if ran, err := c.Once("job", occurrence, time.Hour, nil).Do(t.Context(), func(_ context.Context, l *hasp.Lease) error { f(l); return nil }); !ran || err != nil {
				t.Errorf("%s ran: %v, %v", occurrence, ran, err)
			}
		}
		work("monday", func(*hasp.Lease) { panic("as a crash, but at once") })
		for _, occurrence := range []string{"tuesday", "monday"} {
			work(occurrence, func(l *hasp.Lease) {
				if !l.Abandoned() {
					t.Errorf("%s was not told", occurrence)
				}
			})
		}
		work("wednesday", func(l *hasp.Lease) {
			if l.Abandoned() {
				t.Error("wednesday was told of a crash that was repaired")
			}
		})
	})
}
