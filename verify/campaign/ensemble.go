// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"fmt"
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
