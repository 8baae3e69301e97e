// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package player

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/memdriver"
)

var must = expect.Need

// parent is the other side of a worker.
type parent struct {
	t     *testing.T
	in    *json.Encoder
	out   *json.Decoder
	ended chan error
	locks *hasp.Client // of the worker
}

// newParent starts a worker within a bubble.
func newParent(t *testing.T) *parent {
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	p := &parent{t: t, in: json.NewEncoder(inWrite), out: json.NewDecoder(outRead), ended: make(chan error, 1)}
	go func() {
		p.ended <- Work(inRead, outWrite, func(_ Job, observe func(context.Context, *event.Event)) (Locks, error) {
			var err error
			p.locks, err = hasp.New(memdriver.New(), &hasp.Options{Observe: observe})
			return p.locks, err
		})
	}()
	p.send(Job{TTL: time.Second})
	p.hears(Ready)
	return p
}

func (p *parent) send(v any) {
	p.t.Helper()
	if err := p.in.Encode(v); err != nil {
		p.t.Fatal(err)
	}
}

// hears requires these events next, and returns the last of them.
func (p *parent) hears(want ...What) (e Event) {
	p.t.Helper()
	for _, w := range want {
		e = Event{}
		if err := p.out.Decode(&e); err != nil || e.What != w || e.At == 0 {
			p.t.Fatalf("the worker said %+v (%v), want %s", e, err, w)
		}
	}
	return e
}

// stops ends the worker.
func (p *parent) stops(last ...What) {
	p.t.Helper()
	p.send(Order{Stop: true})
	p.hears(append(last, Bye)...)
	if err := <-p.ended; err != nil {
		p.t.Error(err)
	}
}

// A worker reports every step of a hold, and each renewal in between.
func TestWorkerHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParent(t)
		// It is renewed every third of its time, or up to 82 ms sooner: after 658 ms it
		// was twice, and not before 741 ms a third time.
		p.send(Order{Wants: []Want{{Key: "k"}}, Hold: 700 * time.Millisecond})
		e := p.hears(Asked, Granted)
		if e.Fence == 0 || e.Deadline == 0 || e.Waited {
			t.Errorf("granted: %+v", e)
		}
		p.hears(Read)
		p.send(Order{Value: 4})
		if r := p.hears(Renewed, Renewed); r.Fence != e.Fence || r.Deadline <= e.Deadline-Mono(time.Second) {
			t.Errorf("renewed: %+v", r)
		}
		if w := p.hears(Write); w.Value != 4 || w.Fence != e.Fence {
			t.Errorf("write: %+v", w)
		}
		p.send(Order{Value: 5})
		if over := p.hears(Ended); over.Lost {
			t.Errorf("ended: %+v", over)
		}
		if r := p.hears(Released); r.Err != "" {
			t.Errorf("released: %+v", r)
		}
		p.hears(Ready)
		p.stops()
	})
}

// A worker that reads shares the key, and looks at the end whether what it read
// is there still.
func TestWorkerReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParent(t)
		other, err := p.locks.RWMutex("k", nil).RLock(t.Context())
		must(t, err)
		p.send(Order{Wants: []Want{{Key: "k", Shared: true}}, Hold: time.Millisecond})
		p.hears(Asked, Granted, Read)
		p.send(Order{Value: 4})
		if l := p.hears(Look); l.Value != 4 || l.Fence == 0 {
			t.Errorf("look: %+v", l)
		}
		p.send(Order{Value: 4})
		p.hears(Ended, Released, Ready)
		if err := other.Release(); err != nil {
			t.Error(err)
		}
		p.stops()
	})
}

// A worker that downgrades writes before that, and then looks whether what it wrote is there still.
func TestWorkerDowngrades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParent(t)
		p.send(Order{Wants: []Want{{Key: "k"}}, Hold: time.Millisecond, Downgrade: true})
		p.hears(Asked, Granted, Read)
		p.send(Order{Value: 4, Unfenced: 7})
		if w := p.hears(Write); w.Shared || w.Value != 4 || w.Unfenced != 7 {
			t.Errorf("write: %+v", w)
		}
		p.send(Order{Value: 5, Unfenced: 8})
		if s := p.hears(Lowered, Shares); s.Err != "" || !s.Shared {
			t.Errorf("shares: %+v", s)
		}
		if l := p.hears(Look); !l.Shared || l.Value != 5 {
			t.Errorf("look: %+v", l)
		}
		p.send(Order{Value: 5})
		if e := p.hears(Ended); e.Lost || e.Closed != 0 {
			t.Errorf("ended: %+v", e)
		}
		p.hears(Released, Ready)
		p.stops()
	})
}

// What the register refused to read is not written.
func TestWorkerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParent(t)
		p.send(Order{Wants: []Want{{Key: "k"}}, Hold: time.Millisecond})
		p.hears(Asked, Granted, Read)
		p.send(Order{Refused: true})
		p.hears(Ended, Released, Ready)
		p.stops()
	})
}

// A lease that the store gives to another is lost by the store's word.
func TestWorkerLoses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParent(t)
		p.send(Order{Wants: []Want{{Key: "k"}}, Hold: time.Minute})
		p.hears(Asked, Granted, Read)
		p.send(Order{})
		synctest.Wait()
		info, err := p.locks.Operator().Inspect(t.Context(), "k")
		must(t, err)
		must(t, p.locks.Operator().Break(t.Context(), "k", info.Holder.Owner))
		p.hears(Write)
		p.send(Order{})
		if e := p.hears(Ended); !e.Lost || e.Kind != NotHeld || e.Closed == 0 || e.At != e.Closed {
			t.Errorf("ended: %+v", e)
		}
		p.hears(Released, Ready)
		p.stops()
	})
}

// A wait is cancelled by its limit, and a hold by the order to stop.
func TestWorkerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParent(t)
		other, err := p.locks.Mutex("k", nil).Lock(t.Context())
		must(t, err)
		p.send(Order{Wants: []Want{{Key: "k"}}, Limit: 10 * time.Millisecond})
		if e := p.hears(Asked, Waiting, Failed); e.Kind != Cancelled || e.N != 1 {
			t.Errorf("failed: %+v", e)
		}
		p.hears(Ready)
		p.send(Order{Wants: []Want{{Key: "k"}}, Try: true})
		if e := p.hears(Asked, Failed); e.Kind != Held || e.N != 2 {
			t.Errorf("failed: %+v", e)
		}
		p.hears(Ready)
		must(t, other.Release())
		p.send(Order{Wants: []Want{{Key: "k"}}, Hold: time.Hour})
		p.hears(Asked, Granted, Read)
		p.send(Order{})
		synctest.Wait()
		p.stops(Write, Ended, Released, Ready)
	})
}

// Every class of trouble has a word, and each word its class.
func TestKinds(t *testing.T) {
	var words []string
	for c := driver.ClassUnknown; c <= driver.ClassImpossible; c++ {
		word := kindOf(&hasp.Error{Class: c, Err: io.EOF})
		if word == "" || slices.Contains(words, word) || ClassOf(word) != c {
			t.Errorf("class %d is %q", c, word)
		}
		words = append(words, word)
	}
	if kindOf(&hasp.Error{Err: hasp.ErrLost}) != Expired || kindOf(io.EOF) != "unknown" {
		t.Error("a lost lease, or an error of no store")
	}
}

// What a worker wrote is printed escaped.
func TestLast(t *testing.T) {
	p := &Process{}
	p.stderr.WriteString("panic\n\x1b[2Jboom\n")
	if got := p.Last(); got != `\x1b[2Jboom` {
		t.Error(got)
	}
}
