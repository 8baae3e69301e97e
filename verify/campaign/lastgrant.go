// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hasplock/hasp/internal/player"
)

const (
	// lagKey is the key whose last grant a failover loses: its master is the leader.
	lagKey = "k0"
	// quietKey is what clients ask for while all other keys are to be free.
	quietKey = "quiet"
	// shortHold is the longest of most holds.
	shortHold = 40 * time.Millisecond
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
