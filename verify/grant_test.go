// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
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

// slow is a server behind a link, and a client that has used it, so that its scripts are loaded and a connection is open.
type slow struct {
	link  *faultproxy.Proxy
	admin *redis.Client
	locks *hasp.Client
	close func() // waits for the client's clean-up, and checks that nothing is left
}

func newSlow(t *testing.T, dial func(string) *redis.Options) *slow {
	t.Helper()
	s := testserver.Redis(t)
	l := &slow{link: faultproxy.New(t, s.Addr()), admin: admin(t, s)}
	run(t, l.admin, "ping")
	l.locks = LocksOn(t, dial(l.link.Addr()), nil)
	release(t, mustLock(t, l.locks.Mutex("warm", nil)))
	l.close = func() {
		t.Helper()
		l.link.Hook(nil)
		l.link.Clear()
		if err := l.locks.Close(); err != nil { // waits for what runs in the background
			t.Error(err)
		}
		nothingLeft(t, l.admin)
	}
	return l
}

// Failure case 13. Rule: if the reply to a granted Lock is lost, the same owner asks again, and gets its standing grant.
func TestLostReplyToAGrant(t *testing.T) {
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		l := newSlow(t, dial)
		dropped := dropOne(l.link, faultproxy.Down)
		lease := mustLock(t, l.locks.Mutex("k", &hasp.LockOptions{TTL: holds})) // another owner would not have the key by its expiry
		if dropped.Load() == 0 {
			t.Fatal("no reply was dropped")
		}
		if n := l.admin.Exists(t.Context(), "lock:k").Val(); n != 1 {
			t.Error("the store does not have the key")
		}
		release(t, lease)
		l.close()
	})
}

// Failure cases 11 and 18. Rule: a Lock whose context ends while the reply to its grant
// is in flight returns the context's error, and releases what it may have been granted.
func TestContextEndsAfterALostReply(t *testing.T) {
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		l := newSlow(t, dial)
		l.link.Swallow(false, true)
		const limit = 12 * time.Second // time for the store to grant, however busy
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		start, lost := time.Now(), stall.Watch(t)
		_, err := l.locks.Mutex("k", nil).Lock(ctx)
		if took := time.Since(start); took > limit+little+lost() {
			t.Errorf("Lock returned after %v, its context ended after %v", took, limit)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v, want the context's error", err)
		}
		if n := l.admin.Exists(t.Context(), "lock:k").Val(); n != 1 {
			t.Error("the store did not grant: this run shows nothing")
		}
		l.close()
	})
}

// Failure case 13. Rule: a Release whose reply is lost has released, and returns nil.
func TestLostReplyToARelease(t *testing.T) {
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		l := newSlow(t, dial)
		lease := mustLock(t, l.locks.Mutex("k", nil))
		dropped := dropOne(l.link, faultproxy.Down)
		release(t, lease)
		if dropped.Load() == 0 {
			t.Error("no reply was dropped")
		}
		l.close()
	})
}

// Rule: a link that never answers ends a Lock without a deadline after MaxSilence, as
// unreachable, and what the store granted meanwhile is released.
func TestSilentStoreEndsALock(t *testing.T) {
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		l := newSlow(t, dial)
		l.locks = locksOf(t, dial(l.link.Addr()), &hasp.Options{MaxSilence: silence})
		release(t, mustLock(t, l.locks.Mutex("warm", nil)))
		l.link.Swallow(false, true)
		start, lost := time.Now(), stall.Watch(t)
		_, err := l.locks.Mutex("k", &hasp.LockOptions{TTL: time.Second}).Lock(context.Background())
		if took := time.Since(start); took > silence+little+lost() {
			t.Errorf("Lock returned after %v without an answer, want %v", took, silence)
		}
		wantClass(t, err, driver.ClassUnreachable)
		l.close()
	})
}

// Rule: with a context that has already ended, nothing is sent to the store.
func TestContextEndedBefore(t *testing.T) {
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		l := newSlow(t, dial)
		var sent atomic.Int32
		l.link.Hook(func(c faultproxy.Chunk) bool {
			if bytes.Contains(c.Data, []byte("evalsha")) {
				sent.Add(1)
			}
			return false
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.locks.Mutex("k", nil).Lock(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v, want the context's error", err)
		}
		if _, err := l.locks.Mutex("k", nil).TryLock(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("TryLock: %v, want the context's error", err)
		}
		l.close()
		if n := sent.Load(); n > 0 {
			t.Errorf("%d scripts were sent", n)
		}
	})
}

// Failure case 11. Rule: a request that is overtaken by the clean-up of its owner is refused when it arrives.
func TestContextEndsWhileTheRequestIsUnderWay(t *testing.T) {
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		l := newSlow(t, dial)
		held, free := make(chan struct{}), make(chan struct{})
		var first atomic.Bool
		l.link.Hook(func(c faultproxy.Chunk) bool {
			if c.Dir == faultproxy.Up && bytes.Contains(c.Data, []byte("evalsha")) && first.CompareAndSwap(false, true) {
				close(held)
				<-free
			}
			return false
		})
		ctx, cancel := context.WithCancel(t.Context())
		got := lockAsync(ctx, l.locks.Mutex("k", nil))
		<-held
		cancel()
		if o := await(t, got); !errors.Is(o.err, context.Canceled) {
			t.Errorf("Lock: %v, want the context's error", o.err)
		}
		// The clean-up has its own connection, and arrives first.
		if err := l.locks.Close(); err != nil {
			t.Error(err)
		}
		close(free)
		run(t, l.admin, "ping")
		l.close()
	})
}

// Failure case 19. Rule: the context of Lock bounds only the wait: the lease lives on, and is renewed, after it has ended.
func TestContextEndsAfterTheGrant(t *testing.T) {
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		s := testserver.Redis(t)
		events := newFeed()
		locks := LocksOn(t, dial(s.Addr()), events.observe)
		ctx, cancel := context.WithCancel(t.Context())
		got := lockAsync(ctx, locks.Mutex("k", &hasp.LockOptions{TTL: 15 * time.Second}))
		lease, _ := awaitLease(t, got)
		cancel()
		for range 4 { // past the TTL
			events.next(t, event.Renewed)
		}
		if err := lease.Err(); err != nil {
			t.Error(err)
		}
		release(t, lease)
	})
}

// Failure case 18. Rule: the error of a cancelled wait is the context's and names the holder, and no place is left in the queue.
func TestContextEndsDuringTheWait(t *testing.T) {
	eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
		s := testserver.Redis(t)
		adm, events := admin(t, s), newFeed()
		holder := mustLock(t, Locks(t, s.Addr(), nil).Mutex("k", nil))
		locks := LocksOn(t, dial(s.Addr()), events.observe)
		ctx, cancel := context.WithCancel(t.Context())
		got := lockAsync(ctx, locks.Mutex("k", nil))
		events.waits(t)
		cancel()
		o, heldErr := await(t, got), (*hasp.HeldError)(nil)
		if !errors.Is(o.err, context.Canceled) || !errors.As(o.err, &heldErr) || heldErr.Holder.Owner != holder.Owner() {
			t.Errorf("Lock: %v, want the context's error and the holder", o.err)
		}
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		release(t, holder)
		nothingLeft(t, adm)
	})
}
