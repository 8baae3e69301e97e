// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
)

// An actor sends its requests to the server one by one, each when it is told to.
type actor struct {
	name    string
	s       *Server
	arrived chan struct{}
	next    chan struct{}
	over    chan struct{}
	waits   bool // a request of its is before the gate
	done    bool
}

func (d database) actor(t testing.TB, name string) *actor {
	t.Helper()
	far, p := d.through(t)
	db := far.pool(t)
	db.SetMaxOpenConns(1)
	db.SetConnMaxIdleTime(0)
	a := &actor{name: name, s: far.wrap(db), arrived: make(chan struct{}), next: make(chan struct{})}
	a.s.sweep.running = true // nothing but what it is told
	_, err := a.s.Inspect(t.Context(), "warm")
	must(t, err)
	p.Hook(func(c faultproxy.Chunk) bool {
		if c.Dir == faultproxy.Up {
			a.arrived <- struct{}{}
			<-a.next
		}
		return false
	})
	t.Cleanup(func() { p.Hook(nil) })
	return a
}

// begin starts what the actor does, up to its first request.
func (a *actor) begin(f func()) {
	a.waits, a.done, a.over = false, false, make(chan struct{})
	go func() {
		defer close(a.over)
		f()
	}()
	a.settle(time.Minute)
}

// settle waits until the actor has another request, or is done, or seems to wait for a row.
func (a *actor) settle(limit time.Duration) {
	select {
	case <-a.arrived:
		a.waits = true
	case <-a.over:
		a.done = true
	case <-time.After(limit):
	}
}

// step has the actor send its request.
func (a *actor) step() {
	if a.done {
		return
	}
	if a.waits {
		a.waits = false
		a.next <- struct{}{}
	}
	a.settle(20 * time.Millisecond)
}

// Rule: however a sweep, a grant and a step of the server's clock by eight hours and back come in between each other, a
// key that is held has its fence, which is larger than any before.
func TestSweepBesideAStep(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]struct {
		start func(testing.TB, []string, ...string) *testserver.Server
		empty func(testing.TB, *testserver.Server) database
	}{
		"Postgres": {testserver.PostgresIn, newPostgres},
		"MySQL":    {testserver.MariaDBIn, newMySQL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := testserver.NewClock(t)
			d := kind.empty(t, kind.start(t, clock.Env()))
			near, db := d.open(t), d.pool(t)
			grants, sweeps := d.actor(t, "grant"), d.actor(t, "sweep")
			newest := uint64(0)
			for seed := range uint64(200) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				clock.Step(0)
				key := fmt.Sprint("k", rnd.IntN(3))
				note := func(res driver.Result, err error) {
					failIf(t, err != nil, "seed %d: %v", seed, err)
					if res.Granted && res.Fence <= newest {
						t.Errorf("seed %d: the fence %d was granted after %d", seed, res.Fence, newest)
					}
					newest = max(newest, res.Fence)
				}
				run(t, db, "DELETE FROM hasp_lease")
				run(t, db, "DELETE FROM hasp_key")
				if !d.postgres() {
					run(t, db, fmt.Sprintf("UPDATE hasp_meta SET fence = GREATEST(fence, %d)", newest)) // as a sweep does
				}
				before := settled(request(key))
				switch rnd.IntN(4) {
				case 0: // a key that nobody knows
				case 1:
					note(contend.Try(t.Context(), near, before))
					must(t, contend.Release(t.Context(), near, before))
				case 2:
					note(contend.Try(t.Context(), near, before))
				case 3:
					note(contend.Try(t.Context(), near, before))
					before.Settled = false
					must(t, contend.Release(t.Context(), near, before))
				}
				r := request(key)
				switch rnd.IntN(3) {
				case 1:
					r = queued(r)
				case 2:
					r.Mode, r.Limit = driver.Shared, rnd.IntN(2)
				}
				near.under.Wait()
				grants.begin(func() { note(contend.Try(context.Background(), grants.s, r)) })
				sweeps.begin(func() {
					_, _ = sweeps.s.once(context.Background(), sweeps.s.db.Conn, func(c *conn) error { return c.sweep(8) })
				})
				ahead := false
				for n := 0; !grants.done || !sweeps.done; n++ {
					switch at := rnd.IntN(6); {
					case at == 0:
						ahead = !ahead
						clock.Step(map[bool]time.Duration{true: 8 * time.Hour}[ahead])
					case at < 4:
						grants.step()
					default:
						sweeps.step()
					}
					if n := number(t, db, "SELECT COUNT(*) FROM hasp_key WHERE held = 1 AND fence = 0"); n != 0 {
						t.Fatalf("seed %d: the row of a held key has no fence", seed)
					}
				}
				<-grants.over
			}
		})
	}
}
