// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// What is no number of permits is an error of all methods, and stays.
func TestSynchronizersOverOtherData(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.synchronizers(w.client(""))
	m, x, l := s.Semaphore("k"), s.PermitExpirableSemaphore("k"), s.CountDownLatch("k")
	id := "00112233445566778899aabbccddeeff"
	calls := map[string]func() error{
		"TrySetPermits": func() error { _, err := m.TrySetPermits(w.ctx, 1); return err },
		"AddPermits":    func() error { return m.AddPermits(w.ctx, 1) },
		"Available":     func() error { _, err := m.Available(w.ctx); return err },
		"Acquire":       func() error { return m.Acquire(w.ctx, 1) },
		"TryAcquire":    func() error { _, err := m.TryAcquire(w.ctx, 1); return err },
		"Release":       func() error { return m.Release(w.ctx, 1) },
		"Drain":         func() error { _, err := m.Drain(w.ctx); return err },

		"expirable TrySetPermits": func() error { _, err := x.TrySetPermits(w.ctx, 1); return err },
		"expirable SetPermits":    func() error { return x.SetPermits(w.ctx, 1) },
		"expirable AddPermits":    func() error { return x.AddPermits(w.ctx, 1) },
		"expirable Available":     func() error { _, err := x.Available(w.ctx); return err },
		"expirable Acquire":       func() error { _, err := x.Acquire(w.ctx, 0); return err },
		"expirable TryAcquire":    func() error { _, err := x.TryAcquire(w.ctx, 0); return err },
		"expirable Release":       func() error { return x.Release(w.ctx, id) },
		"expirable UpdateLease":   func() error { return x.UpdateLease(w.ctx, id, time.Hour) },
		"expirable LeaseLeft":     func() error { _, err := x.LeaseLeft(w.ctx, id); return err },

		"TrySetCount": func() error { _, err := l.TrySetCount(w.ctx, 1); return err },
		"Count":       func() error { _, err := l.Count(w.ctx); return err },
		"CountDown":   func() error { return l.CountDown(w.ctx) },
		"Wait":        func() error { return l.Wait(w.ctx) },
	}
	for _, put := range [][]any{
		{"SET", "k", "abc"}, {"SET", "k", ""}, {"SET", "k", "1.5"}, {"SET", "k", "9223372036854775807"}, {"HSET", "k", "mode", "read"},
		{"SET", "{k}:timeout", "text"},
	} {
		w.do("FLUSHALL")
		w.do(put...)
		before := w.do("DUMP", put[1])
		for name, call := range calls {
			if put[1] == "{k}:timeout" && !strings.HasPrefix(name, "expirable") {
				continue
			}
			if err := call(); wire.Classify(err) != driver.ClassImpossible || !strings.Contains(err.Error(), "choose another name") {
				t.Errorf("%v: %s says %v", put, name, err)
			}
		}
		if after := w.do("DUMP", put[1]); after != before {
			t.Errorf("%v became %q", put, after)
		}
		if keys := everything(t, w.admin); len(keys) != 1 {
			t.Errorf("%v: there are %q", put, keys)
		}
	}
}

// A full server grants nothing, and takes back all that is given back.
func TestSynchronizersOverAFullServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.synchronizers(w.client(""))
	m, x, l := s.Semaphore("m"), s.PermitExpirableSemaphore("k"), s.CountDownLatch("l")
	w.succeeds(m.AddPermits(w.ctx, 2))
	w.succeeds(m.Acquire(w.ctx, 1))
	w.succeeds(x.SetPermits(w.ctx, 9))
	ids, err := x.AcquireMany(w.ctx, 3, time.Hour)
	w.succeeds(err)
	must[bool](t)(l.TrySetCount(w.ctx, 2))
	waits := begin(func() error { return l.Wait(w.ctx) })
	w.do("CONFIG", "SET", "maxmemory", 1)
	for name, said := range map[string]<-chan error{ // each bears it for as long as a silence
		"Acquire":    begin(func() error { return m.Acquire(w.ctx, 1) }),
		"the other":  begin(func() error { _, err := x.Acquire(w.ctx, 0); return err }),
		"AddPermits": begin(func() error { return m.AddPermits(w.ctx, 1) }),
	} {
		err := <-said
		failIf(t, wire.Classify(err) != driver.ClassFull, "%s says %v", name, err)
	}
	w.succeeds(m.Release(w.ctx, 1))
	w.do("PEXPIRE", "m", 3_600_000)
	w.succeeds(m.Release(w.ctx, 1))
	w.succeeds(x.Release(w.ctx, ids[0]))
	w.succeeds(x.UpdateLease(w.ctx, ids[1], time.Nanosecond))
	w.until("its lease is over", func() bool { return must[int](t)(x.Acquired(w.ctx)) == 1 })
	x.giveBack("any", []any{must[[]byte](t)(bytesOf(ids[2]))}, 0)
	w.until("it is given back", func() bool { return must[int](t)(x.Available(w.ctx)) == 9 })
	if n := must[int](t)(m.Available(w.ctx)); n != 3 {
		t.Errorf("%d are free", n)
	}
	w.succeeds(l.CountDown(w.ctx))
	w.succeeds(l.CountDown(w.ctx))
	w.ends(waits, nil)
}

// These rights suffice for semaphores and latches whose names begin with k.
func TestSynchronizerRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	user := []any{"ACL", "SETUSER", "u", "on", "nopass", "resetchannels", "-@all"}
	for _, r := range strings.Fields(`~k* ~{k* ~hasp.* &redisson_sc:* &redisson_countdownlatch__channel__* &hasp.*
		+evalsha +eval +publish +subscribe +unsubscribe +ping +time +type +exists +pttl +pexpire +persist
		+get +set +del +incrby +zadd +zrem +zrange +zremrangebyscore +zscore +zcard`) {
		user = append(user, r)
	}
	w.do(user...)
	s := w.synchronizers(w.client("u"))
	m, x, l := s.Semaphore("km"), s.PermitExpirableSemaphore("kx"), s.CountDownLatch("kl")
	must[bool](t)(m.TrySetPermits(w.ctx, 0))
	must[bool](t)(x.TrySetPermits(w.ctx, 0))
	must[bool](t)(l.TrySetCount(w.ctx, 2))
	var id string
	waits := []<-chan error{
		begin(func() error { return m.Acquire(w.ctx, 1) }), begin(func() error { return l.Wait(w.ctx) }),
		begin(func() (err error) { id, err = x.Acquire(w.ctx, time.Hour); return err }),
	}
	for _, channel := range []string{m.channel, x.channel, l.channel} {
		w.asleep(s, channel, 1)
	}
	w.succeeds(m.AddPermits(w.ctx, 2))
	w.succeeds(m.Release(w.ctx, 1))
	w.do("PEXPIRE", "kx", 3_600_000)
	w.succeeds(x.AddPermits(w.ctx, 1))
	w.succeeds(l.CountDown(w.ctx))
	w.succeeds(l.CountDown(w.ctx))
	for _, done := range waits {
		w.ends(done, nil)
	}
	must[int](t)(m.Drain(w.ctx))
	w.succeeds(x.UpdateLease(w.ctx, id, time.Nanosecond))
	w.until("its lease is over", func() bool { return must[int](t)(x.Acquired(w.ctx)) == 0 })
	id = must[string](t)(x.TryAcquire(w.ctx, 0))
	must[time.Duration](t)(x.LeaseLeft(w.ctx, id))
	w.succeeds(x.Release(w.ctx, id))
	w.succeeds(x.SetPermits(w.ctx, 3))
	x.giveBack("any", []any{make([]byte, 16)}, 0)
	w.until("that is remembered", func() bool { return w.admin.Exists(w.ctx, "hasp.gone:any:{kx}").Val() == 1 })
	if _, heard := s.posts.Find(-1).Up(); !heard {
		t.Error("it may not publish, or not hear itself")
	}
	if err := s.Semaphore("other").Release(w.ctx, 1); wire.Classify(err) != driver.ClassDenied {
		t.Errorf("of another name: %v", err)
	}
	other := s.PermitExpirableSemaphore("other")
	other.giveBack("any", []any{make([]byte, 16)}, 0)
	w.until("that is given up", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.giving == 0
	})
}

// A client or a name that cannot be used is the error of the first use.
func TestSynchronizersThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer away.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	for name, l := range map[string]*CountDownLatch{
		"no client":   NewSynchronizers(nil, nil).CountDownLatch("k"),
		"a ring":      NewSynchronizers(redis.NewRing(&redis.RingOptions{}), nil).CountDownLatch("k"),
		"the prefix":  NewSynchronizers(away, &SynchronizerOptions{Prefix: "hasp."}).CountDownLatch("k"),
		"the name":    NewSynchronizers(away, &SynchronizerOptions{Prefix: "ha"}).CountDownLatch("sp.x"),
		"its braces":  NewSynchronizers(cluster, nil).CountDownLatch("{k}"),
		"braces":      NewSynchronizers(cluster, &SynchronizerOptions{Prefix: "{p}"}).CountDownLatch("k"),
		"no name":     NewSynchronizers(away, nil).CountDownLatch(""),
		"a long name": NewSynchronizers(away, nil).CountDownLatch(strings.Repeat("k", 513)),
	} {
		if err := l.Wait(t.Context()); err == nil || strings.Contains(err.Error(), "connect") {
			t.Errorf("%s: Wait says %v", name, err)
		}
		if err := l.CountDown(t.Context()); err == nil || strings.Contains(err.Error(), "connect") {
			t.Errorf("%s: CountDown says %v", name, err)
		}
		_ = l.s.Close()
	}
	s := NewSynchronizers(cluster, nil)
	defer s.Close()
	for name, torn := range map[string]bool{"k": false, "{t}k": false, "a{t}": false, "a{b": true, "{}k": true, "a}b": true} {
		_, a := s.Semaphore(name).TryAcquire(t.Context(), 1)
		_, b := s.PermitExpirableSemaphore(name).TryAcquire(t.Context(), 0)
		for _, err := range []error{a, b} {
			failIf(t, (wire.Classify(err) == driver.ClassImpossible) != torn, "%q: %v", name, err)
		}
	}
}

// After Close every wait has ended, and no goroutine is left, whatever the server does.
func TestSynchronizersClose(t *testing.T) {
	w := newWorld(t)
	for _, how := range []string{"sound", "hung", "gone"} {
		ignore := goleak.IgnoreCurrent()
		rdb := redis.NewClient(&redis.Options{Addr: w.server.Addr(), ReadTimeout: 200 * time.Millisecond, MaxRetries: -1})
		s := w.synchronizers(rdb)
		m, x, l := s.Semaphore("none"), s.PermitExpirableSemaphore("nothing"), s.CountDownLatch("l"+how)
		must[bool](t)(l.TrySetCount(w.ctx, 1))
		var waits []<-chan error
		for range 5 {
			waits = append(waits, begin(func() error { return m.Acquire(w.ctx, 1) }), begin(func() error { return l.Wait(w.ctx) }),
				begin(func() error { _, err := x.Acquire(w.ctx, 0); return err }))
		}
		for channel := range map[string]bool{m.channel: true, x.channel: true, l.channel: true} {
			w.asleep(s, channel, 5)
		}
		switch how {
		case "hung":
			w.server.Stop()
			x.giveBack("any", []any{make([]byte, 16)}, 0)
		case "gone":
			w.server.Kill()
			x.giveBack("any", []any{make([]byte, 16)}, 0)
		}
		w.succeeds(s.Close())
		for _, done := range waits {
			select {
			case err := <-done:
				failIf(t, !errors.Is(err, driver.ErrClosed) && how == "sound", "%s: a wait ended with %v", how, err)
			case <-w.ctx.Done():
				t.Fatalf("%s: a wait does not end", how)
			}
		}
		for name, err := range map[string]error{
			"Acquire": m.Acquire(w.ctx, 1), "Release": m.Release(w.ctx, 1), "CountDown": l.CountDown(w.ctx), "Wait": l.Wait(w.ctx),
			"the other Release": x.Release(w.ctx, strings.Repeat("0", 32)),
		} {
			failIf(t, !errors.Is(err, driver.ErrClosed), "%s: %s says %v", how, name, err)
		}
		w.succeeds(rdb.Close())
		goleak.VerifyNone(t, ignore) // tries for a while: what hangs ends by the client's time-outs
		if how == "hung" {
			w.server.Cont()
		}
	}
}

// In a cluster messages come by SPUBLISH, for as many hash slots as there may be subscriptions; those who wait for others ask.
func TestSynchronizersInACluster(t *testing.T) {
	t.Parallel()
	c := testserver.NewRedisCluster(t, 3, testserver.RedisGroup{Timeout: calm})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	w := &world{TB: t, ctx: ctx}
	rdb, java := clusterClient(c.Addrs()), clusterClient(c.Addrs())
	defer rdb.Close()
	defer java.Close()
	s := w.synchronizers(rdb)
	w.until("the cluster serves", func() bool { return java.Set(ctx, "a", 1, 0).Err() == nil })
	m, x := s.Semaphore("k"), s.PermitExpirableSemaphore("{t}x")
	w.succeeds(m.AddPermits(ctx, 0))
	taken := begin(func() error { return m.Acquire(ctx, 2) })
	w.until("it listens", func() bool { return s.posts.Find(m.slot) != nil && s.posts.Find(m.slot).Listens(scK) })
	w.succeeds(java.IncrBy(ctx, "k", 2).Err())
	w.succeeds(java.SPublish(ctx, scK, 2).Err())
	w.ends(taken, nil)
	w.succeeds(x.SetPermits(ctx, 1))
	id, err := x.Acquire(ctx, 0)
	w.succeeds(err)
	ps := java.SSubscribe(ctx, x.channel)
	defer ps.Close()
	must[any](t)(ps.Receive(ctx))
	other := begin(func() error { _, err := x.Acquire(ctx, time.Hour); return err })
	w.until("two listen", func() bool { return s.posts.Find(x.slot) != nil && s.posts.Find(x.slot).Listens(x.channel) })
	w.succeeds(x.Release(ctx, id))
	w.ends(other, nil)
	if got, err := ps.ReceiveMessage(ctx); err != nil || got.Payload != "1" {
		t.Errorf("Java hears %v, %v", got, err)
	}
	var waits []<-chan error
	for i := range wire.MaxBoxes + 3 {
		l := s.CountDownLatch("l" + strconv.Itoa(i))
		must[bool](t)(l.TrySetCount(ctx, 1))
		waits = append(waits, begin(func() error { return l.Wait(ctx) }))
	}
	w.until("as many listen as may", func() bool {
		s.posts.Lock()
		defer s.posts.Unlock()
		return len(s.posts.Open) == wire.MaxBoxes
	})
	for i := range waits {
		w.succeeds(s.CountDownLatch("l" + strconv.Itoa(i)).CountDown(ctx))
		w.ends(waits[i], nil)
	}
}
