// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package player

import (
	"fmt"
	"slices"
	"time"

	"github.com/hasplock/hasp/internal/history"
)

// Book is what a run has recorded.
type Book struct {
	Counts
	Holds     []*Hold
	Attempts  []*Attempt
	Found     []string // rules that were broken
	Changed   []string // those of them that a register found
	registers map[string]*register
	orders    map[order]*Attempt
	base      time.Time // what the shared clock counts from, on the wall clock
}

// Member is a client process and what is known of it. Once it was started, only the goroutine
// of its run uses it.
type Member struct {
	*Process
	Slot    int
	Since   Mono // when it was started
	Began   bool // it asked for an order
	Paused  bool
	Killed  bool
	Left    bool  // it has ended
	Order   Order // its latest
	Asked   Mono  // when it asked for the keys of that
	Latest  *Attempt
	waiting bool    // since Asked
	Open    []*Hold // under way
	Giving  []*Hold // being released
}

// String names the client in messages.
func (m *Member) String() string { return fmt.Sprintf("client %d (pid %d)", m.ID, m.PID) }

// Do gives the client its next order.
func (m *Member) Do(o Order) {
	m.Order = o
	m.Send(o)
}

// Hold is a hold of the history, with what its holder said besides.
type Hold struct {
	history.Hold
	Deadline time.Time     // the last that is known
	Early    time.Duration // before which it was lost, as its holder was told or as its release found
	Kept     time.Time     // until when the store may have kept the key for it; zero: to the end
	lease    string        // its owner in the store
	lost     bool          // before its release
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
	Written   int `json:"-"`         // writes that it took
	Unfenced  int `json:"-"`         // of all writes: those that a register without fences lost another by

	// Troubles counts the errors of waits and releases by their kind: the class of
	// hasp.Error, or not-held for a key that was gone at its release.
	Troubles map[string]int `json:"troubles,omitempty"`
}

// NewBook returns an empty one.
func NewBook() *Book {
	return &Book{Counts: Counts{Troubles: map[string]int{}}, registers: map[string]*register{}, orders: map[order]*Attempt{}, base: time.Now().Add(-time.Duration(Now()))}
}

// Wall is an instant of the shared clock on the wall clock.
func (b *Book) Wall(m Mono) time.Time { return b.base.Add(time.Duration(m)).Round(0) }

// Add records what a client said. It returns the answer, if there is one.
func (b *Book) Add(m *Member, e *Event) (answer *Order) {
	b.note(m, e)
	switch e.What {
	case Asked:
		m.Asked, m.waiting = e.At, true
	case Failed:
		switch e.Kind {
		case Cancelled:
			b.Cancelled++
		case Held:
		default:
			b.Failed++
			b.Troubles[e.Kind]++
		}
	case Granted:
		b.grant(m, e)
	case Renewed:
		if h := m.holds(e); h != nil {
			h.Deadline = later(h.Deadline, b.Wall(e.Deadline))
			h.To = h.Deadline
		}
	case Lowered:
		if h := m.holds(e); h != nil {
			h.Down = b.Wall(e.At)
		}
	case Shares:
		if h := m.holds(e); h != nil && e.Err == "" {
			h.Lowered = b.Wall(e.At)
		}
	case Read, Write, Look:
		return b.register(e.Key).serve(b, m, e)
	case Ended:
		b.end(m, e)
	case Released:
		for _, h := range m.Giving {
			h.Kept = b.Wall(e.At)
			switch {
			case e.Err == "" && !h.lost:
				h.Released = h.Kept
			case e.Kind == NotHeld, e.Kind == Expired:
				h.Early = max(h.Early, h.Deadline.Sub(h.Kept))
			}
		}
		m.Giving = nil
		switch {
		case e.Err == "":
		case e.Kind == Expired, e.Kind == NotHeld && e.At >= e.Deadline:
			b.Expired++
		default:
			b.Troubles[e.Kind]++
		}
	}
	return nil
}

// holds returns the hold that the client has open under the lease of an event, or nil.
func (m *Member) holds(e *Event) *Hold {
	i := slices.IndexFunc(m.Open, func(h *Hold) bool { return h.Key == e.Key && h.lease == e.Owner })
	if i < 0 {
		return nil
	}
	return m.Open[i]
}

func (b *Book) grant(m *Member, e *Event) {
	if m.waiting { // the first of several keys
		b.Granted++
		if e.Shared {
			b.Shared++
		}
		if e.Waited {
			b.Waited++
		}
	}
	m.waiting = false
	until := b.Wall(e.Deadline)
	h := &Hold{Deadline: until, lease: e.Owner, Hold: history.Hold{
		Key: e.Key, Owner: m.String(), Fence: e.Fence, Shared: e.Shared, Limit: m.Order.Slots, Slot: e.Slot, Abandoned: e.Abandoned,
		From: b.Wall(e.At), To: until, Asked: int64(m.Asked), Granted: int64(e.At)}}
	m.Open = append(m.Open, h)
	b.Holds = append(b.Holds, h)
}

func (b *Book) end(m *Member, e *Event) {
	h := m.holds(e)
	if h == nil { // a worker that makes no sense
		b.Broken("%v releases %q, which it does not hold", m, e.Key)
		return
	}
	h.Deadline = b.Wall(e.Deadline)
	h.To = earlier(b.Wall(e.At), h.Deadline)
	h.lost = e.Lost || e.Closed != 0
	if e.Closed != 0 || e.Kind == NotHeld {
		h.Early = max(0, e.Deadline.Sub(e.At))
	}
	m.Open = slices.DeleteFunc(m.Open, func(o *Hold) bool { return o == h })
	m.Giving = append(m.Giving, h)
	switch {
	case !e.Lost:
	case e.Kind == NotHeld && e.At < e.Deadline:
		fence := ""
		if e.Fence != 0 {
			fence = fmt.Sprintf(", which has fence %d", e.Fence)
		}
		b.Broken("%q was taken from %v%s, %v before its deadline", e.Key, m, fence, e.Deadline.Sub(e.At).Round(time.Millisecond))
	default:
		b.Expired++
	}
}

// Broken records that a rule was broken.
func (b *Book) Broken(format string, args ...any) {
	b.Found = append(b.Found, fmt.Sprintf(format, args...))
}

// History returns the holds for the judges of internal/history.
func (b *Book) History() []history.Hold {
	holds := make([]history.Hold, len(b.Holds))
	for i, h := range b.Holds {
		holds[i] = h.Hold
	}
	return holds
}

func (b *Book) register(key string) *register {
	if b.registers[key] == nil {
		b.registers[key] = &register{}
	}
	return b.registers[key]
}

// register is what a lock protects: a number that each holder reads, and sets to
// one more, or reads twice. Beside it stands what a store without fences would have.
type register struct {
	history.Register
	value    int
	unfenced int // what it would be if it compared no fences
}

func (r *register) serve(b *Book, m *Member, e *Event) *Order {
	if e.What == Write { // whatever the fence says
		if e.Unfenced != r.unfenced {
			b.Unfenced++
		}
		r.unfenced = e.Unfenced + 1
	}
	if !r.Takes(e.Fence, e.Shared) {
		b.Refused++
		return &Order{Refused: true, Unfenced: r.unfenced}
	}
	if e.What == Look && e.Value != r.value {
		b.changed("what %q protects changed under a reader: %v with fence %d read value %d, and found %d",
			e.Key, m, e.Fence, e.Value, r.value)
	}
	if e.What == Write {
		b.Written++
		if e.Value != r.value {
			b.changed("a write to what %q protects was lost: %v with fence %d made its write from value %d, and replaced %d",
				e.Key, m, e.Fence, e.Value, r.value)
		}
		r.value = e.Value + 1
	}
	return &Order{Value: r.value, Unfenced: r.unfenced}
}

func (b *Book) changed(format string, args ...any) {
	b.Changed = append(b.Changed, fmt.Sprintf(format, args...))
	b.Broken(format, args...)
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
