// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// outageTTL makes a waiter's patience, and with it the bounds here, short. A holder that is to hold has the key for holds, and one
// that is to lose it for loses.
const (
	outageTTL = 3 * time.Second
	holds     = time.Hour
	loses     = 15 * time.Second
)

// silence is for how long some clients here wait for a store that does not answer.
const silence = 5 * time.Second

// contest is a holder and a waiter without a deadline on one key, each with
// connections of its own.
type contest struct {
	server *testserver.Server
	admin  *redis.Client
	holder *hasp.Lease
	events *feed // the waiter's
	got    <-chan outcome
}

func newContest(t *testing.T, dial func(string) *redis.Options, held, waits time.Duration) *contest {
	t.Helper()
	s := testserver.Redis(t)
	c := &contest{server: s, admin: admin(t, s), events: newFeed()}
	c.holder = mustLock(t, LocksOn(t, dial(s.Addr()), nil).Mutex("k", &hasp.LockOptions{TTL: held}))
	c.got = lockAsync(context.Background(), LocksOn(t, dial(s.Addr()), c.events.observe).Mutex("k", &hasp.LockOptions{TTL: waits}))
	c.events.waits(t)
	allExpire(t, c.admin) // whatever a client leaves when it dies expires
	return c
}

// goesOn fails the test unless the waiter is granted the key within limit from now.
func (c *contest) goesOn(t *testing.T, limit time.Duration) {
	t.Helper()
	start, lost := time.Now(), stall.Watch(t)
	lease, at := awaitLease(t, c.got)
	t.Logf("the waiter had the key after %v", at.Sub(start).Round(time.Millisecond))
	if took := at.Sub(start); took > limit+lost() {
		t.Errorf("the waiter had the key after %v, want %v", took, limit)
	}
	if lease.Fence() <= c.holder.Fence() {
		t.Errorf("fence %d after %d", lease.Fence(), c.holder.Fence())
	}
	release(t, lease)
}

// Failure case 16, with the rule of all of these: a waiter without a deadline is granted
// the key after the fault, whatever was lost: connections, subscriptions, scripts, its
// place in the queue.

func TestWaiterAfterClientKill(t *testing.T) {
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		c := newContest(t, dial, holds, outageTTL)
		run(t, c.admin, "client", "kill", "type", "pubsub")
		run(t, c.admin, "client", "kill", "type", "normal", "skipme", "yes")
		c.events.next(t, event.Waiting) // it tried again, as all do after a lost subscription
		release(t, c.holder)
		c.goesOn(t, little)
	})
}

// After FLUSHALL the key is free, and no waiter gets a hint: the waiter finds out by its
// next Try, due after a third of its patience.
func TestWaiterAfterFlushAll(t *testing.T) {
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		c := newContest(t, dial, holds, outageTTL)
		run(t, c.admin, "flushall")
		run(t, c.admin, "script", "flush")
		c.goesOn(t, outageTTL/3+little)
		if err := c.holder.Release(); !errors.Is(err, hasp.ErrLost) {
			t.Errorf("the forgotten holder's Release: %v, want ErrLost", err)
		}
	})
}

func TestWaiterAfterRestart(t *testing.T) {
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		c := newContest(t, dial, holds, outageTTL)
		c.server.Restart()
		c.goesOn(t, outageTTL/3+little)
		if err := c.holder.Release(); !errors.Is(err, hasp.ErrLost) {
			t.Errorf("the forgotten holder's Release: %v, want ErrLost", err)
		}
	})
}

// Rule: a server that hangs ends no wait without a deadline, however long it does.
// The waiter tries at the latest when the holder's TTL has passed, and again after 5 s
// without an answer, or a TTL.
func TestServerHangs(t *testing.T) {
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		c := newContest(t, dial, loses, outageTTL)
		c.server.Stop()
		for range 3 {
			c.events.next(t, event.Trouble)
		}
		<-c.holder.Done()
		for range 2 { // the key expires: a renewal that the server reads when it goes on comes too late
			c.events.next(t, event.Trouble)
		}
		c.server.Cont()
		c.goesOn(t, outageTTL+little)
	})
}

// Rule: MaxSilence ends such a wait, as unreachable.
func TestServerHangsForLongerThanIsBorne(t *testing.T) {
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		s := testserver.Redis(t)
		locks := locksOf(t, dial(s.Addr()), &hasp.Options{MaxSilence: silence})
		release(t, mustLock(t, locks.Mutex("warm", nil)))
		s.Stop()
		start, lost := time.Now(), stall.Watch(t)
		_, err := locks.Mutex("k", nil).Lock(context.Background())
		wantClass(t, err, driver.ClassUnreachable)
		if took := time.Since(start); took > silence+little+lost() {
			t.Errorf("Lock gave up %v after the server hung", took)
		}
		s.Cont()
	})
}

// Rule: only silence ends a wait. A waiter whose Tries were answered all along continues
// after a short outage, however long it has waited.
func TestBlipLateInTheWait(t *testing.T) {
	const ttl = silence + time.Second
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		c := newContest(t, dial, holds, ttl)
		link := faultproxy.New(t, c.server.Addr())
		events := newFeed()
		second := LocksOn(t, dial(link.Addr()), events.observe).Mutex("k", &hasp.LockOptions{TTL: ttl})
		got := lockAsync(context.Background(), second)
		events.waits(t)
		time.Sleep(ttl * 95 / 100) // it tries by itself after its patience, here the TTL
		link.Refuse()
		link.Reset()
		time.Sleep(time.Second) // go-redis dials for half of it
		link.Clear()
		select {
		case o := <-got:
			t.Fatalf("the wait ended: %v", o.err)
		default:
		}
		release(t, c.holder)
		c.goesOn(t, little)
		lease, _ := awaitLease(t, got)
		release(t, lease)
	})
}

// Rule: a server that is gone and comes back ends no wait, and the holder's lease is
// lost by its own clock.
func TestServerGone(t *testing.T) {
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		t.Run("and back", func(t *testing.T) {
			c := newContest(t, dial, loses, outageTTL)
			c.server.Kill()
			for range 3 {
				c.events.next(t, event.Trouble)
			}
			c.server.Restart()
			c.goesOn(t, outageTTL/3+little)
		})
		t.Run("for longer than the lease", func(t *testing.T) {
			c := newContest(t, dial, loses, outageTTL)
			c.server.Kill()
			killed, lost, over := time.Now(), stall.Watch(t), time.After(soon)
			deadline := killed
			for done := false; !done; {
				select {
				case <-c.holder.Done():
					done = true
				case <-time.After(10 * time.Millisecond):
					if d := c.holder.Deadline(); d.After(time.Now()) { // a renewal that was on its way moved it
						deadline = d
					}
				case <-over:
					t.Fatal("the holder's lease was not lost")
				}
			}
			if late := time.Since(deadline); late > little+lost() || deadline.After(killed.Add(loses)) {
				t.Errorf("the holder's lease was lost %v after its deadline, which was %v after the server's end", late, deadline.Sub(killed))
			}
			if err := c.holder.Release(); !errors.Is(err, hasp.ErrLost) {
				t.Errorf("the holder's Release: %v, want ErrLost", err)
			}
			for time.Since(deadline) < silence { // longer than a call may take
				c.events.next(t, event.Trouble)
			}
			c.server.Restart()
			c.goesOn(t, outageTTL/3+little)
		})
	})
}
