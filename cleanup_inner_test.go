// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

// releasing is a driver whose releases return what the test sets.
type releasing struct {
	driver.Driver
	answer func(n int) error
	n      int // how many there were
}

func (d *releasing) Release(context.Context, driver.ReleaseRequest) error {
	d.n++
	return d.answer(d.n)
}

func (d *releasing) Classify(err error) driver.Class {
	if errors.Is(err, errDenied) {
		return driver.ClassDenied
	}
	return driver.ClassUnreachable
}

var (
	errDenied = errors.New("denied")
	errAway   = errors.New("away")
)

// A refusal settles a release only when the store never gave a good answer, and refused each Try of the owner.
func TestSettledReleases(t *testing.T) {
	c := innerClient(t, &releasing{Driver: memdriver.New()}, nil)
	for _, s := range []struct{ heard, lost bool }{{}, {heard: true}, {lost: true}, {true, true}} {
		for err, want := range map[error]bool{nil: true, ErrNotHeld: true, ErrUnsupported: true, errDenied: !s.heard && !s.lost, errAway: false} {
			c.core.heard.Store(s.heard)
			if c.core.settled(err, s.lost) != want {
				t.Errorf("%v settles it: %v, with %+v", err, !want, s)
			}
			if good := s.heard || err == nil || errors.Is(err, ErrNotHeld); c.core.heard.Load() != good {
				t.Errorf("%v is a good answer: %v, with %+v", err, !good, s)
			}
		}
	}
}

// A Try that was sent twice may still come, though the second was refused: what cleans up behind it is sent until the store takes it.
func TestRefusedTryThatWasSentTwiceIsCleanedUp(t *testing.T) {
	for unsettled, want := range map[bool]int{true: 2, false: 1} {
		synctest.Test(t, func(t *testing.T) {
			d := &refusing{unsettled: unsettled, releasing: releasing{Driver: memdriver.New(), answer: func(n int) error {
				if n == 1 {
					return errDenied
				}
				return nil
			}}}
			_, err := innerClient(t, d, nil).Mutex("k", nil).TryLock(t.Context())
			time.Sleep(time.Minute)
			synctest.Wait()
			if !errors.Is(err, errDenied) || d.n != want {
				t.Errorf("sent twice: %v: %v, and %d releases, want %d", unsettled, err, d.n, want)
			}
		})
	}
}

// refusing is a driver that refuses each Try.
type refusing struct {
	releasing
	unsettled bool
}

func (d *refusing) Try(context.Context, driver.TryRequest) (driver.Result, error) {
	return driver.Result{Unsettled: d.unsettled}, errDenied
}

// A release that reached the store is not sent again.
func TestReleaseIsSentUntilItIsAnswered(t *testing.T) {
	for _, c := range []struct {
		second error
		want   error
	}{{nil, nil}, {ErrNotHeld, nil}, {ErrUnsupported, ErrUnsupported}} {
		synctest.Test(t, func(t *testing.T) {
			d := &releasing{Driver: memdriver.New(), answer: func(n int) error {
				if n == 1 {
					return errAway
				}
				return c.second
			}}
			client := innerClient(t, d, nil)
			err := client.core.release(t.Context(), time.Now(), driver.ReleaseRequest{TTL: DefaultTTL})
			if !errors.Is(err, c.want) || d.n != 2 {
				t.Errorf("answered with %v the second time: %v after %d requests", c.second, err, d.n)
			}
		})
	}
}

// No more releases are pending than the bound, and the oldest is dropped first.
func TestOwedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := innerClient(t, memdriver.New(), nil)
		d := &cleanups{c: c.core, running: true} // so that nothing is sent
		for i := range maxCleanups + 3 {
			d.add(driver.ReleaseRequest{Claim: driver.Claim{Key: "k", Limit: i}}, false, time.Now())
			if want := min(i+1, maxCleanups); len(d.pending) != want {
				t.Fatalf("after %d releases %d are pending", i+1, len(d.pending))
			}
		}
		if first := d.pending[0].req.Limit; first != 3 {
			t.Errorf("the oldest is number %d", first)
		}
	})
}

// Once all are sent, one that is added later is sent, too.
func TestCleanupsBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &releasing{Driver: memdriver.New(), answer: func(int) error { return nil }}
		c := innerClient(t, d, nil)
		for n := 1; n <= 2; n++ {
			if !c.core.calls.Enter() {
				t.Fatal("closed")
			}
			c.core.cleanups.add(driver.ReleaseRequest{TTL: DefaultTTL}, false, time.Now())
			c.core.calls.Leave()
			time.Sleep(time.Minute)
			if pending := PendingReleases(c); pending > 0 || d.n != n {
				t.Errorf("round %d: pending %d, sent %d", n, pending, d.n)
			}
		}
	})
}

// A store that fails, also in the middle, is left alone for a while, each time for longer, until it takes a release.
func TestCleanupsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Duration
		start := time.Now()
		d := &releasing{Driver: memdriver.New(), answer: func(n int) error {
			sent = append(sent, time.Since(start))
			if n == 6 || n == 8 {
				return nil
			}
			return errAway
		}}
		c := innerClient(t, d, nil)
		for range 2 {
			c.core.cleanups.pending = append(c.core.cleanups.pending, &cleanup{until: start.Add(time.Hour)})
		}
		if !c.core.calls.Enter() {
			t.Fatal("closed")
		}
		c.core.cleanups.run()
		if len(sent) != 8 {
			t.Fatalf("%d releases were sent, after %v", len(sent), sent)
		}
		if many, one := sent[5]-sent[4], sent[7]-sent[6]; sent[6] != sent[5] || one < 10*time.Millisecond || many < 4*one {
			t.Errorf("sent at %v: it pauses for %v after five failures, and for %v after one that follows a success", sent, many, one)
		}
	})
}

// Once a silent store answers a Try, it is sent what is pending at once, and then what a caller leaves.
func TestAnsweredTrySendsCleanups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &releasing{Driver: memdriver.New(), answer: func(int) error { return errAway }}
		c := innerClient(t, d, nil)
		leave := func() {
			if !c.core.calls.Enter() {
				t.Fatal("closed")
			}
			defer c.core.calls.Leave()
			c.core.cleanUp(driver.ReleaseRequest{TTL: DefaultTTL}, true, false, releaseLimit)
		}
		leave()
		time.Sleep(5 * time.Second) // the pauses are long
		synctest.Wait()
		d.answer = func(int) error { return nil }
		before := d.n
		if _, err := c.Mutex("k", nil).TryLock(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		leave()
		if sent := d.n - before; sent != 2 || PendingReleases(c) > 0 {
			t.Errorf("after the Try's answer %d releases were sent, and %d are pending", sent, PendingReleases(c))
		}
	})
}

// A store that refuses one key's release is asked for the other's at once, and a silent one is not.
func TestRefusedCleanupHoldsBackNoOther(t *testing.T) {
	for answer, want := range map[error]int{errDenied: 2, errAway: 1} {
		synctest.Test(t, func(t *testing.T) {
			d := &releasing{Driver: memdriver.New(), answer: func(int) error { return answer }}
			c := innerClient(t, d, nil)
			for range 2 {
				c.core.cleanups.pending = append(c.core.cleanups.pending, &cleanup{mayHold: true, until: time.Now().Add(time.Nanosecond)})
			}
			if !c.core.calls.Enter() {
				t.Fatal("closed")
			}
			c.core.cleanups.run()
			if d.n != want {
				t.Errorf("%v: %d releases were sent in one round", answer, d.n)
			}
		})
	}
}

// A store that is known to be unreachable delays no caller that gives up, not even for a moment.
func TestGiveBackToASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &releasing{Driver: memdriver.New(), answer: func(int) error { return errAway }}
		slowly := d.answer
		d.answer = func(n int) error { time.Sleep(100 * time.Millisecond); return slowly(n) }
		c := innerClient(t, d, nil)
		for _, silent := range []bool{true, false} {
			if !c.core.calls.Enter() {
				t.Fatal("closed")
			}
			start := time.Now()
			c.core.cleanUp(driver.ReleaseRequest{TTL: time.Second}, false, silent, releaseLimit)
			if took := time.Since(start); (took > 0) == silent {
				t.Errorf("silent is %v: it took %v", silent, took)
			}
			c.core.calls.Leave()
			time.Sleep(time.Minute) // nothing is pending any more
		}
	})
}

// A request ends with its caller, at its deadline, with the client and with done, whether or not a goroutine waited for that.
func TestRequestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		callers, limit time.Duration
		end            func(r *request, caller, open context.CancelFunc)
		want           error
	}{
		"its caller leaves":       {0, time.Minute, func(_ *request, caller, _ context.CancelFunc) { caller() }, context.Canceled},
		"its caller's time":       {time.Second, time.Minute, func(*request, context.CancelFunc, context.CancelFunc) { time.Sleep(time.Second) }, context.DeadlineExceeded},
		"at its caller's time":    {time.Second, time.Second, func(*request, context.CancelFunc, context.CancelFunc) { time.Sleep(time.Second) }, context.DeadlineExceeded},
		"its own time":            {time.Minute, time.Second, func(*request, context.CancelFunc, context.CancelFunc) { time.Sleep(time.Second) }, context.DeadlineExceeded},
		"the client closes":       {0, time.Minute, func(_ *request, _, open context.CancelFunc) { open() }, context.Canceled},
		"nobody needs its answer": {0, time.Minute, func(r *request, _, _ context.CancelFunc) { r.done() }, context.Canceled},
	} {
		for _, waits := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					caller, leave := context.WithCancel(t.Context())
					defer leave()
					if c.callers != 0 {
						var stop context.CancelFunc
						caller, stop = context.WithTimeout(caller, c.callers)
						defer stop()
					}
					open, shut := context.WithCancel(context.Background())
					defer shut()
					r := newRequest(caller, open, c.limit)
					want := c.limit
					if c.callers != 0 {
						want = min(want, c.callers)
					}
					if by, ok := r.Deadline(); !ok || time.Until(by) != want {
						t.Errorf("its deadline is in %v, want %v", time.Until(by), want)
					}
					var child context.Context
					if waits {
						select {
						case <-r.Done():
							t.Fatal("it has ended")
						default:
						}
						var stop context.CancelFunc
						child, stop = context.WithCancel(r)
						defer stop()
					}
					if err := r.Err(); err != nil {
						t.Fatal(err)
					}
					c.end(r, leave, shut)
					synctest.Wait()
					if err := r.Err(); !errors.Is(err, c.want) {
						t.Errorf("it ended with %v, want %v", err, c.want)
					}
					<-r.Done()
					if waits {
						<-child.Done()
					}
					if err := r.Err(); !errors.Is(err, c.want) {
						t.Errorf("later it ended with %v, want %v", err, c.want)
					}
					r.done()
				})
			})
		}
	}
}

// A request whose Done no caller asked for leaves no timer and no goroutine, and its values are its caller's.
func TestRequestHasItsCallersValues(t *testing.T) {
	type key struct{}
	r := newRequest(context.WithValue(t.Context(), key{}, "v"), nil, time.Hour)
	defer r.done()
	for range 2 {
		if r.Value(key{}) != "v" {
			t.Error("it has not its caller's values")
		}
		_ = r.Done()
	}
}

// A store that answers each Try and fails each release, as a cluster with one dead shard may, is not sent one for each Try.
func TestAnsweredTriesDoNotPressCleanups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &releasing{Driver: memdriver.New(), answer: func(int) error { return errAway }}
		c := innerClient(t, d, nil)
		if !c.core.calls.Enter() {
			t.Fatal("closed")
		}
		c.core.cleanUp(driver.ReleaseRequest{TTL: time.Minute}, true, false, releaseLimit)
		c.core.calls.Leave()
		held, err := c.Mutex("k", nil).TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tries := 0
		for start := time.Now(); time.Since(start) < 30*time.Second; tries++ {
			if _, err := c.Mutex("k", nil).TryLock(t.Context()); !errors.Is(err, ErrHeld) {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		if d.n > 200 {
			t.Errorf("beside %d answered Tries %d releases were sent", tries, d.n)
		}
		d.answer = func(int) error { return nil }
		if err := held.Release(); err != nil {
			t.Fatal(err)
		}
	})
}
