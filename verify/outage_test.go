// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
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

// contest is a holder and a waiter without a deadline on one key, each with connections of its own.
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

// Failure case 16, with the rule of all of these: a waiter without a deadline is granted the key after the fault, whatever was
// lost: connections, subscriptions, scripts, its place in the queue.

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

// Rule: a server that hangs ends no wait without a deadline, however long it does. The waiter tries at the latest when the holder's
// TTL has passed, and again after 5 s without an answer, or a TTL.
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

// Rule: a server that is gone and comes back ends no wait, and the holder's lease is lost by its own clock.
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

// wantClass fails the test unless err is of the class and says all of texts.
func wantClass(t testing.TB, err error, class driver.Class, texts ...string) {
	t.Helper()
	e := (*hasp.Error)(nil)
	if !errors.As(err, &e) || e.Class != class {
		t.Errorf("error %q (%+v), want class %d", err, e, class)
		return
	}
	t.Logf("%v", err)
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}

// refusal is a server that answers with an error.
type refusal struct {
	name  string
	start func(t *testing.T, c *redis.Client) // what makes it refuse, also in the middle of a wait
	mend  func(t *testing.T, c *redis.Client) // nil: nothing does
	first time.Duration                       // how long Lock bears it at first contact
	login func(o *redis.Options)
	class driver.Class
	texts []string
	grows bool // it refuses only what takes memory: what there is it renews and releases
}

const (
	secret    = "s3cr3t-pass"
	graceTime = 3 * time.Second // Options.MaxFaulty
)

var refusals = []refusal{
	{
		name: "wrong password",
		start: func(t *testing.T, c *redis.Client) {
			run(t, c, "acl", "setuser", "default", "resetpass", ">other")
			kick(t, c)
		},
		mend: func(t *testing.T, c *redis.Client) {
			run(t, c, "acl", "setuser", "default", "resetpass", ">"+secret)
		},
		login: func(o *redis.Options) { o.Password = secret }, first: graceTime,
		class: driver.ClassLogin, texts: []string{"WRONGPASS"},
	},
	{
		name:  "no permission for scripts",
		start: func(t *testing.T, c *redis.Client) { run(t, c, "acl", "setuser", "default", "-evalsha", "-eval") },
		mend:  func(t *testing.T, c *redis.Client) { run(t, c, "acl", "setuser", "default", "+evalsha", "+eval") },
		class: driver.ClassDenied, texts: []string{"NOPERM", "eval"},
	},
	{
		name:  "no permission for the keys",
		start: func(t *testing.T, c *redis.Client) { run(t, c, "acl", "setuser", "default", "resetkeys", "~other:*") },
		mend:  func(t *testing.T, c *redis.Client) { run(t, c, "acl", "setuser", "default", "~*") },
		class: driver.ClassDenied, texts: []string{"NOPERM", "key"},
	},
	{
		name:  "read-only replica",
		start: func(t *testing.T, c *redis.Client) { run(t, c, "replicaof", "127.0.0.1", "1") },
		mend:  func(t *testing.T, c *redis.Client) { run(t, c, "replicaof", "no", "one") }, first: graceTime,
		class: driver.ClassReadOnly, texts: []string{"READONLY"},
	},
	{
		name:  "maxmemory with noeviction",
		start: func(t *testing.T, c *redis.Client) { run(t, c, "config", "set", "maxmemory", "1") },
		mend:  func(t *testing.T, c *redis.Client) { run(t, c, "config", "set", "maxmemory", "0") }, first: graceTime,
		class: driver.ClassFull, texts: []string{"OOM"}, grows: true,
	},
	{
		name:  "a snapshot that cannot be written",
		start: failSnapshot,
		mend:  func(t *testing.T, c *redis.Client) { run(t, c, "config", "set", "save", "") }, first: graceTime,
		class: driver.ClassFull, texts: []string{"MISCONF"},
	},
	{
		name: "another type under the key",
		start: func(t *testing.T, c *redis.Client) {
			run(t, c, "eval", "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'f', 'v')", 1, "lock:k")
		},
		class: driver.ClassImpossible, texts: []string{`"lock:k"`, "hash"},
	},
}

// failSnapshot returns once the server refuses writes, since a directory has its snapshot's name.
func failSnapshot(t *testing.T, c *redis.Client) {
	dir := c.ConfigGet(t.Context(), "dir").Val()["dir"]
	must(t, os.Mkdir(filepath.Join(dir, "dump.rdb"), 0o700))
	run(t, c, "config", "set", "save", "3600 1000000")
	run(t, c, "bgsave", "schedule")
	for !strings.Contains(c.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err") {
		must(t, t.Context().Err())
		time.Sleep(little / 100) // the snapshot is made in the background
	}
}

// kick breaks connections that logged in before the password changed.
func kick(t *testing.T, c *redis.Client) {
	run(t, c, "client", "kill", "type", "pubsub")
	run(t, c, "client", "kill", "type", "normal", "skipme", "yes")
}

// eachRefusal runs a test for every refusal and every setting of go-redis. The
// admin's connection was made before anything was refused.
func eachRefusal(t *testing.T, f func(t *testing.T, r refusal, c *redis.Client, dial func() *redis.Options)) {
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
				s := testserver.Redis(t)
				c := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket(), Username: "admin", Password: "admin"})
				t.Cleanup(func() { c.Close() })
				boot := admin(t, s)
				run(t, boot, "acl", "setuser", "admin", "on", ">admin", "~*", "&*", "+@all")
				if r.login != nil {
					run(t, boot, "acl", "setuser", "default", "resetpass", ">"+secret)
				}
				run(t, c, "ping")
				f(t, r, c, func() *redis.Options {
					o := dial(s.Addr())
					if r.login != nil {
						r.login(o)
					}
					return o
				})
			})
		})
	}
}

// Failure case 17. Rule: at first contact what a person must mend ends Lock at once, and what may pass by itself after
// MaxFaulty; TryLock ends at once; with its class, the key, and the server's message, and never with a secret.
func TestRefusedFromTheStart(t *testing.T) {
	eachRefusal(t, func(t *testing.T, r refusal, c *redis.Client, dial func() *redis.Options) {
		r.start(t, c)
		m := locksOf(t, dial(), &hasp.Options{MaxFaulty: graceTime}).Mutex("k", nil)
		// TryLock's request travels with the clean-up after Lock.
		for _, c := range []struct {
			op    string
			lock  func(context.Context) (*hasp.Lease, error)
			least time.Duration
		}{{"lock", m.Lock, r.first}, {"try lock", m.TryLock, 0}, {"try lock", m.TryLock, 0}} {
			start, lost := time.Now(), stall.Watch(t)
			_, err := c.lock(context.Background())
			if took := time.Since(start); took > c.least+2*time.Second+lost() || took < c.least-2*time.Second {
				t.Errorf("%s returned after %v", c.op, took)
			}
			wantClass(t, err, r.class, append([]string{"hasp: " + c.op + ` "k": `}, r.texts...)...)
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error holds the password: %v", err)
			}
		}
	})
}

// Rule: a store that has answered before and refuses for a while is in trouble, not misconfigured: a waiter is told, goes on,
// and has the key soon after; a leader that lost its lease leads again; and a release that was refused is sent again.
func TestRefusedForAWhile(t *testing.T) {
	const ttl = 3 * time.Second
	eachRefusal(t, func(t *testing.T, r refusal, c *redis.Client, dial func() *redis.Options) {
		if r.mend == nil {
			t.Skip("it does not pass")
		}
		holder := mustLock(t, LocksOn(t, dial(), nil).Mutex("k", &hasp.LockOptions{TTL: time.Minute})) // its expiry is too late to help
		waits, leads := newFeed(), newFeed()
		got := lockAsync(context.Background(), LocksOn(t, dial(), waits.observe).Mutex("k", &hasp.LockOptions{TTL: ttl}))
		waits.waits(t)
		ctx, resign := context.WithCancel(t.Context())
		defer resign()
		ended := make(chan error, 1)
		go func() {
			ended <- LocksOn(t, dial(), leads.observe).Election("e", &hasp.LockOptions{TTL: ttl}).Lead(ctx, func(ctx context.Context, _ *hasp.Lease) error {
				<-ctx.Done()
				return nil
			})
		}()
		leads.next(t, event.Acquired)
		r.start(t, c)
		released := make(chan error, 1)
		go func() { released <- holder.Release() }()
		if !r.grows {
			wantClass(t, waits.next(t, event.Trouble).Err, r.class, r.texts...)
			leads.next(t, event.Lost)
			wantClass(t, leads.next(t, event.Trouble).Err, r.class, r.texts...)
			wantClass(t, <-released, r.class, r.texts...)
		}
		r.mend(t, c)
		start, lost := time.Now(), stall.Watch(t)
		lease, at := awaitLease(t, got)
		if took := at.Sub(start); took > 3*little+lost() { // two pauses of a second: of the release, and of the waiter
			t.Errorf("the waiter had the key %v after the server was mended", took)
		}
		release(t, lease)
		if !r.grows {
			leads.next(t, event.Acquired)
		}
		resign()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Failure case 17. Rule: what does not pass ends a wait without a deadline at once.
func TestRefusedForGood(t *testing.T) {
	const ttl = 3 * time.Second
	eachRefusal(t, func(t *testing.T, r refusal, c *redis.Client, dial func() *redis.Options) {
		if r.mend != nil {
			t.Skip("it may pass")
		}
		// The holder is not a hasp client, so that it neither renews nor releases.
		run(t, c, "set", "lock:k", "somebody", "px", 60000)
		events := newFeed()
		got := lockAsync(context.Background(), LocksOn(t, dial(), events.observe).Mutex("k", &hasp.LockOptions{TTL: ttl}))
		events.waits(t)
		r.start(t, c)
		start, lost := time.Now(), stall.Watch(t)
		o := await(t, got)
		wantClass(t, o.err, r.class, r.texts...)
		if took := o.at.Sub(start); took > ttl+little+lost() {
			t.Errorf("Lock returned %v after the refusal began", took)
		}
	})
}

// Rule: a server without memory still serves its leases: they are renewed, released, and handed off.
func TestFullServerKeepsLeases(t *testing.T) {
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		c := newContest(t, dial, holds, time.Minute)
		run(t, c.admin, "config", "set", "maxmemory", "1")
		if err := c.holder.Extend(t.Context(), 2*holds); err != nil {
			t.Errorf("Extend on a full server: %v", err)
		}
		release(t, c.holder)
		c.goesOn(t, little)
	})
}
