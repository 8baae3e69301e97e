// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// rights are those that the package documentation asks for, outside a cluster.
var rights = sync.OnceValue(func() (all []string) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		panic(err)
	}
	_, after, _ := strings.Cut(string(text), "# Permissions")
	for _, line := range regexp.MustCompile(`(?m)^//\t(.*)$`).FindAllStringSubmatch(after, -1) {
		all = append(all, strings.Fields(line[1])...)
	}
	return all
})

// allow makes a user with the documented rights and then some change.
func allow(t testing.TB, admin *redis.Client, user string, change ...string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", user, "reset", "on", ">secret"}
	for _, r := range slices.Concat(rights(), change) {
		args = append(args, r)
	}
	must(t, admin.Do(t.Context(), args...).Err())
}

// as opens a driver as a user with the documented rights and then some change.
func (w *world) as(user string, change ...string) *Driver {
	w.Helper()
	allow(w, w.admin, user, change...)
	return w.over(w.client(func(o *redis.Options) { o.Username, o.Password = user, "secret" }), nil)
}

// The documented rights are enough for all that an engine must do, as a server of
// its own and as a node, in another database than 0; and each of them is used.
func TestDocumentedRights(t *testing.T) {
	t.Parallel()
	testserver.Variant(t, "a user with the documented rights")
	if len(rights()) < 25 {
		t.Fatalf("the documentation names %q", rights())
	}
	for name, open := range map[string]func(redis.UniversalClient) driver.Driver{
		"plain": func(rdb redis.UniversalClient) driver.Driver { return New(rdb, nil) },
		"node":  func(rdb redis.UniversalClient) driver.Driver { return NewNode(rdb, 2*time.Hour, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			used := map[string]int{}
			t.Run("suite", func(t *testing.T) {
				drivertest.Run(t, drivertest.Harness{Parallel: true, New: func(t testing.TB) drivertest.Store {
					w := newWorld(t)
					allow(t, w.admin, "bob")
					t.Cleanup(func() {
						w.ctx = context.WithoutCancel(w.ctx)
						mu.Lock()
						defer mu.Unlock()
						for command, n := range w.calls() {
							used[command] += n
						}
						if denied := w.do("ACL", "LOG"); len(denied.([]any)) != 0 {
							t.Errorf("the server refused: %v", denied)
						}
					})
					return drivertest.Store{Open: func() driver.Driver {
						return open(w.client(func(c *redis.Options) { c.DB, c.Username, c.Password = 3, "bob", "secret" }))
					}}
				}})
			})
			for _, right := range rights() {
				command, isCommand := strings.CutPrefix(right, "+")
				if isCommand && used[command] == 0 && (command != "info" || name == "node") {
					t.Errorf("%s is used by nothing", right)
				}
			}
		})
	}
}

// Without the right to PUBLISH a release frees the key and keeps the queue; the
// holder's leases say so from then on, and the first in the queue polls.
func TestNoRightToPublish(t *testing.T) {
	for name, change := range map[string]string{"command": "-publish", "channel": "resetchannels"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			mute, d := w.as("bob", change), w.driver(nil)
			a, b, c := ask("k"), ask("k"), ask("k")
			w.on(mute).grant(a).on(d).wait(b, c).on(mute).release(a)
			if info := w.inspect(d, "k"); info.Held || info.Waiters != 2 {
				t.Fatalf("after Release there is %+v", info)
			}
			if res := w.refuse(d, ask("k")); res.Ahead != 2 && res.Holder.Owner != b.Owner {
				t.Errorf("a newcomer got %+v", res)
			}
			w.on(d).claim(b).release(b).claim(c).release(c)

			again, e := ask("k"), ask("k")
			w.grant(mute, again)
			w.mustLook(d, e)
		})
	}
}

// A Try that would hand the key off, but may not publish, changes nothing and says
// when to look again.
func TestNoRightToPublishInTry(t *testing.T) {
	w := newWorld(t)
	mute, d := w.as("bob", "-publish"), w.driver(nil)
	a, b := ask("k"), ask("k")
	w.on(d).grant(a).wait(b).do("DEL", "lock:k") // the holder is gone
	if res := w.refuse(mute, queued(ask("k"))); res.RetryIn != min(lookAfter, pollStep*2) && res.RetryIn != lookAfter {
		t.Errorf("refused with %+v", res)
	}
	if info := w.inspect(d, "k"); info.Held || info.Waiters != 2 {
		t.Errorf("it left %+v", info)
	}
	if res := w.grant(d, queued(b)); !res.Abandoned {
		t.Errorf("granted with %+v", res)
	}
}

// A waiter that polls needs no hints: even a holder without PUBLISH hands off to it.
func TestMuteHandsOverToOneThatPolls(t *testing.T) {
	w := newWorld(t)
	mute := w.as("bob", "-publish", "-subscribe")
	a, b := ask("k"), ask("k")
	w.grant(mute, a)
	if hints, err := contend.Watch(w.ctx, mute, b); hints != nil || err != nil {
		t.Fatalf("Watch without the right to subscribe: %v, %v", hints, err)
	}
	if res := w.refuse(mute, queued(b)); res.RetryIn <= 0 || res.RetryIn > 100*time.Millisecond {
		t.Errorf("a waiter that polls got %+v", res)
	}
	w.on(mute).release(a).on(w.driver(nil)).has(b)
}

// Without the right to SUBSCRIBE waiters poll: the first often, the others
// less, none less than every second.
func TestNoRightToSubscribe(t *testing.T) {
	w := newWorld(t)
	d := w.as("bob", "-subscribe")
	w.grant(d, ask("k"))
	var last contend.Owner
	for i := range 25 {
		last = ask("k")
		if hints, err := contend.Watch(w.ctx, d, last); hints != nil || err != nil {
			t.Fatalf("Watch: %v, %v", hints, err)
		}
		if res := w.refuse(d, queued(last)); res.RetryIn != min(pollStep*time.Duration(i+1), pollMax) {
			t.Errorf("place %d got %+v", i, res)
		}
	}
	if in := w.sign(d, last); in != pollMax {
		t.Errorf("after its sign of life it polls after %v", in)
	}
}

// Missing rights to keys or scripts are an error of the first call, which
// changed nothing.
func TestDenied(t *testing.T) {
	w := newWorld(t)
	for _, change := range []string{"-evalsha", "-set", "-zadd", "-time", "resetkeys"} {
		d := w.as("bob", change)
		w.do("SET", "lock:k", "peer")
		if change != "-zadd" {
			w.do("DEL", "lock:k")
		}
		before := len(w.keys())
		_, err := contend.Try(w.ctx, d, queued(ask("k")))
		failIf(t, d.Classify(err) != driver.ClassDenied, "%s: Try says %v (%v)", change, err, d.Classify(err))
		if after := w.keys(); len(after) != before {
			t.Errorf("%s: it left %q", change, after)
		}
	}
}

// A release that may not be remembered is an error: a late Try could take the key again.
func TestReleaseThatIsNotRemembered(t *testing.T) {
	w := newWorld(t)
	d, user := w.driver(nil), w.as("bob", "-set")
	a := ask("k")
	w.grant(d, a)
	if err := contend.Release(w.ctx, user, a); user.Classify(err) != driver.ClassDenied {
		t.Errorf("Release says %v", err)
	}
}
