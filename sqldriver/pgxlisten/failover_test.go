// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pgxlisten_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/sqldriver"
	"github.com/hasplock/hasp/sqldriver/pgxlisten"
)

// lasting is a TTL that no lease of these tests outlives.
var lasting = &hasp.LockOptions{TTL: time.Hour}

// limit is for what must happen, far above what it takes.
const limit = 5 * time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(start) > limit {
			t.Fatalf("not yet: %s", what)
		}
	}
}

func port(t *testing.T, p *faultproxy.Proxy) (n uint16) {
	t.Helper()
	_, err := fmt.Sscanf(p.Addr(), "127.0.0.1:%d", &n)
	must(t, err)
	return n
}

// A ledger is what the clients of a test were answered.
type ledger struct {
	t *testing.T

	mu     sync.Mutex
	held   map[string]*hasp.Lease // by key; not those of which the release has begun
	fences map[string]uint64      // the newest of each key
	newest uint64                 // of all keys
	grants int
}

// lock waits for a key, and is false when ctx ended before.
func (l *ledger) lock(ctx context.Context, c *hasp.Client, key string) (*hasp.Lease, bool) {
	lease, err := c.Mutex(key, lasting).Lock(ctx)
	if err != nil {
		if ctx.Err() == nil {
			l.t.Errorf("a wait ended: %v", err)
		}
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.held[key]; other != nil {
		l.t.Errorf("%s has two holders, with the fences %d and %d", key, other.Fence(), lease.Fence())
	}
	if lease.Fence() <= l.fences[key] {
		l.t.Errorf("%s: the fence is %d, after %d", key, lease.Fence(), l.fences[key])
	}
	l.held[key], l.fences[key], l.newest = lease, lease.Fence(), max(l.newest, lease.Fence())
	l.grants++
	return lease, true
}

// release may end before a server answers, which is no finding: the client goes on.
func (l *ledger) release(lease *hasp.Lease) {
	l.mu.Lock()
	delete(l.held, lease.Key())
	l.mu.Unlock()
	if err := lease.Release(); errors.Is(err, hasp.ErrLost) || errors.Is(err, hasp.ErrNotHeld) {
		l.t.Errorf("%s was not ours any more: %v", lease.Key(), err)
	}
}

func (l *ledger) granted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grants
}

// standing are the leases of which no release has begun.
func (l *ledger) standing() map[string]*hasp.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.held)
}

// Rule: a primary that is killed amid grants, and replaced by its synchronous standby, takes no answered lease with it,
// also when the link between the two broke before.
//
// It fails with an asynchronous standby (without synchronous_standby_names below): the grants of the last moments, and
// those behind the cut link, were answered, and the standby has none of them.
func TestKilledPrimary(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]bool{"Linked": false, "CutOff": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killPrimary(t, cut)
		})
	}
}

func killPrimary(t *testing.T, cut bool) {
	// What makes the tables waits for no standby, and clients do: there is no moment at which the setting is taken up.
	old := testserver.Postgres(t, append(testserver.PostgresReplicates, "synchronous_standby_names=*", "synchronous_commit=local")...)
	c := newSchema(t, old)
	link := faultproxy.New(t, old.Addr())
	standby := testserver.PostgresStandby(t, old, fmt.Sprint("primary_conninfo=user=postgres host=127.0.0.1 port=", port(t, link)))
	address := faultproxy.New(t, old.Addr())
	c.RuntimeParams["synchronous_commit"] = "on"
	far, near := c.Copy(), c.Copy()
	far.Port, near.Port = port(t, address), uint16(standby.Port())
	pgxlisten.WatchCommits(far)
	client := func(hears bool) *hasp.Client {
		var o sqldriver.PostgresOptions
		if hears {
			o.Listener = pgxlisten.New(far)
		}
		c, err := hasp.New(sqldriver.NewPostgres(pool(t, far), &o), nil)
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	admin, other := pool(t, c), pool(t, near)
	count := func(db *sql.DB, query string) (n int) {
		must(t, db.QueryRowContext(t.Context(), query).Scan(&n))
		return n
	}
	ctx, stop := context.WithCancel(t.Context())
	all := &ledger{t: t, held: map[string]*hasp.Lease{}, fences: map[string]uint64{}}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()

	const many = 4
	holder, next := client(true), make(chan *hasp.Lease, many)
	for i := range many {
		key, waiter := fmt.Sprint("wanted ", i), client(i%2 == 0)
		if _, ok := all.lock(ctx, holder, key); !ok {
			return
		}
		wg.Go(func() {
			if lease, ok := all.lock(ctx, waiter, key); ok {
				next <- lease
			}
		})
		eventually(t, "a waiter queues", func() bool {
			info, err := holder.Operator().Inspect(ctx, key)
			return err == nil && info.Waiters == 1
		})
	}
	for i := range many {
		c := client(i%2 == 0)
		wg.Go(func() {
			for {
				lease, ok := all.lock(ctx, c, "hot")
				if !ok {
					return
				}
				all.release(lease)
			}
		})
		wg.Go(func() {
			for n := 0; ; n++ {
				lease, ok := all.lock(ctx, c, fmt.Sprint(i, "/", n))
				if !ok {
					return
				}
				if n%2 == 0 {
					all.release(lease)
				}
			}
		})
	}
	further := func(n int) func() bool {
		n += all.granted()
		return func() bool { return all.granted() >= n }
	}
	eventually(t, "keys are granted", further(200))
	link.Delay(10 * time.Millisecond) // what is not waited for arrives after an answer
	if cut {
		enough := further(50)
		link.Swallow(true, true)
		eventually(t, "the primary waits for its standby", func() bool {
			return enough() || count(admin, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") > 0
		})
	}
	old.Kill()
	_, err := other.ExecContext(t.Context(), "SELECT pg_promote()")
	must(t, err)
	eventually(t, "the standby is promoted", func() bool { return count(other, "SELECT pg_is_in_recovery()::int") == 0 })

	before := all.standing() // no client reaches the new primary yet
	s := sqldriver.NewPostgres(other, nil)
	for key, lease := range before {
		info, err := s.Inspect(ctx, key)
		must(t, err)
		if !info.Held || len(info.Holders) != 1 || info.Holder.Owner != lease.Owner() || info.Fence != lease.Fence() {
			t.Errorf("%s was granted with the fence %d, and the new primary has %d leases of it, and the fence %d", key, lease.Fence(), len(info.Holders), info.Fence)
		}
	}
	address.Retarget(standby.Addr())
	address.Reset()
	for i := range many {
		all.release(before[fmt.Sprint("wanted ", i)])
	}
	for range many {
		select {
		case lease := <-next:
			all.release(lease)
		case <-time.After(limit):
			t.Fatal("not yet: a waiter is granted the key that was released")
		}
	}
	eventually(t, "the new primary grants keys", further(200))
	stop()
	wg.Wait()

	stranger := client(true)
	held := all.standing()
	for key, lease := range before {
		if held[key] == nil {
			continue // released since
		}
		if _, err := stranger.Mutex(key, lasting).TryLock(t.Context()); !errors.Is(err, hasp.ErrHeld) {
			t.Errorf("%s is held, and a stranger that tries: %v", key, err)
		}
		if err := lease.Extend(t.Context(), 2*lasting.TTL); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	newest := all.newest
	if lease, ok := all.lock(t.Context(), stranger, "new"); ok && lease.Fence() <= newest {
		t.Errorf("the fence is %d, after %d", lease.Fence(), newest)
	}
	t.Logf("%d grants; %d leases stood when the primary was killed", all.granted(), len(before))
}
