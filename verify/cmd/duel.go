// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/redis/go-redis/v9/logging"
)

// fault is what happens to the first holder, or to the servers.
type fault string

const (
	partition fault = "partition" // everything between the holder and the servers disappears; connections stay open
	pause     fault = "pause"     // the holder is stopped (SIGSTOP) until another has the key, and continued
	clockStep fault = "clock"     // the servers' wall clocks go forward by more than the TTL
)

var faults = []fault{partition, pause, clockStep}

const (
	// ahead is how far a clock is stepped.
	ahead = time.Minute
	// patience bounds what must happen by itself.
	patience = time.Minute
	// redlockNodes is how many nodes a quorum has.
	redlockNodes = 5
)

// duel is one measurement, with two clients.
type duel struct {
	trial
	ttl   time.Duration
	after time.Duration // from the first grant to the fault
	watch time.Duration // for how long the first one is watched from the second grant on
	deaf  bool          // the first one never notices its loss
}

// outcome is what came of it.
type outcome struct {
	granted bool          // another was granted the key
	overlap time.Duration // for how long both believed that they hold it
	whole   bool          // the first one still believed when the watch ended
}

// start starts its store. The servers have the clock, which may be nil; of a quorum so many as are stepped.
func (s *subject) start(t testing.TB, clock *testserver.Clock) *engines.Store {
	var env []string
	if clock != nil {
		env = clock.Env()
	}
	if s.store != engines.Redlock {
		return engines.Start(t, s.store, env...)
	}
	all := &engines.Store{Kind: s.store}
	for i := range redlockNodes {
		of := env
		if i < redlockNodes-s.stepped {
			of = nil
		}
		all.Servers = append(all.Servers, testserver.RedisIn(t, of))
	}
	return all
}

// measure starts servers and two clients, has the first acquire the key, injects the fault, and has the second acquire it.
func (d *duel) measure(t testing.TB) outcome {
	var clock *testserver.Clock
	if d.fault == clockStep {
		clock = testserver.NewClock(t)
	}
	store := d.start(t, clock)
	links := store.Links(t)
	first := d.client(t, "the first client", store.Through(links), d.deaf)
	second := d.client(t, "the second client", store.Addrs(), false)
	first.asks()
	first.says(player.Granted)
	if d.fault != clockStep { // it waits meanwhile
		second.asks()
	}
	if e, ok := first.next(d.after); ok {
		t.Fatalf("the first client, before the fault: %s %s", e.What, e.Err)
	}
	from := player.Mono(0) // since then two clients may believe that they hold the key: the second does, and the first runs
	switch d.fault {
	case partition:
		for _, l := range links {
			l.Swallow(true, true)
		}
		from = second.says(player.Granted)
	case pause:
		must(t, first.Pause())
		second.says(player.Granted)
		from = player.Now()
		must(t, first.Resume())
	case clockStep:
		clock.Step(ahead)
		second.asks()
		e, ok := second.next(2 * d.ttl)
		if !ok { // where the clock does not matter it waits for ever
			return outcome{}
		}
		if from = e.At; e.What != player.Granted {
			t.Fatalf("the second client: %s %s", e.What, e.Err)
		}
	}
	last, whole := first.believed(d.watch)
	return outcome{granted: true, overlap: max(0, last.Sub(from)), whole: whole}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// party is a client process.
type party struct {
	*player.Process
	t      testing.TB
	name   string
	events chan player.Event
}

// client starts a client, and returns once it is connected.
func (d *duel) client(t testing.TB, name string, addrs []string, deaf bool) *party {
	p := &party{t: t, name: name, events: make(chan player.Event, 8)}
	var err error
	p.Process, err = player.Spawn(0, jobEnv, job{d.name, addrs, d.ttl, deaf}, func(e player.Event) { p.events <- e })
	must(t, err)
	t.Cleanup(p.Kill)
	p.says(player.Ready)
	return p
}

// next returns the next event; ok is false when the client says nothing in time.
func (p *party) next(limit time.Duration) (e player.Event, ok bool) {
	p.t.Helper()
	select {
	case e := <-p.events:
		return e, true
	case <-p.Ended:
		select {
		case e := <-p.events: // its last words
			return e, true
		default:
		}
		p.t.Fatalf("%s ended: %s", p.name, p.Errors())
	case <-time.After(limit):
	case <-p.t.Context().Done():
		p.t.Fatalf("%s: %v", p.name, p.t.Context().Err())
	}
	return e, false
}

// asks has it acquire the key, or say whether it believes that it holds it.
func (p *party) asks() { p.Send(player.Order{}) }

// says waits for an event, and returns its instant.
func (p *party) says(what player.What) player.Mono {
	p.t.Helper()
	e, ok := p.next(patience)
	if !ok || e.What != what {
		p.t.Fatalf("%s said %q %s in %v, not that it is %s", p.name, e.What, e.Err, patience, what)
	}
	return e.At
}

// believed watches a holder, and returns the last instant at which it believed that it holds the key.
// whole: it did until the watch ended.
func (p *party) believed(watch time.Duration) (last player.Mono, whole bool) {
	p.t.Helper()
	e, ok := p.next(watch)
	if !ok {
		p.asks()
		e, _ = p.next(patience)
	}
	if e.What != player.Ended && e.What != believes {
		p.t.Fatalf("%s: %q %s", p.name, e.What, e.Err)
	}
	return e.At, e.What == believes
}

// jobEnv marks a process that is a client of an overlap.
const jobEnv = "HASP_VERIFY_OVERLAP"

// job is what such a process needs to know.
type job struct {
	Subject string
	Addrs   []string
	TTL     time.Duration
	Deaf    bool // it never notices a loss: the measurement must
}

// believes answers an order to a holder: it holds the key still. At is then, and in player.Ended, the
// last instant at which the client asked its library and the answer was that it does.
const believes player.What = "believes"

// step is how long a piece of a holder's work takes: it asks before each.
const step = time.Millisecond

// clientMain turns this process into a client when it was started as one, and does not return then. The client connects, acquires
// the key when it is told to, and works as its holder, until the process is killed.
func clientMain() {
	player.Main(jobEnv, func(in io.Reader, out io.Writer) error {
		logging.Disable()
		orders, events := json.NewDecoder(in), json.NewEncoder(out)
		tell := func(w player.What, at player.Mono) { _ = events.Encode(player.Event{What: w, At: at}) } // if no process reads it, this one is about to be killed
		var j job
		if err := orders.Decode(&j); err != nil {
			return err
		}
		s := find(j.Subject)
		if s == nil {
			return fmt.Errorf("there is no %q", j.Subject)
		}
		ctx := context.Background()
		lock, err := s.open(ctx, j)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		tell(player.Ready, player.Now())
		var o player.Order
		if err := orders.Decode(&o); err != nil {
			return err
		}
		holds, err := lock(ctx)
		at := player.Now()
		if err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		tell(player.Granted, at)
		if j.Deaf {
			holds = func() bool { return true }
		}
		var wanted atomic.Bool
		go func() {
			for orders.Decode(&o) == nil {
				wanted.Store(true)
			}
		}()
		work(holds, at, &wanted, tell)
		select {}
	})
}

// work asks before each step whether the key is held, until it is not.
func work(holds func() bool, last player.Mono, wanted *atomic.Bool, tell func(player.What, player.Mono)) {
	for {
		reply := wanted.Swap(false)
		begun := player.Now() // before the question: a process that is stopped in between has begun nothing since
		if !holds() {
			tell(player.Ended, last)
			return
		}
		last = begun
		if reply {
			tell(believes, last)
		}
		time.Sleep(step)
	}
}
