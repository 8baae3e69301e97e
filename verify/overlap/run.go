// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/testserver"
)

// fault is what happens to the first holder, or to the servers.
type fault string

const (
	partition fault = "partition" // everything between the holder and the servers disappears; connections stay open
	pause     fault = "pause"     // the holder is stopped (SIGSTOP) until another has the key, and continued
	clockStep fault = "clock"     // the servers' wall clocks go forward by more than the TTL
)

var faults = []fault{partition, pause, clockStep}

// ahead is how far a clock is stepped.
const ahead = time.Minute

// patience bounds what must happen by itself.
const patience = time.Minute

// run is one measurement.
type run struct {
	*subject
	fault fault
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

// measure starts servers and two clients, has the first acquire the key, injects the fault, and
// has the second acquire it.
func (r *run) measure(t testing.TB) (out outcome, err error) {
	var clock *testserver.Clock
	if r.fault == clockStep {
		clock = testserver.NewClock(t)
	}
	store := r.start(t, clock)
	links := store.Links(t)
	cut := func() {
		for _, l := range links {
			l.Swallow(true, true)
		}
	}
	first, err := r.client(t, store.Through(links), r.deaf)
	if err != nil {
		return out, fmt.Errorf("the first client: %w", err)
	}
	second, err := r.client(t, store.Addrs(), false)
	if err != nil {
		return out, fmt.Errorf("the second client: %w", err)
	}
	if err := first.lock(); err != nil {
		return out, fmt.Errorf("the first client: %w", err)
	}
	if r.fault != clockStep { // it waits meanwhile
		second.Send(player.Order{})
	}
	if e, err := first.next(r.after); !errors.Is(err, errSilent) {
		return out, errors.Join(fmt.Errorf("the first client, before the fault: %s %s", e.What, e.Err), err)
	}
	from, err := r.inject(first, second, cut, clock)
	if err != nil || from == 0 {
		return out, err
	}
	last, whole, err := first.believed(r.watch)
	return outcome{granted: true, overlap: max(0, last.Sub(from)), whole: whole}, err
}

// inject makes the fault, and returns the instant from which on two may believe that they hold the
// key: the second one does, and the first one runs. It is 0 when the second one was not granted the key.
func (r *run) inject(first, second *party, cut func(), clock *testserver.Clock) (from player.Mono, err error) {
	limit := patience
	switch r.fault {
	case partition:
		cut()
	case pause:
		err = first.Pause()
	case clockStep:
		clock.Step(ahead)
		second.Send(player.Order{})
		limit = 2 * r.ttl // where the clock does not matter it waits for ever
	}
	if err != nil {
		return 0, err
	}
	e, err := second.next(limit)
	if r.fault == clockStep && errors.Is(err, errSilent) {
		return 0, nil
	}
	if err != nil || e.What != player.Granted {
		return 0, errors.Join(fmt.Errorf("the second client: %s %s", e.What, e.Err), err)
	}
	from = e.At
	if r.fault == pause {
		from = player.Now()
		err = first.Resume()
	}
	return from, err
}

// party is a client process.
type party struct {
	*player.Process
	events chan player.Event
	ctx    context.Context
}

// errSilent means that a client said nothing in time.
var errSilent = errors.New("it said nothing")

// client starts a client, and returns once it is connected.
func (r *run) client(t testing.TB, addrs []string, deaf bool) (*party, error) {
	p := &party{events: make(chan player.Event, 8), ctx: t.Context()}
	var err error
	p.Process, err = player.Spawn(0, nil, jobEnv, job{r.name, addrs, r.ttl, deaf}, func(_ *player.Process, e player.Event) { p.events <- e })
	if err != nil {
		return nil, err
	}
	t.Cleanup(p.Kill)
	e, err := p.next(patience)
	if err == nil && e.What != player.Ready {
		err = fmt.Errorf("%s: %s", e.What, e.Err)
	}
	return p, err
}

// next returns the next event, or errSilent.
func (p *party) next(limit time.Duration) (player.Event, error) {
	select {
	case e := <-p.events:
		return e, nil
	case <-p.Ended:
		select {
		case e := <-p.events: // its last words
			return e, nil
		default:
		}
		return player.Event{}, fmt.Errorf("it ended: %s", p.Errors())
	case <-time.After(limit):
		return player.Event{}, errSilent
	case <-p.ctx.Done():
		return player.Event{}, context.Cause(p.ctx)
	}
}

// lock has it acquire the key, which is free.
func (p *party) lock() error {
	p.Send(player.Order{})
	e, err := p.next(patience)
	if err == nil && e.What != player.Granted {
		err = fmt.Errorf("%s: %s", e.What, e.Err)
	}
	return err
}

// believed watches a holder, and returns the last instant at which it believed that it holds the key.
// whole: it did until the watch ended.
func (p *party) believed(watch time.Duration) (last player.Mono, whole bool, err error) {
	e, err := p.next(watch)
	if errors.Is(err, errSilent) {
		p.Send(player.Order{})
		e, err = p.next(patience)
	}
	if err == nil && e.What != player.Ended && e.What != believes {
		err = fmt.Errorf("the first client: %s %s", e.What, e.Err)
	}
	return e.At, e.What == believes, err
}
