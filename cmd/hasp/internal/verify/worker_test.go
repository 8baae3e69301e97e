// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"encoding/json"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/memdriver"
)

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
		p.ended <- Work(inRead, outWrite, func(_ Job, observe func(hasp.Event)) (Locks, error) {
			var err error
			p.locks, err = hasp.New(memdriver.New(), &hasp.Options{Observe: observe})
			return p.locks, err
		})
	}()
	p.send(Job{TTL: time.Second})
	p.hears(ready)
	return p
}

func (p *parent) send(v any) {
	p.t.Helper()
	if err := p.in.Encode(v); err != nil {
		p.t.Fatal(err)
	}
}

// hears requires these events next, and returns the last of them.
func (p *parent) hears(want ...what) (e event) {
	p.t.Helper()
	for _, w := range want {
		e = event{}
		if err := p.out.Decode(&e); err != nil || e.What != w {
			p.t.Fatalf("the worker said %+v (%v), want %s", e, err, w)
		}
	}
	return e
}

// stops ends the worker.
func (p *parent) stops(last ...what) {
	p.t.Helper()
	p.send(order{Stop: true})
	p.hears(append(last, bye)...)
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
		p.send(order{Key: "k", Hold: 700 * time.Millisecond})
		e := p.hears(asked, granted)
		if e.Fence == 0 || e.Deadline == 0 || e.Waited {
			t.Errorf("granted: %+v", e)
		}
		p.hears(read)
		p.send(order{Value: 4})
		if r := p.hears(renewed, renewed); r.Fence != e.Fence || r.Deadline <= e.Deadline-Mono(time.Second) {
			t.Errorf("renewed: %+v", r)
		}
		if w := p.hears(write); w.Value != 4 || w.Fence != e.Fence {
			t.Errorf("write: %+v", w)
		}
		p.send(order{Value: 5})
		if over := p.hears(ended); over.Lost {
			t.Errorf("ended: %+v", over)
		}
		if r := p.hears(released); r.Err != "" {
			t.Errorf("released: %+v", r)
		}
		p.hears(ready)
		p.stops()
	})
}

// A worker that reads shares the key, and looks at the end whether what it read
// is there still.
func TestWorkerReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParent(t)
		other, err := p.locks.RWMutex("k", nil).RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.send(order{Key: "k", Shared: true, Hold: time.Millisecond})
		p.hears(asked, granted, read)
		p.send(order{Value: 4})
		if l := p.hears(look); l.Value != 4 || l.Fence == 0 {
			t.Errorf("look: %+v", l)
		}
		p.send(order{Value: 4})
		p.hears(ended, released, ready)
		if err := other.Release(); err != nil {
			t.Error(err)
		}
		p.stops()
	})
}

// What the register refused to read is not written.
func TestWorkerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParent(t)
		p.send(order{Key: "k", Hold: time.Millisecond})
		p.hears(asked, granted, read)
		p.send(order{Refused: true})
		p.hears(ended, released, ready)
		p.stops()
	})
}

// A lease that the store gives to another is lost by the store's word.
func TestWorkerLoses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParent(t)
		p.send(order{Key: "k", Hold: time.Minute})
		p.hears(asked, granted, read)
		p.send(order{})
		synctest.Wait()
		info, err := p.locks.Inspect(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.locks.Break(t.Context(), "k", info.Holder.Owner); err != nil {
			t.Fatal(err)
		}
		p.hears(write)
		p.send(order{})
		if e := p.hears(ended); !e.Lost || e.Kind != NotHeld {
			t.Errorf("ended: %+v", e)
		}
		p.hears(released, ready)
		p.stops()
	})
}

// A wait is cancelled by its limit, and a hold by the order to stop.
func TestWorkerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParent(t)
		other, err := p.locks.Mutex("k", nil).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.send(order{Key: "k", Limit: 10 * time.Millisecond})
		if e := p.hears(asked, failed); e.Kind != cancelled {
			t.Errorf("failed: %+v", e)
		}
		p.hears(ready)
		if err := other.Release(); err != nil {
			t.Fatal(err)
		}
		p.send(order{Key: "k", Hold: time.Hour})
		p.hears(asked, granted, read)
		p.send(order{})
		synctest.Wait()
		p.stops(write, ended, released, ready)
	})
}

// Every class of trouble has a word, and each word its class.
func TestKinds(t *testing.T) {
	var words []string
	for c := hasp.ClassUnknown; c <= hasp.ClassReadOnly; c++ {
		word := kindOf(&hasp.Error{Class: c, Err: io.EOF})
		if word == "" || slices.Contains(words, word) || classOf(word) != c {
			t.Errorf("class %d is %q", c, word)
		}
		words = append(words, word)
	}
	if kindOf(&hasp.Error{Err: hasp.ErrLost}) != expired || kindOf(io.EOF) != "unknown" {
		t.Error("a lost lease, or an error of nobody's")
	}
}
