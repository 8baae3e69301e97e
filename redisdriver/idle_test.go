// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
)

// Whatever a key was used for, whichever of the keys beside it is lost, and for however long nobody uses the server
// then: the next client is granted the lock, with a larger fence, after one refusal for its proposal at most.
func TestIdleServer(t *testing.T) {
	for _, node := range []bool{false, true} {
		t.Run(fmt.Sprintf("node=%v", node), func(t *testing.T) {
			t.Parallel()
			w, step := clocked(t)
			x := &idler{world: w, node: node, step: step}
			for _, name := range slices.Sorted(maps.Keys(idleStates)) {
				x.build(idleStates[name])
				kinds := x.kinds()
				for _, lost := range append(kinds, "nothing", "all of them") {
					for _, gap := range []time.Duration{time.Hour, 13 * time.Hour, 25 * time.Hour, 8 * 24 * time.Hour, 60 * 24 * time.Hour} {
						x.build(idleStates[name])
						x.lose(lost)
						x.ahead += gap
						x.step(fmt.Sprintf("+%d", int(x.ahead.Seconds())))
						x.locks(fmt.Sprintf("%s, without %s, after %v", name, lost, gap))
						if lost != "nothing" && gap == 25*time.Hour {
							break // the longer ones differ where something is left
						}
					}
				}
			}
		})
	}
}

// idleStates are what clients that nobody hears of again leave behind.
var idleStates = map[string]func(x *idler){
	"held":     func(x *idler) { x.grants(x.ask()) },
	"released": func(x *idler) { a := x.ask(); x.grants(a); x.release(x.d, a) },
	"settled":  func(x *idler) { a := x.ask(); a.Settled = true; x.grants(a); x.release(x.d, a) },
	"waited for": func(x *idler) {
		x.grants(x.ask())
		x.wait(x.d, x.ask())
	},
	"handed off": func(x *idler) {
		a := x.ask()
		x.grants(a)
		x.wait(x.d, x.ask())
		x.release(x.d, a)
	},
	"shared": func(x *idler) {
		x.grants(x.shares(2))
		x.grants(x.shares(2))
		x.wait(x.d, x.ask())
	},
	"shared without a limit": func(x *idler) { x.grants(x.shares(0)); x.grants(x.shares(0)) },
}

// idler is a server that nobody uses for hours or days.
type idler struct {
	*world
	node   bool
	step   func(offset string)
	ahead  time.Duration
	serial int
	d      *Driver
	fence  uint64 // the largest of the key
}

// build has a new client use a new key, and vanish.
func (x *idler) build(state func(x *idler)) {
	x.Helper()
	x.serial++
	x.fence = 0
	if x.node {
		x.d = x.world.node()
		if err := (&Node{x.d}).Admit(x.ctx, x.record(x.d), nodeMaxTTL); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			x.Fatal(err)
		}
	} else {
		x.d = x.driver(nil)
	}
	state(x)
	must(x, x.d.Close())
}

func (x *idler) key() string { return fmt.Sprint("k", x.serial, "k") }

func (x *idler) ask() contend.Owner {
	r := ask(x.key())
	if x.node {
		r.Fence = x.micros()
	}
	return r
}

func (x *idler) shares(limit int) contend.Owner {
	r := x.ask()
	r.Mode, r.Limit = driver.Shared, limit
	return r
}

func (x *idler) grants(r contend.Owner) {
	x.Helper()
	res := x.try(x.d, r)
	if res.Why == voting.FenceTooLow {
		r.Fence = res.Fence + 1
		res = x.try(x.d, r)
	}
	if !res.Granted {
		x.Fatalf("%+v", res)
	}
	x.fence = max(x.fence, res.Fence)
}

// kinds are the kinds of all that the server has for the key and for itself, but its record: without that it does not vote.
func (x *idler) kinds() (all []string) {
	for _, key := range x.keys() {
		kind, of, _ := strings.Cut(key, ":")
		if key != recordKey && (of == "" || strings.Contains(of, x.key())) {
			all = append(all, kind)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (x *idler) lose(what string) {
	for _, key := range x.keys() {
		kind, of, _ := strings.Cut(key, ":")
		if key != recordKey && (what == "all of them" || kind == what && (of == "" || strings.Contains(of, x.key()))) {
			x.do("DEL", key)
		}
	}
}

// locks has a new client lock the key, whose clock is a little behind.
func (x *idler) locks(when string) {
	x.Helper()
	d := x.driver(nil)
	if x.node {
		d = x.world.node()
	}
	r := x.ask()
	if x.node {
		r.Fence -= 1_000_000
	}
	res := x.try(d, r)
	if res.Why == voting.FenceTooLow {
		if res.Fence < x.fence {
			x.Errorf("%s: the floor is %d, granted was %d", when, res.Fence, x.fence)
		}
		r.Fence = res.Fence + 1
		res = x.try(d, r)
	}
	if !res.Granted || res.Fence <= x.fence {
		x.Errorf("%s: %+v, the last fence was %d", when, res, x.fence)
	}
	if err := d.Close(); err != nil {
		x.Error(err)
	}
}
