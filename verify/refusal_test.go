// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// wantClass fails the test unless err is of the class and says all of texts.
func wantClass(t testing.TB, err error, class hasp.Class, texts ...string) {
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

// refusal is a server that refuses a request for a reason that does not go away by
// asking again.
type refusal struct {
	name  string
	start func(t *testing.T, c *redis.Client) // what makes it refuse, also in the middle of a wait
	login func(o *redis.Options)
	class hasp.Class
	texts []string
}

const secret = "s3cr3t-pass"

var refusals = []refusal{
	{
		name: "wrong password",
		start: func(t *testing.T, c *redis.Client) {
			run(t, c, "acl", "setuser", "default", "resetpass", ">other")
			kick(t, c)
		},
		login: func(o *redis.Options) { o.Password = secret },
		class: hasp.ClassLogin, texts: []string{"WRONGPASS"},
	},
	{
		name:  "no permission for scripts",
		start: func(t *testing.T, c *redis.Client) { run(t, c, "acl", "setuser", "default", "-evalsha", "-eval") },
		class: hasp.ClassDenied, texts: []string{"NOPERM", "eval"},
	},
	{
		name:  "no permission for the keys",
		start: func(t *testing.T, c *redis.Client) { run(t, c, "acl", "setuser", "default", "resetkeys", "~other:*") },
		class: hasp.ClassDenied, texts: []string{"NOPERM", "key"},
	},
	{
		name:  "read-only replica",
		start: func(t *testing.T, c *redis.Client) { run(t, c, "replicaof", "127.0.0.1", "1") },
		class: hasp.ClassReadOnly, texts: []string{"READONLY"},
	},
	{
		name:  "maxmemory with noeviction",
		start: func(t *testing.T, c *redis.Client) { run(t, c, "config", "set", "maxmemory", "1") },
		class: hasp.ClassFull, texts: []string{"OOM"},
	},
	{
		name: "another type under the key",
		start: func(t *testing.T, c *redis.Client) {
			run(t, c, "eval", "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'f', 'v')", 1, "lock:k")
		},
		class: hasp.ClassMisconfigured, texts: []string{`"lock:k"`, "hash"},
	},
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

// Failure case 17. Rule: a permanent refusal ends Lock and TryLock at once, with its
// class, the key, and the server's message, and never with a secret.
func TestRefusedFromTheStart(t *testing.T) {
	eachRefusal(t, func(t *testing.T, r refusal, c *redis.Client, dial func() *redis.Options) {
		r.start(t, c)
		m := LocksOn(t, dial(), nil).Mutex("k", nil)
		// TryLock's request travels with the clean-up after Lock.
		for _, c := range []struct {
			op   string
			lock func(context.Context) (*hasp.Lease, error)
		}{{"lock", m.Lock}, {"try lock", m.TryLock}, {"try lock", m.TryLock}} {
			start, lost := time.Now(), stall.Watch(t)
			_, err := c.lock(context.Background())
			if took := time.Since(start); took > 2*time.Second+lost() {
				t.Errorf("%s returned after %v", c.op, took)
			}
			wantClass(t, err, r.class, append([]string{"hasp: " + c.op + ` "k": `}, r.texts...)...)
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error holds the password: %v", err)
			}
		}
	})
}

// Failure case 17. Rule: the same holds during a wait without a deadline.
func TestRefusedDuringTheWait(t *testing.T) {
	const ttl = 3 * time.Second
	eachRefusal(t, func(t *testing.T, r refusal, c *redis.Client, dial func() *redis.Options) {
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
		c := newContest(t, dial, time.Minute)
		run(t, c.admin, "config", "set", "maxmemory", "1")
		if err := c.holder.Extend(t.Context(), 2*time.Minute); err != nil {
			t.Errorf("Extend on a full server: %v", err)
		}
		release(t, c.holder)
		c.goesOn(t, little)
	})
}
