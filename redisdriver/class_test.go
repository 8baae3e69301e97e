// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

func TestWrongPassword(t *testing.T) {
	w := newWorld(t)
	w.do("ACL", "SETUSER", "bob", "on", ">right", "+@all", "~*", "&*")
	for name, change := range map[string]func(*redis.Options){
		"user": func(o *redis.Options) { o.Username, o.Password = "bob", "wrong-secret" },
		"none": func(o *redis.Options) { o.Username, o.Password = "nobody", "wrong-secret" },
	} {
		w.refused(name, change)
	}
	w.do("CONFIG", "SET", "requirepass", "right")
	w.refused("requirepass", func(o *redis.Options) { o.Password = "wrong-secret" })
	w.refused("no password", nil)
}

func (w *world) refused(name string, change func(*redis.Options)) {
	w.Helper()
	d := w.over(w.client(change), nil)
	_, err := contend.Try(w.ctx, d, ask("k"))
	if d.Classify(err) != driver.ClassLogin || strings.Contains(fmt.Sprint(err), "wrong-secret") {
		w.Errorf("%s: Try says %v (%v)", name, err, d.Classify(err))
	}
	// Calls that travel together: go-redis leaves the commands of a pipeline
	// without an error when the connection's set-up was refused. Where there is
	// no set-up, the server answers the first command and shuts the connection,
	// and the reset may overtake its answer: then nobody can know more.
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			_, err := contend.Try(w.ctx, d, ask("k"))
			if c := d.Classify(err); c != driver.ClassLogin && (change != nil || c != driver.ClassUnreachable) {
				w.Errorf("%s: one of many says %v (%v)", name, err, c)
			}
		})
	}
	wg.Wait()
	if _, err := contend.Watch(w.ctx, d, ask("k")); err != nil && d.Classify(err) != driver.ClassLogin {
		w.Errorf("%s: Watch says %v", name, err)
	}
}

// A full server grants nothing, and still renews, releases and hands off, and a waiter claims there what it was handed.
func TestFullServer(t *testing.T) {
	w := newWorld(t, "--maxmemory-policy", "noeviction")
	d := w.driver(nil)
	a, b, alone := ask("k"), ask("k"), ask("alone")
	w.grant(d, a)
	hints := w.wait(d, b)
	w.on(d).grant(alone).do("CONFIG", "SET", "maxmemory", 1)
	for _, r := range []contend.Owner{ask("free"), queued(ask("k"))} {
		if _, err := contend.Try(w.ctx, d, r); d.Classify(err) != driver.ClassFull {
			t.Errorf("Try says %v (%v)", err, d.Classify(err))
		}
	}
	w.on(d).renew(a, alone).release(alone)
	if info := w.inspect(d, "alone"); info.Held {
		t.Errorf("after Release there is %+v", info)
	}
	w.on(d).release(a).hint(hints).has(b)
	w.releasesNothing(d, ask("k"))
	begun := time.Now()
	if res := w.grant(d, queued(b)); res.TTL < b.TTL || !lasts(w.inspect(d, "k").Left, b.TTL, begun) {
		t.Errorf("claimed for %v", res.TTL)
	}
	if err := w.unclaimed(d, b); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("the claim left no mark: %v", err)
	}
	w.release(d, b)
	if info := w.inspect(d, "k"); info.Held {
		t.Errorf("after Release there is %+v", info)
	}
}

func TestServerIsGone(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	w.grant(d, ask("k"))
	w.server.Kill()
	if _, err := contend.Try(w.ctx, d, ask("k")); d.Classify(err) != driver.ClassUnreachable {
		t.Errorf("Try says %v (%v)", err, d.Classify(err))
	}
	if _, err := contend.Watch(w.ctx, d, ask("k")); d.Classify(err) != driver.ClassUnreachable {
		t.Errorf("Watch says %v (%v)", err, d.Classify(err))
	}
	if err := w.renew(d, ask("k"))[0]; d.Classify(err) != driver.ClassUnreachable {
		t.Errorf("Renew says %v", err)
	}
}

func TestConfigurationsThatCannotWork(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	plain := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer plain.Close()
	for name, d := range map[string]*Driver{
		"nil": New(nil, nil), "nil client": New((*redis.Client)(nil), nil), "nil cluster": New((*redis.ClusterClient)(nil), nil),
		"centuries": NewNode(plain, math.MaxInt64, nil).Driver,
		"our names": New(plain, &Options{Prefix: "hasp.locks:"}),
		"ring":      New(ring, nil), "prefix and none": New(plain, &Options{Prefix: "a", NoPrefix: true}),
	} {
		if err := d.Check(); err == nil || d.Classify(err) != driver.ClassImpossible {
			t.Errorf("%s: Check says %v", name, err)
		}
		ctx := context.Background()
		if _, err := contend.Try(ctx, d, ask("k")); !errors.Is(err, d.Check()) {
			t.Errorf("%s: Try says %v", name, err)
		}
		for _, err := range d.List(ctx, "") {
			failIf(t, !errors.Is(err, d.Check()), "%s: List says %v", name, err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("%s: Close says %v", name, err)
		}
	}
	if err := New(plain, nil).Check(); err != nil {
		t.Errorf("a plain client: %v", err)
	}
}

// A server that wants a certificate of the client refuses it with an alert, which
// is no trouble of the network.
func TestClassOfAnAlert(t *testing.T) {
	for op, want := range map[string]driver.Class{"remote error": driver.ClassMisconfigured, "local error": driver.ClassMisconfigured, "read": driver.ClassUnreachable} {
		if got := New(nil, nil).Classify(fmt.Errorf("TLS: %w", &net.OpError{Op: op, Err: errors.New("tls: certificate required")})); got != want {
			t.Errorf("%s is %v, want %v", op, got, want)
		}
	}
}

// Errors as servers write them, now and before 7.0.
func TestClassOf(t *testing.T) {
	for text, want := range map[string]driver.Class{
		"LOADING Redis is loading the dataset in memory":                                                                     driver.ClassUnreachable,
		"ERR max number of clients reached":                                                                                  driver.ClassUnreachable,
		"BUSY Redis is busy running a script.":                                                                               driver.ClassUnreachable,
		"NOREPLICAS Not enough good replicas to write.":                                                                      driver.ClassUnreachable,
		"NOAUTH Authentication required.":                                                                                    driver.ClassLogin,
		"NOPERM this user has no permissions to run the 'evalsha' command":                                                   driver.ClassDenied,
		"ERR The user executing the script can't run this command or subcommand":                                             driver.ClassDenied,
		"ERR ACL failure in script: User bob has no permissions to run the 'set' command script: d6cd, on @user_script:614.": driver.ClassDenied,
		"DENIED Redis is running in protected mode":                                                                          driver.ClassDenied,
		"ERR unknown command 'EVALSHA', with args beginning with:":                                                           driver.ClassMisconfigured,
		"CROSSSLOT Keys in request don't hash to the same slot":                                                              driver.ClassMisconfigured,
		"MISCONF Redis is configured to save RDB snapshots, but can't":                                                       driver.ClassFull,
		"ERR something new": driver.ClassUnknown,
		"":                  driver.ClassUnknown,
		"OOM command not allowed when used memory > 'maxmemory'. script: ab, on @user_script:1.":                   driver.ClassFull,
		"ERR Error running script (call to f_ab): @user_script:5: @user_script: 5: -READONLY You can't write":      driver.ClassReadOnly,
		"ERR Error running script (call to f_ab): @user_script:5: WRONGTYPE Operation against a key holding":       driver.ClassImpossible,
		"ERR Error running script (call to f_ab): @user_script:5: -OOM command not allowed when used memory > 'm'": driver.ClassFull,
	} {
		if got := wire.ClassOf(text); got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}

// What go-redis says of Sentinels that know no master by a name is told from Sentinels that cannot be reached.
func TestNamelessMaster(t *testing.T) {
	d := New(redis.NewClient(&redis.Options{}), nil)
	defer d.Close()
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		said []error
		want driver.Class
	}{
		"all know none":  {[]error{redis.Nil, redis.Nil}, driver.ClassMisconfigured},
		"one knows none": {[]error{redis.Nil, refused}, driver.ClassUnreachable},
		"one is slow":    {[]error{context.DeadlineExceeded, redis.Nil}, driver.ClassUnreachable},
		"nobody answers": {[]error{refused, refused}, driver.ClassUnreachable},
	} {
		err := wire.Explained(fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(c.said...)))
		if got := d.Classify(err); got != c.want {
			t.Errorf("%s: %v: class %v, want %v", name, err, got, c.want)
		}
	}
}
