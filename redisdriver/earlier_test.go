// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
	"github.com/redis/go-redis/v9"
)

// earlier is a hook by which a client runs the scripts of an earlier build, which testdata keeps, instead of today's. Where today's want
// other arguments, it is here that they are translated.
type earlier struct {
	instead map[string]string // by what EVALSHA and EVAL are called with today
	today   func() bool       // whether the next command has today's
}

func (e earlier) change(cmd redis.Cmder) {
	args := cmd.Args()
	if name, _ := args[0].(string); name != "evalsha" && name != "eval" || e.today() {
		return
	}
	if was, ok := e.instead[args[1].(string)]; ok {
		args[1] = was
	}
}

// allKeys gives an earlier extend.lua what today's is not given for most leases, grants and the keys of shared ones, and takes out the count.
const allKeys = `local n, last = tonumber(table.remove(ARGV, 2)), KEYS[#KEYS] == 'hasp.node' and table.remove(KEYS)
for i = 1, #KEYS == 2 * n and n or 0 do KEYS[2 * n + i], KEYS[n + i] = KEYS[n + i], string.gsub(KEYS[n + i], 'queue', 'grant', 1) .. '' end
for _, part in ipairs(#KEYS == 3 * n and {'shares', 'held', 'room'} or {}) do
  for i = 1, n do KEYS[#KEYS + 1] = string.gsub(KEYS[n + i], 'grant', part, 1) .. '' end
end
if last then KEYS[#KEYS + 1] = last end
`

// builds runs f for each earlier build that shares the layout: with a client of it, or one of both, by chance.
func builds(t *testing.T, f func(t *testing.T, client func(w *world, mixed bool) *redis.Client)) {
	dirs, err := filepath.Glob("testdata/layout*")
	stopIf(t, err != nil || len(dirs) == 0, "there are no earlier builds: %v", err)
	for _, dir := range dirs {
		instead := map[string]string{}
		for name, script := range allScripts {
			now := script.Text()
			text, err := os.ReadFile(filepath.Join(dir, name+".lua"))
			if os.IsNotExist(err) {
				continue // that build had none
			}
			must(t, err)
			was := strings.NewReplacer(
				"KEYS[2], 0, 103)", "KEYS[2], 0, 58)", // it showed more of a grant
				"return {fence}", "return fence", "return {1}", "return 1", "return {run()}", "return run()", // what came alone was in a list
			).Replace(string(text))
			if strings.HasPrefix(name, "extend") {
				was = allKeys + was
			}
			instead[now] = was
			instead[redis.NewScript(now).Hash()] = redis.NewScript(was).Hash()
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			f(t, func(w *world, mixed bool) *redis.Client {
				c := w.client(nil)
				c.AddHook(edit(earlier{instead, func() bool { return mixed && rand.IntN(2) == 0 }}.change))
				return c
			})
		})
	}
}

// Whatever the requests, and whichever build asks, each gets the answer of the reference engine: nothing of the one's is damage to the
// other.
func TestEarlierBuildsAgree(t *testing.T) {
	t.Parallel()
	builds(t, func(t *testing.T, client func(*world, bool) *redis.Client) {
		for _, node := range []bool{false, true} {
			w, clock := frozen(t)
			d := w.over(client(w, true), nil)
			if node {
				d = w.nodeOver(client(w, true), nodeMaxTTL)
			}
			for range 30 {
				seed := rand.Uint64()
				w.do("FLUSHALL")
				if node {
					w.admit(d)
				}
				if !t.Run(fmt.Sprint(node, seed), func(t *testing.T) {
					w.compare(t, d, memdriver.NewNode(memdriver.NodeOptions{Now: clock.now}), node, seed)
				}) {
					return
				}
			}
		}
	})
}

// Waiters of two builds take turns in the order in which they came, whoever hands over, each time round: none loses its place, one
// holds at a time, fences rise, and what enters on a message does.
func TestEarlierBuildsShareFairly(t *testing.T) {
	t.Parallel()
	builds(t, func(t *testing.T, client func(*world, bool) *redis.Client) {
		w := newWorld(t)
		const waiters, rounds = 12, 4
		type waiter struct {
			d *Driver
			contend.Owner
			hints <-chan driver.Hint
			turns int
		}
		ds := []*Driver{w.driver(nil), w.over(client(w, false), nil), w.over(client(w, false), nil), w.driver(nil)}
		join := func(d *Driver, turns int) *waiter {
			r := ask("k")
			r.Enters = rand.IntN(2) == 0
			x := &waiter{d: d, Owner: r, turns: turns}
			x.hints = w.wait(d, r)
			return x
		}
		holder := &waiter{d: ds[0], Owner: ask("k")}
		last := w.grant(holder.d, holder.Owner).Fence
		var queue []*waiter
		for i := range waiters {
			queue = append(queue, join(ds[i%len(ds)], 0))
		}
		for range waiters * rounds {
			next := queue[0]
			queue = queue[1:]
			w.release(holder.d, holder.Owner)
			if to := w.hint(next.hints); to.Fence != 0 && next.Enters { // its renewal claims the lease
				entered := next.Owner
				entered.Entered, entered.Fence = true, to.Fence
				w.renewed(next.d, entered)
			}
			res := w.grant(next.d, queued(next.Owner))
			stopIf(t, res.Fence <= last, "fence %d after %d", res.Fence, last)
			last = res.Fence
			for _, d := range ds[:2] {
				res, n := w.refuse(d, ask("k")), w.inspect(d, "k").Waiters
				stopIf(t, res.Holder.Owner != next.Owner.Owner, "%s holds, and a newcomer is told of %s", next.Owner.Owner, res.Holder.Owner)
				stopIf(t, n != len(queue), "%d wait, not %d", n, len(queue))
			}
			next.turns++
			w.renewed(next.d, next.Owner, queued(queue[0].Owner))
			holder = next
			queue = append(queue, join(next.d, next.turns))
		}
		for _, x := range queue {
			failIf(t, x.turns != rounds, "a waiter had %d turns, not %d", x.turns, rounds)
		}
	})
}
