// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// census counts who has a key, as far as those know who have it.
type census struct {
	t testing.TB

	mu               sync.Mutex
	readers, writers int
	reads, writes    int    // so many began
	newest, wrote    uint64 // fences
	together         int    // readers at once, at most
}

func (c *census) reader(fence uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readers++
	c.reads++
	c.together = max(c.together, c.readers)
	c.newest = max(c.newest, fence)
	if c.writers > 0 || fence <= c.wrote {
		c.t.Errorf("reader with the fence %d beside %d writers, after %d", fence, c.writers, c.wrote)
	}
}

func (c *census) writer(fence uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writers++
	c.writes++
	if c.writers > 1 || c.readers > 0 || fence <= c.newest {
		c.t.Errorf("writer with the fence %d beside %d readers and %d writers, after %d", fence, c.readers, c.writers-1, c.newest)
	}
	c.newest, c.wrote = fence, fence
}

// downgrade is from a writer to a reader.
func (c *census) downgrade() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writers--
	c.readers++
}

func (c *census) left(readers, writers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readers -= readers
	c.writers -= writers
}

// work holds a lease for some time, or until it is over.
func work(l *hasp.Lease) {
	select {
	case <-time.After(rand.N(4 * time.Second)):
	case <-l.Done():
	}
}

// writes locks, and sometimes reads on.
func (c *census) writeOnce(ctx context.Context, m *hasp.RWMutex) {
	l, err := m.Lock(ctx)
	if err != nil {
		return
	}
	c.writer(l.Fence())
	work(l)
	if rand.N(3) > 0 || l.Err() != nil {
		c.left(0, 1)
		_ = l.Release()
		return
	}
	c.downgrade()
	_ = l.Downgrade(ctx) // of any outcome
	work(l)
	c.left(1, 0)
	_ = l.Release()
}

func (c *census) readOnce(ctx context.Context, m *hasp.RWMutex) {
	l, err := m.RLock(ctx)
	if err != nil {
		return
	}
	c.reader(l.Fence())
	work(l)
	c.left(1, 0)
	_ = l.Release()
}

// Readers and writers of many processes, while nodes are restarted, and hang or cannot
// be reached for some of them: never a writer beside another holder, and afterwards
// everybody has its turn.
func TestReadersAndWritersOverFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const span = 5 * time.Minute
		stores := newStores(t, 5)
		c := &census{t: t}
		ctx, cancel := context.WithTimeout(t.Context(), span)
		defer cancel()
		var links [][]*link
		var all sync.WaitGroup
		for i := range 12 {
			cl, ls := client(t, stores)
			links = append(links, ls)
			m := cl.RWMutex("k", &hasp.LockOptions{TTL: ruleTTL / 3})
			all.Go(func() {
				for ctx.Err() == nil {
					if i < 4 {
						c.writeOnce(ctx, m)
					} else {
						c.readOnce(ctx, m)
					}
					time.Sleep(rand.N(2 * time.Second))
				}
			})
		}
		for ctx.Err() == nil {
			i := rand.N(len(stores))
			j := (i + 1 + rand.N(len(stores)-1)) % len(stores)
			time.Sleep(rand.N(10 * time.Second))
			if rand.N(3) == 0 {
				stores[i].Restart(nil)
				time.Sleep(ruleTTL + 30*time.Second) // until it votes
				continue
			}
			var away []*link // of two nodes, for some clients each: they see the queue on different nodes
			for _, ls := range links {
				away = append(away, [][]*link{{ls[i]}, {ls[j]}, {ls[i], ls[j]}, nil}[rand.N(4)]...)
			}
			hangs := rand.N(2) == 0
			for _, l := range away {
				if hangs {
					l.stop()
				} else {
					l.fail(errGone)
				}
			}
			time.Sleep(rand.N(15 * time.Second))
			for _, l := range away {
				if hangs {
					l.cont()
				} else {
					l.fail(nil)
				}
			}
		}
		all.Wait()
		if c.reads < 50 || c.writes < 40 || c.together < 2 {
			t.Errorf("%d reads, %d at once, and %d writes in %v", c.reads, c.together, c.writes, span)
		}
		t.Logf("%d reads, %d at once, and %d writes in %v", c.reads, c.together, c.writes, span)
	})
}

// A writer waits for the readers that were there before it, however many come after.
func TestWriterUnderAStreamOfReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hold, step = 50 * time.Millisecond, 10 * time.Millisecond
		stores := newStores(t, 5)
		clients := make([]*hasp.Client, 5)
		for i := range clients {
			clients[i], _ = client(t, stores)
		}
		c := &census{t: t}
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * step)
				l, err := clients[i%4].RWMutex("k", nil).RLock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				c.reader(l.Fence())
				time.Sleep(hold)
				c.left(1, 0)
				check(t, l.Release())
			})
		}
		time.Sleep(30*step + step/2)
		begun := time.Now()
		l, err := clients[4].RWMutex("k", nil).Lock(t.Context())
		need(t, err)
		c.writer(l.Fence())
		took := time.Since(begun)
		failIf(t, took > 2*hold, "the writer waited %v for readers that stay for %v", took, hold)
		before := c.reads
		time.Sleep(hold)
		c.left(0, 1)
		check(t, l.Release())
		all.Wait()
		if before < 20 || before > 40 || c.reads != 100 {
			t.Errorf("%d readers came before the writer, and %d in all", before, c.reads)
		}
	})
}

// Those who share a key and came at one instant are listed in the order of their
// fences, however many of their votes are there.
func TestSharersOfOneInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 5)
		d, ts := warm(t, stores)
		for _, s := range ts[3:] {
			s.onTry(hangs)
		}
		a, b := ask("k"), ask("k")
		a.Mode, b.Mode = driver.Shared, driver.Shared
		mustTry(t, d, a)
		for _, s := range ts[3:] {
			s.onTry(nil)
		}
		mustTry(t, d, b)
		info, err := d.Inspect(t.Context(), "k")
		if err != nil || len(info.Holders) != 2 || info.Holders[0].Holder.Owner != a.Owner {
			t.Errorf("%+v, %v, want %s before %s", info.Holders, err, a.Owner, b.Owner)
		}
	})
}
