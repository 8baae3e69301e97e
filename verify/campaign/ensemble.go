// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/engines"
)

// ensemble is the servers of another engine, each behind a link for each client.
type ensemble struct {
	t     *testserver.Program
	store *engines.Store
	links [clients][]*faultproxy.Proxy
	near  *engines.Conn // of the operator, behind no link

	victim map[Kind]int                        // the server that has the fault
	gates  map[*faultproxy.Proxy]chan struct{} // closed to deliver what is held back
	taken  []takenAway
	last   lastGrant
	stage  *player.Stage // of the clients
}

// takenAway is a lease that was taken away from its holder.
type takenAway struct {
	key   string
	fence uint64
	at    Mono // when that was done
}

func newEnsemble(t *testserver.Program, k engines.Kind) *ensemble {
	e := &ensemble{t: t, store: engines.Start(t, k), victim: map[Kind]int{}, gates: map[*faultproxy.Proxy]chan struct{}{}}
	for c := range e.links {
		e.links[c] = e.store.Links(t)
	}
	t.Cleanup(e.deliver) // or the links would not end
	var err error
	e.near, err = engines.Open(k, e.store.Addrs())
	t.Must(err)
	t.Cleanup(func() { _ = e.near.Close() }) // its servers may be gone
	return e
}

func (e *ensemble) addrs(client int) []string { return e.store.Through(e.links[client]) }

// link begins or ends a fault of a client's link to a server. A link that lost something is reset in the end:
// TCP leaves nothing out.
func (e *ensemble) link(a Action, node int) {
	l := e.links[a.Client][node]
	if a.Part == Begin {
		e.cut(l, a)
		return
	}
	switch a.Kind {
	case Hold:
		close(e.gates[l])
		delete(e.gates, l)
		l.Hook(nil)
	case Delay:
		l.Clear()
	default:
		l.Reconnect()
	}
}

func (e *ensemble) cut(l *faultproxy.Proxy, a Action) {
	if a.Kind != Hold {
		disturb(l, a)
		return
	}
	gate := make(chan struct{})
	e.gates[l] = gate
	l.Hook(func(c faultproxy.Chunk) bool {
		if c.Dir == faultproxy.Up {
			<-gate
		}
		return false
	})
}

// deliver delivers all that is held back.
func (e *ensemble) deliver() {
	for l, gate := range e.gates {
		close(gate)
		delete(e.gates, l)
	}
}

func (e *ensemble) play(a Action) {
	ctx, cancel := context.WithTimeout(e.t.Context(), commandLimit)
	defer cancel()
	switch a.Kind {
	case Break, Revoke:
		e.take(ctx, a.Kind)
	case Terminate:
		e.t.Must(e.store.Terminate(ctx))
	case Switch:
		e.store.Failover()
	case Reshard:
		e.store.Reshard(func(int) { time.Sleep(reshardStep) })
		e.store.Settle()
	default:
		if a.Part == Begin {
			e.choose(a.Kind)
		}
		e.fault(a, e.victim[a.Kind])
		if a.Part == End {
			e.store.Settle()
		}
	}
}

// reshardStep is how long a slot stays as it is at each step of its way.
const reshardStep = 100 * time.Millisecond

// choose picks the server for a fault.
func (e *ensemble) choose(k Kind) {
	switch k {
	case KillFollower, StopFollower, CutFollower:
		e.victim[k] = e.store.Follower()
	default:
		e.victim[k] = e.store.Leader()
	}
}

func (e *ensemble) fault(a Action, n int) {
	s, begin := e.store.Servers[n], a.Part == Begin
	switch a.Kind {
	case CutMaster:
		e.store.Cut(n, begin)
		for c := range e.links {
			for i := range e.links[c] {
				if (c%2 == 0) != (i == n) {
					e.link(Action{Kind: a.Kind, Part: a.Part, Client: c}, i)
				}
			}
		}
	case KillLagging:
		if begin {
			e.killLagging(n, a)
		} else {
			e.restartLagging(n, a)
		}
	case StopNode, StopLeader, StopFollower:
		if begin {
			s.Stop()
		} else {
			s.Cont()
		}
	case CutLeader, CutFollower:
		e.store.Cut(n, begin)
	default:
		if begin {
			s.Kill()
		} else {
			s.Restart()
		}
	}
}

// take takes the leases of all holders away: an operator breaks them, or etcd's leases are revoked. A fault at the
// same time may keep that from happening.
func (e *ensemble) take(ctx context.Context, k Kind) {
	var held []takenAway
	var claims []driver.Claim
	for i := range keys {
		info, err := e.near.Inspect(ctx, fmt.Sprintf("k%d", i))
		if err != nil {
			return
		}
		for _, l := range info.Holders {
			h := l.Holder
			held = append(held, takenAway{key: info.Key, fence: l.Fence})
			claims = append(claims, driver.Claim{Key: info.Key, Owner: h.Owner, Label: h.Label, Mode: h.Mode, Limit: h.Limit})
		}
	}
	if k == Revoke {
		if e.store.Revoke(ctx) != nil {
			return
		}
		for i := range held {
			held[i].at = now()
		}
		e.taken = append(e.taken, held...)
		return
	}
	var all sync.WaitGroup
	for i, c := range claims {
		all.Go(func() {
			err := e.near.Release(ctx, driver.ReleaseRequest{Claim: c, TTL: commandLimit, End: driver.EndUnfinished})
			if err == nil { // otherwise the lease had ended, or the outcome is unknown
				held[i].at = now()
			}
		})
	}
	all.Wait()
	for _, h := range held {
		if h.at != 0 {
			e.taken = append(e.taken, h)
		}
	}
}

const (
	// lagKey is the key whose last grant a failover loses: its master is the leader.
	lagKey = "k0"
	// quietKey is what clients ask for while all other keys are to be free.
	quietKey = "quiet"
	// overtaken is How of KillLagging: the replicas know all keys as free before they lag, and the holder of the last grant stands
	// still until another client has the key.
	overtaken = "until its holder is overtaken"
)

// lastGrant is what a master grants while its replicas receive nothing. It is for where clients are heard. The zero value looks for nothing.
type lastGrant struct {
	quiet   bool           // clients ask for quietKey
	due     bool           // the next order is of a long hold of lagKey
	pauses  bool           // its holder is to stand still until another client has the key
	from    Mono           // since when the replicas receive nothing; 0: they do
	holder  *player.Member // that was granted the key for longer than a short hold since then; nil: none was
	fence   uint64         // of its hold
	killed  Mono           // when the master was killed; 0: it runs
	another bool           // another client has had the key since, with a larger fence
}

// hear notes which clients have the key, before they are answered: the holder is stopped before it knows what it is to change, and
// goes on once the register is sure to refuse that.
func (g *lastGrant) hear(m *player.Member, e *player.Event) {
	if g.from == 0 || e.What != player.Read || e.Key != lagKey {
		return
	}
	switch {
	case g.killed != 0:
		if e.At > g.killed && e.Fence > g.fence && !g.another {
			g.another = true
			g.resume()
		}
	case g.holder == nil && !e.Shared && m.Order.Hold > shortHold && len(m.Open) == 1 && Mono(m.Open[0].Granted) > g.from:
		if g.holder, g.fence = m, e.Fence; g.pauses {
			_ = m.Pause() // fails only when it is gone
		}
	}
}

// resume lets the holder go on.
func (g *lastGrant) resume() {
	if g.pauses && g.holder != nil {
		_ = g.holder.Resume() // fails only when it is gone
	}
}

// aim changes the next order of a client, where it matters which key is asked for.
func (g *lastGrant) aim(o player.Order, longest time.Duration) player.Order {
	switch {
	case g.quiet:
		o.Wants[0].Key = quietKey
	case g.due:
		g.due = false
		return player.Order{Wants: []player.Want{{Key: lagKey}}, Hold: longest}
	}
	return o
}

// killLagging kills a master right after a grant that its replicas lack, or when a limit has passed.
func (e *ensemble) killLagging(n int, a Action) {
	s, g := e.store.Servers[n], &e.last
	e.stage.Do(func() { *g = lastGrant{quiet: a.How == overtaken, pauses: a.How == overtaken} })
	if a.How == overtaken {
		e.awaitFree()
		s.AwaitReplicas()
	}
	e.store.Lag(n, true)
	e.stage.Do(func() { g.from, g.due, g.quiet = now(), g.quiet, false })
	e.stage.Await(a.By, func() bool { return g.holder != nil })
	s.Kill()
	e.store.Lag(n, false)
	e.stage.Do(func() { g.killed = now() })
}

// awaitFree returns once clients ask for no key but quietKey, and the store has no other; or when it takes too long.
func (e *ensemble) awaitFree() {
	e.stage.Await(hangLimit, func() bool {
		return !slices.ContainsFunc(e.stage.All, func(m *player.Member) bool {
			return !m.Left && len(m.Order.Wants) > 0 && m.Order.Wants[0].Key != quietKey
		})
	})
	ctx, cancel := context.WithTimeout(e.t.Context(), hangLimit)
	defer cancel()
	for i := range keys {
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			if info, err := e.near.Inspect(ctx, fmt.Sprintf("k%d", i)); err == nil && len(info.Holders) == 0 && info.Waiters == 0 {
				break
			}
		}
	}
}

// restartLagging starts the killed master again, once another client was granted the key, if its holder stands still until then.
func (e *ensemble) restartLagging(n int, a Action) {
	g := &e.last
	if a.How == overtaken && !e.stage.Await(hangLimit, func() bool { return g.another }) {
		e.stage.Do(g.resume)
	}
	e.stage.Do(func() { *g = lastGrant{} })
	e.store.Servers[n].Restart()
}
