// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	sqldrv "database/sql/driver"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
)

// A spare is a connection of a bounded pool, kept for renewals and releases while a lease is held: the caller's own
// queries may have all others, and the lease stands. The first call that ends after a grant leaves its connection.
type spare struct {
	*pool
	closed *atomic.Bool
	free   chan *sql.Conn // has kept while no call uses it

	mu   sync.Mutex
	kept *sql.Conn                 // nil: none
	held map[driver.ID]*time.Timer // the leases, each forgotten at its end
}

// spares maps each pool to its spare: one, however many Servers use the pool.
var spares sync.Map

// spareOf is the least bound of a pool that a connection is kept of: what is done under a lease may need two or three at once,
// and would wait for the rest until the lease ends.
const spareOf = 4

// bounded says whether a pool has a connection to spare, and may run out of them.
func (p *spare) bounded() bool { return p.db.Stats().MaxOpenConnections >= spareOf }

// hold notes a lease that was granted or renewed.
func (p *spare) hold(id driver.ID, ttl time.Duration) {
	if !p.bounded() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() {
		return
	}
	if end := p.held[id]; end != nil {
		end.Reset(ttl)
	} else {
		p.held[id] = time.AfterFunc(ttl, func() { p.drop(id) })
	}
}

// renewed notes what came of a renewal.
func (p *spare) renewed(id driver.ID, r driver.Renewal) {
	switch {
	case errors.Is(r.Err, driver.ErrNotHeld):
		p.drop(id)
	case r.Err == nil && r.TTL > 0:
		p.hold(id, r.TTL)
	}
}

// drop forgets leases that are over. When none is left, the connection goes back to the pool.
func (p *spare) drop(ids ...driver.ID) {
	p.mu.Lock()
	for _, id := range ids {
		if end := p.held[id]; end != nil {
			end.Stop()
			delete(p.held, id)
		}
	}
	var unused *sql.Conn
	if len(p.held) == 0 {
		select {
		case unused = <-p.free:
			p.leave()
		default: // put sees it
		}
	}
	p.mu.Unlock()
	if unused != nil {
		_ = unused.Close()
	}
}

// close drops all.
func (p *spare) close() {
	p.mu.Lock()
	all := slices.Collect(maps.Keys(p.held))
	p.mu.Unlock()
	p.drop(all...)
}

// leave ends that a connection is kept.
func (p *spare) leave() {
	p.kept = nil
	spares.CompareAndDelete(p.db, p)
}

// put takes the connection of a call that has ended, or says that it is to go back to the pool. Of a pool that the
// caller closed meanwhile none is kept.
func (p *spare) put(c *sql.Conn, lost func() bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept != nil && p.kept != c {
		return false
	}
	if len(p.held) == 0 || !p.bounded() || lost() || poolClosed(p.db) {
		if p.kept != nil {
			p.leave()
		}
		return false
	}
	if by, _ := spares.LoadOrStore(p.db, p); by != p {
		return false
	}
	p.kept = c
	p.free <- c
	return true
}

// conn returns the connection that is kept, or one of the pool, whichever is free first.
func (p *spare) conn(ctx context.Context) (*sql.Conn, error) {
	p.mu.Lock()
	none := p.kept == nil
	p.mu.Unlock()
	if none {
		return p.db.Conn(ctx)
	}
	select {
	case c := <-p.free:
		return p.proven(ctx, c)
	default:
	}
	type answer struct {
		c   *sql.Conn
		err error
	}
	wait, stop := context.WithCancel(ctx)
	defer stop()
	pool := make(chan answer, 1)
	p.under.Go(func() {
		c, err := p.db.Conn(wait)
		pool <- answer{c, err}
	})
	select {
	case a := <-pool:
		return a.c, a.err
	case c := <-p.free:
		stop()
		p.under.Go(func() {
			if a := <-pool; a.err == nil {
				_ = a.c.Close()
			}
		})
		return p.proven(ctx, c)
	}
}

// proven returns the connection that was kept, or one of the pool where it is of no use any more: as the pool does
// before it gives one out, the driver is asked.
func (p *spare) proven(ctx context.Context, c *sql.Conn) (*sql.Conn, error) {
	err := c.Raw(func(conn any) error {
		if r, can := conn.(sqldrv.SessionResetter); can {
			return r.ResetSession(ctx)
		}
		return nil
	})
	if err == nil {
		return c, nil
	}
	p.mu.Lock()
	p.leave()
	p.mu.Unlock()
	_ = c.Close()
	return p.db.Conn(ctx)
}

// poolClosed says whether a pool was closed: it says so even to a request whose context is over.
func poolClosed(db *sql.DB) bool {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := db.Conn(over)
	return !errors.Is(err, context.Canceled)
}
