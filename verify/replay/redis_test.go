// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/verify/model"
)

// TestOnRedis plays the stories whose rule belongs to a node, and which take no time,
// on three real servers: as built, and with the safeguard undone.
func TestOnRedis(t *testing.T) {
	servers := make([]*redisNode, nodes)
	for i := range servers {
		servers[i] = newRedisNode(t, 2*long)
	}
	play := func(t *testing.T, s model.Trace, r rules) outcome {
		w := newWorld(t, s, r, 1, func(i int, maxTTL time.Duration) node { return servers[i].again(t, maxTTL) })
		p := newMessages(w)
		w.starts()
		w.play(p)
		return outcome{w.leave, w.judge.wrong}
	}
	all := stories(t)
	for _, r := range replays {
		if !r.redis {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			r.judge(t, all[r.name], rules{}, play)
			if r.undo != nil {
				r.comesTrue(t, all[r.name], play)
			}
		})
	}
	// This is a limit of Redis, and not of nodes in memory. The test does to the server
	// what its clock would.
	t.Run("floor/a clock that goes and comes back", func(t *testing.T) {
		s := all["floor/a clock that goes and comes back"]
		n := servers[0].again(t, floorTTL)
		n.stuck = true
		m := &memory{t: t, n: n, seen: n}
		m.admit()
		m.play(s)
		if m.out.wrong != s.Wrong || len(m.out.leaves) > 0 {
			t.Errorf("in the end: %q, %q, want %q", m.out.leaves, m.out.wrong, s.Wrong)
		}
	})
}
