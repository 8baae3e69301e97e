// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"time"

	"github.com/hasplock/hasp/internal/history"
)

// book is what a run has recorded.
type book struct {
	Counts
	holds     []*history.Hold
	registers map[string]*register
	bare      bool      // leases have no fences
	base      time.Time // what the shared clock counts from, on the wall clock
	found     []string  // rules that were broken
	again     map[string]bool
	over      Mono // when the last fault had ended; 0: not yet
	back      Mono // the latest of the first grants since, over the keys

	silent  int    // failures by trouble since the latest grant
	trouble *event // the latest of them
}

// Counts are the numbers of what happened in a run.
type Counts struct {
	Granted   int `json:"granted"`
	Shared    int `json:"shared"`    // of the granted: to read, beside others
	Waited    int `json:"waited"`    // of the granted: the key was not free at once
	Cancelled int `json:"cancelled"` // waits
	Failed    int `json:"failed"`    // waits that ended with trouble of the store
	Killed    int `json:"killed"`    // clients
	Stopped   int `json:"stopped"`   // clients, beyond any deadline
	Expired   int `json:"expired"`   // leases that expired while their holder was stopped
	Refused   int `json:"refused"`   // requests that the register refused by their fence

	// Troubles counts the errors of waits and releases by their kind: the class of
	// hasp.Error, or not-held for a key that was gone at its release.
	Troubles map[string]int `json:"troubles,omitempty"`
}

func newBook(bare bool) *book {
	return &book{bare: bare, Counts: Counts{Troubles: map[string]int{}}, registers: map[string]*register{}, again: map[string]bool{},
		base: time.Now().Add(-time.Duration(now()))}
}

// wall is an instant of the shared clock on the wall clock.
func (b *book) wall(m Mono) time.Time { return b.base.Add(time.Duration(m)).Round(0) }

// add records what a worker said. It returns the answer, if there is one.
func (b *book) add(m *member, e *event) (answer *order) {
	switch e.What {
	case asked:
		m.asked = e.At
	case failed:
		if e.Kind == cancelled {
			b.Cancelled++
			break
		}
		b.Failed++
		b.Troubles[e.Kind]++
		b.silent++
		b.trouble = e
	case granted:
		b.grant(m, e)
	case renewed:
		if m.hold != nil {
			m.hold.To = later(m.hold.To, b.wall(e.Deadline))
		}
	case read, write, look:
		if b.bare {
			return &order{}
		}
		return b.register(m.key).serve(b, m, e)
	case ended:
		b.end(m, e)
	case released:
		switch {
		case e.Err == "":
		case e.Kind == expired, e.Kind == NotHeld && e.At >= e.Deadline:
			b.Expired++
		default:
			b.Troubles[e.Kind]++
		}
	}
	return nil
}

func (b *book) grant(m *member, e *event) {
	b.Granted++
	b.silent = 0
	if m.shared {
		b.Shared++
	}
	if e.Waited {
		b.Waited++
	}
	m.hold = &history.Hold{Key: m.key, Owner: m.String(), Fence: e.Fence, Shared: m.shared,
		From: b.wall(e.At), To: b.wall(e.Deadline), Asked: int64(m.asked), Granted: int64(e.At)}
	b.holds = append(b.holds, m.hold)
	// One who writes, and asked since: where they queue, the places of the dead before it have ended, too.
	if b.over != 0 && m.asked > b.over && !m.shared && !b.again[m.key] {
		b.again[m.key] = true
		b.back = max(b.back, e.At)
	}
}

func (b *book) end(m *member, e *event) {
	if m.hold == nil { // a worker that makes no sense
		return
	}
	m.hold.To = earlier(b.wall(e.At), b.wall(e.Deadline))
	m.hold = nil
	switch {
	case !e.Lost:
	case e.Kind == NotHeld && e.At < e.Deadline:
		fence := ""
		if !b.bare {
			fence = fmt.Sprintf(", which has fence %d", e.Fence)
		}
		b.broken("%q was taken from %v%s, %v before its deadline", m.key, m, fence, e.Deadline.sub(e.At).Round(time.Millisecond))
	default:
		b.Expired++
	}
}

// broken records that a rule was broken.
func (b *book) broken(format string, args ...any) {
	b.found = append(b.found, fmt.Sprintf(format, args...))
}

func (b *book) register(key string) *register {
	if b.registers[key] == nil {
		b.registers[key] = &register{}
	}
	return b.registers[key]
}

// register is what a lock protects: a number that each holder reads, and sets to
// one more, or reads twice. It remembers the largest fence that it saw, and refuses
// smaller ones; one that reads, only those that are smaller than a writer's: the
// fences of readers have no order.
type register struct {
	largest uint64
	wrote   uint64 // the largest of those that write
	value   int
}

func (r *register) serve(b *book, m *member, e *event) *order {
	least := r.largest
	if m.shared {
		least = r.wrote
	}
	if e.Fence < least {
		b.Refused++
		return &order{Refused: true}
	}
	r.largest = max(r.largest, e.Fence)
	if !m.shared {
		r.wrote = e.Fence
	}
	if e.What == look && e.Value != r.value {
		b.broken("what %q protects changed under a reader: %v with fence %d read value %d, and found %d",
			m.key, m, e.Fence, e.Value, r.value)
	}
	if e.What == write {
		if e.Value != r.value {
			b.broken("a write to what %q protects was lost: %v with fence %d made its write from value %d, and replaced %d",
				m.key, m, e.Fence, e.Value, r.value)
		}
		r.value = e.Value + 1
	}
	return &order{Value: r.value}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
