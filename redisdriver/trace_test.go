// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// steps is a trace that is played as it is written: each verb is carried out at once, for one
// owner after the other, by the driver that was named last. A step that fails logs its number.
type steps struct {
	*world
	d *Driver
	n int
}

// on begins a trace at d: w.on(d).grant(a).join(b).release(a).has(b).
func (w *world) on(d *Driver) *steps { return &steps{world: w, d: d} }

// on has d carry out the steps that follow.
func (s *steps) on(d *Driver) *steps { s.d = d; return s }

// step carries out one step.
func (s *steps) step(verb string, f func()) *steps {
	s.Helper()
	s.n++
	defer func(before bool) {
		if s.Helper(); s.Failed() && !before {
			s.Logf("step %d of the trace failed: %s", s.n, verb)
		}
	}(s.Failed())
	f()
	return s
}

// each carries out a step for each owner.
func (s *steps) each(verb string, rs []contend.Owner, f func(r contend.Owner)) *steps {
	s.Helper()
	for _, r := range rs {
		s.step(verb+" "+r.Owner, func() { s.Helper(); f(r) })
	}
	return s
}

func (s *steps) grant(rs ...contend.Owner) *steps {
	s.Helper()
	return s.each("grant", rs, func(r contend.Owner) { s.Helper(); s.world.grant(s.d, r) })
}

func (s *steps) claim(rs ...contend.Owner) *steps {
	s.Helper()
	return s.each("claim", rs, func(r contend.Owner) { s.Helper(); s.world.grant(s.d, queued(r)) })
}

func (s *steps) refuse(rs ...contend.Owner) *steps {
	s.Helper()
	return s.each("refuse", rs, func(r contend.Owner) { s.Helper(); s.world.refuse(s.d, r) })
}

func (s *steps) join(rs ...contend.Owner) *steps {
	s.Helper()
	return s.each("join", rs, func(r contend.Owner) { s.Helper(); s.world.refuse(s.d, queued(r)) })
}

func (s *steps) wait(rs ...contend.Owner) *steps {
	s.Helper()
	return s.each("wait", rs, func(r contend.Owner) { s.Helper(); s.world.wait(s.d, r) })
}

func (s *steps) release(rs ...contend.Owner) *steps {
	s.Helper()
	return s.each("release", rs, func(r contend.Owner) { s.Helper(); s.world.release(s.d, r) })
}

func (s *steps) has(rs ...contend.Owner) *steps {
	s.Helper()
	return s.each("has", rs, func(r contend.Owner) { s.Helper(); s.world.has(s.d, r) })
}

func (s *steps) renew(rs ...contend.Owner) *steps {
	s.Helper()
	return s.each("renew", rs, func(r contend.Owner) { s.Helper(); s.world.renewed(s.d, r) })
}

func (s *steps) do(args ...any) *steps {
	s.Helper()
	return s.step(fmt.Sprint(args...), func() { s.Helper(); s.world.do(args...) })
}

func (s *steps) hint(hints <-chan driver.Hint) *steps {
	s.Helper()
	return s.step("hint", func() { s.Helper(); s.world.hint(hints) })
}
