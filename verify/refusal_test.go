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
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

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

// Rule: a server without memory still serves its leases: they are renewed, released,
// and handed off.
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
