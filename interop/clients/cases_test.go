// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clients

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

const (
	longTTL  = 30 * time.Second // nothing ends by itself
	shortTTL = 2 * time.Second  // of the holder that is killed or stopped
)

// directions: hasp is first and the other client second, and the other way round.
var directions = [...]bool{false, true}

// outcome is what came of a row's cases, by direction.
type outcome struct {
	wakes    [2][]time.Duration // from an unlock to the lock of the waiter
	killed   [2]time.Duration   // from the kill of the holder
	stopped  [2]time.Duration   // from the stop of the holder
	believed [2]string          // what the holder that was stopped says of itself when it goes on
	late     [2]string          // what its client says of its late unlock
	counted  [2]int64           // by hasp, and by the other client
}

// trial is the rows of one program on one server, with a process of each side that nothing happens to.
type trial struct {
	*testing.T
	program      *program
	server       *testserver.Server
	rdb          *redis.Client
	ours, theirs *peer
	rows         []row
	got          map[string]*outcome // by lock
}

func newTrial(t *testing.T, p *program) *trial {
	s := testserver.Redis(t)
	x := &trial{T: t, program: p, server: s, rows: of(p), got: make(map[string]*outcome)}
	x.rdb = redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { x.rdb.Close() })
	x.theirs = start(t, p, longTTL, s.Addr())
	x.ours = start(t, haspPeer, longTTL, s.Addr())
	for _, r := range x.rows {
		x.got[r.client+r.lock] = &outcome{}
	}
	return x
}

func (x *trial) outcome(r row) *outcome { return x.got[r.client+r.lock] }

// wake: while the first holds the lock the second is refused, and waits until the first unlocks.
func (x *trial) wake(rounds int) {
	m := watch(x, x.server)
	for i, r := range x.rows {
		for d, theirsFirst := range directions {
			a, b := r.sides(x.ours, x.theirs, theirsFirst)
			key := r.key(fmt.Sprintf("wake.%d.%d", i, d))
			for round := range rounds {
				took := handoff(x, m, a, b, key, round == 0)
				x.outcome(r).wakes[d] = append(x.outcome(r).wakes[d], took)
			}
			x.Logf("%s, %s: %s after %s: median %v of %v", r.client, r.lock, b.peer.name, a.peer.name, median(x.outcome(r).wakes[d]), x.outcome(r).wakes[d])
		}
	}
}

// handoff is one unlock of the first for which the second waits.
func handoff(t testing.TB, m *monitor, a, b side, key string, alsoTry bool) time.Duration {
	t.Helper()
	l := a.locks("a", a.hold, a.name(key), soon/2)
	if alsoTry {
		b.refused("try", b.wait, b.name(key))
	}
	m.mark()
	next := b.asks("b", b.wait, b.name(key), soon)
	m.waits(b.wait, key)
	next.quiet()
	left := l.unlock()
	next.granted().unlock()
	return since(left, next.at)
}

// victims are the rows' locks held by a process that something will happen to, and asked for by one that waits for them.
type victims struct {
	*trial
	direction int
	victim    *peer
	sides     [][2]side // by row: who holds, who waits
	keys      []string
	held, got []*lease
}

// victims has a process of one side hold all rows' locks, and the other side wait.
func (x *trial) victims(name string, direction int) *victims {
	x.Helper()
	v := &victims{trial: x, direction: direction}
	theirsFirst := directions[direction]
	ours, theirs := x.ours, x.theirs
	if theirsFirst {
		v.victim = start(x, x.program, shortTTL, x.server.Addr())
		theirs = v.victim
	} else {
		v.victim = start(x, haspPeer, shortTTL, x.server.Addr())
		ours = v.victim
	}
	for i, r := range x.rows {
		a, b := r.sides(ours, theirs, theirsFirst)
		v.sides = append(v.sides, [2]side{a, b})
		v.keys = append(v.keys, r.key(fmt.Sprintf("%s.%d.%d", name, i, direction)))
		v.held = append(v.held, a.asks(thread(i), a.hold, a.name(v.keys[i]), 0))
	}
	for i, s := range v.sides {
		v.held[i].granted()
		v.got = append(v.got, s[1].asks(thread(i), s[1].wait, s[1].name(v.keys[i]), soon))
	}
	return v
}

func thread(row int) string { return fmt.Sprintf("t%d", row) }

// grants are when the waiters have the locks.
func (v *victims) grants(from int64) (took []time.Duration) {
	v.Helper()
	for _, l := range v.got {
		took = append(took, since(from, l.granted().at))
	}
	return took
}

// unlocks has the waiters give the locks back: they must have had them.
func (v *victims) unlocks() {
	v.Helper()
	for _, l := range v.got {
		l.unlock()
	}
}

// killed: the locks of a process that was killed end with its TTL.
func (x *trial) killed() {
	for d := range directions {
		v := x.victims("killed", d)
		v.victim.kill()
		took := v.grants(wall())
		for i, r := range x.rows {
			x.outcome(r).killed[d] = took[i]
		}
		v.unlocks()
		x.Logf("after the kill of %s: %v", v.victim.name, took)
	}
}

// stopped: the locks of a process that stands still end with its TTL, and what it does when it goes on takes nothing from the next.
func (x *trial) stopped() {
	for d := range directions {
		v := x.victims("stopped", d)
		v.victim.stop()
		took := v.grants(wall())
		v.victim.cont()
		for i, r := range x.rows {
			a, b, o := v.sides[i][0], v.sides[i][1], x.outcome(r)
			o.stopped[d], o.believed[d] = took[i], v.held[i].tells("status", thread(i), "held")
			o.late[d] = v.held[i].tells("release", thread(i), "unlocked")
			if b.wait != "read" { // or others may read, too
				a.refused("third", a.wait, a.name(v.keys[i]))
			}
			if got := v.got[i].tells("status", thread(i), "held"); got == "lost" {
				x.Errorf("%s, %s: the second holder says %q after the late unlock", r.client, r.lock, got)
			}
			x.Logf("%s, %s: %s was stopped; after %v the other has it; it says %q, and of its late unlock %q", r.client, r.lock, a.peer.name, took[i],
				o.believed[d], o.late[d])
		}
		v.unlocks()
		v.victim.kill()
	}
}

// count: two threads of each side add to one number under the lock, and none of what they add is lost.
func (x *trial) count(limit time.Duration) {
	for i, r := range x.rows {
		if r.ours.hold != r.ours.wait {
			continue
		}
		key, number := r.key(fmt.Sprintf("count.%d", i)), fmt.Sprintf("number.%d", i)
		var counted [2]atomic.Int64
		a, b := r.sides(x.ours, x.theirs, false)
		both := []side{a, b}
		together(x, []member{{a.peer, "0"}, {b.peer, "0"}, {a.peer, "1"}, {b.peer, "1"}}, math.MaxInt, limit, func(i int, m member) error {
			s := both[i%2]
			counted[i%2].Add(1)
			return s.under(m.thread, s.hold, s.name(key), func(*lease) error { return add(x.Context(), x.rdb, number) })
		})
		x.outcome(r).counted = [2]int64{counted[0].Load(), counted[1].Load()}
		got, err := x.rdb.Get(x.Context(), number).Int64()
		if c := x.outcome(r).counted; err != nil || got != c[0]+c[1] {
			x.Errorf("%s, %s: the number is %d, but hasp added %d and the other %d: %v", r.client, r.lock, got, c[0], c[1], err)
		} else {
			x.Logf("%s, %s: hasp added %d and the other %d", r.client, r.lock, c[0], c[1])
		}
	}
}

// add adds 1 to a number, by GET and SET.
func add(ctx context.Context, rdb *redis.Client, number string) error {
	n, err := rdb.Get(ctx, number).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return rdb.Set(ctx, number, n+1, 0).Err()
}
