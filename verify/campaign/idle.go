// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/internal/player"
)

const (
	// openLimit is how long a key may be available to a waiter that runs, and that the server answers at once. After a release it
	// is milliseconds, after a death 50 ms; the rest is for the messages between the processes.
	openLimit = 100 * time.Millisecond
	// claimTime is how long a key may wait for a waiter that was handed the key and does
	// not claim it; where round trips were long, three of them.
	claimTime = 550 * time.Millisecond
	// backOn is how long after a fault, beyond a TTL, a client may be busy with its
	// consequences: a pause after errors, and new connections.
	backOn = 2 * time.Second
)

// outage is a time in which a client cannot be expected to claim a key.
type outage struct {
	Kind     Kind
	from, to Mono
	by       time.Duration // how late its requests arrive
}

// stops reports whether the client does not run; otherwise it runs and cannot be reached.
func (o outage) stops() bool { return o.Kind == ClientStop || o.Kind == ClientKill }

// outages lists them for each client, by its number.
func (r *run) outages() map[int][]outage {
	all := map[int][]outage{}
	for i, a := range r.injected {
		if a.Part != Begin {
			continue
		}
		o := outage{a.Kind, a.from, a.to, a.By}
		for _, b := range r.injected[i:] {
			if b.Part == End && b.Kind == a.Kind && b.Client == a.Client {
				o.to = b.to
				break
			}
		}
		if r.s.records() && slices.ContainsFunc(r.s.Actions, func(b Action) bool { return b.Kind == a.Kind && b.forgets() }) {
			o.to = max(o.to, r.voting)
		}
		if o.to = o.to.Add(r.s.lingers() + backOn); a.Kind == ClientKill {
			o.to = never
		}
		for _, m := range r.stage.All {
			if a.Client < 0 || a.Client == m.Slot && (a.Kind != ClientKill || m == r.of(m.Slot, a.from)) {
				all[m.ID] = append(all[m.ID], o)
			}
		}
	}
	for _, of := range all {
		slices.SortFunc(of, func(a, b outage) int { return cmp.Compare(a.from, b.from) })
	}
	return all
}

// gap returns the longest time from when the master may have been replaced to the next grant.
func (r *run) gap() (longest time.Duration) {
	for _, a := range r.injected {
		if !a.replaces() {
			continue
		}
		for _, e := range r.records {
			if e.What == player.Granted && e.At > a.to {
				longest = max(longest, e.At.Sub(a.to))
				break
			}
		}
	}
	return longest
}

// idle finds keys that were available to a waiter for too long, and returns the longest such time, both without stalls of the
// machine. It only judges waiters that no fault affects; a key counts as held for as long as the store may have kept it for a
// client that a fault affects.
func (r *run) idle(records []record) (found []string, longest time.Duration) {
	out := r.outages()
	var holds []history.Hold
	var waits []history.Wait
	over := r.over
	for _, e := range records {
		over = max(over, e.At)
	}
	for _, of := range r.stage.Attempts {
		s := (*attempt)(of)
		holds = append(holds, s.holds(out[of.By.ID], r.s.lingers(), over)...)
		waits = append(waits, s.waits(out[of.By.ID], r.s.lingers(), over)...)
	}
	stood := stallsOf(records)
	limit := func(_ string, from, to time.Time) time.Duration {
		begin, end := Mono(from.UnixNano()), Mono(to.UnixNano())
		took := stood.took(from, to, func(client int) bool {
			return slices.ContainsFunc(out[client], func(o outage) bool { return o.from < end && begin < o.to })
		}) + r.prepared(begin, end)
		longest = max(longest, to.Sub(from)-took)
		return openLimit + took
	}
	return history.Found(history.CheckIdle(holds, waits, limit)), longest
}

// prepared returns for how long a fault was prepared between two instants: a server answers
// no client while it saves its data for that, which takes long on a busy disk.
func (r *run) prepared(from, to Mono) (took time.Duration) {
	for _, a := range r.injected {
		if a.Part == Prepare {
			took += max(0, min(a.to, to).Sub(max(a.from, from)))
		}
	}
	return took
}

// attempt adds to an attempt for how long its client may be expected to come, and to go.
type attempt player.Attempt

// endOf returns when its process was killed, or ended.
func (s *attempt) endOf(out []outage, over Mono) Mono {
	for _, o := range out {
		if o.Kind == ClientKill {
			return o.from
		}
	}
	return over
}

// waits returns the attempt's times in the queue, except for outages.
func (s *attempt) waits(out []outage, ttl time.Duration, over Mono) (all []history.Wait) {
	to := cmp.Or(s.Granted, s.Failed, s.endOf(out, over))
	at := cmp.Or(s.Queued, to)
	add := func(from, to Mono, away bool) {
		if from < to {
			all = append(all, history.Wait{Key: s.Key, Owner: fmt.Sprintf("client %d since %.6f", s.By.ID, time.Duration(s.Asked).Seconds()), Shared: s.Shared,
				Asked: s.Asked.Time(), From: from.Time(), To: to.Time(), Away: away})
		}
	}
	for _, o := range out {
		switch {
		case o.Kind == ClientKill && s.Asked < o.from && to == o.from: // its place stays
			add(max(at, s.Asked), o.from, false)
			add(o.from, o.from.Add(ttl), true)
			return all
		case o.from >= to || o.to <= at:
			continue
		}
		add(at, o.from, false)
		add(max(at, o.from), min(to, o.to), true)
		at = max(at, o.to)
	}
	add(at, to, false)
	return all
}

// holds returns the times for which the store may have kept the key for it.
func (s *attempt) holds(out []outage, ttl time.Duration, over Mono) (all []history.Hold) {
	add := func(from, to Mono, lowered Mono, shared bool) {
		h := history.Hold{Key: s.Key, Shared: shared, From: from.Time(), To: to.Time()}
		if lowered != 0 {
			h.Down = lowered.Time()
		}
		all = append(all, h)
	}
	end := cmp.Or(s.Gone, s.Failed, s.Ended, s.endOf(out, over)) // when it made no more requests
	until := end
	if s.Gone == 0 {
		until = end.Add(ttl)
	}
	claim := claimTime
	for _, o := range out {
		if !o.stops() {
			claim = max(claimTime, 3*ttl) // no call that succeeds takes longer than the TTL
		}
		switch {
		case o.from > end || o.to <= s.Asked:
		case !o.stops(): // it may have been granted or handed the key without knowing it
			if s.Gone == 0 || o.Kind == Duplicate || o.by > driver.MaxTransit { // a request that arrives so late after its release may be granted
				add(max(s.Asked, o.from), end.Add(o.by+ttl+claim), 0, false)
			} else {
				add(max(s.Asked, o.from), end, 0, false)
			}
		case o.from < s.Asked:
		case s.Granted == 0 || s.Granted > o.from: // the same, and it does not renew the lease
			add(o.from, o.from.Add(ttl+claim), 0, false)
		default:
			until = min(until, o.from.Add(ttl))
		}
	}
	if s.Granted != 0 && s.Granted < until {
		add(s.Granted, until, s.Lowered, s.Shared)
	}
	return all
}

// stalls are for how long the campaign's own process, with the links, and each client did not get to run, and how much longer than
// usual the calls of each took.
type stalls struct {
	own         history.Stalls
	stood, slow map[int]history.Stalls
}

func stallsOf(records []record) *stalls {
	s := &stalls{stood: map[int]history.Stalls{}, slow: map[int]history.Stalls{}}
	for _, e := range records {
		s.hear(e.Client, e.At.Time(), &e.Event)
	}
	return s
}

// hear notes what a client said of itself.
func (s *stalls) hear(client int, at time.Time, e *player.Event) {
	s.own = append(s.own, history.Stall{At: at, Lost: e.Stalled})
	s.stood[client] = append(s.stood[client], history.Stall{At: at, Lost: e.Stood})
	s.slow[client] = append(s.slow[client], history.Stall{At: at, Lost: e.Slow})
}

// longest returns for how long this process and the client that was held up most did not get to run, between two instants.
func (s *stalls) longest(from, to time.Time) (most time.Duration) {
	for id := range s.stood {
		most = max(most, s.stood[id].Between(from, to)+s.slow[id].Between(from, to))
	}
	return s.own.Between(from, to) + most
}

// took returns for how long the machine, or a server that syncs its file, kept the
// campaign and all processes but some from running, between two instants.
func (s *stalls) took(from, to time.Time, but func(client int) bool) time.Duration {
	took := s.own.Between(from, to)
	for id := range s.stood {
		if !but(id) {
			took += s.stood[id].Between(from, to) + s.slow[id].Between(from, to)
		}
	}
	return took
}

// heldUp returns for how long a message to one client was held up between two instants: by the campaign, by the client, and by
// the server, which was as slow as some client found it while that one ran.
func (s *stalls) heldUp(from, to time.Time, client int) time.Duration {
	server := time.Duration(0)
	for id := range s.slow {
		server = max(server, s.slow[id].Between(from, to)-s.stood[id].Between(from, to))
	}
	return s.own.Between(from, to) + s.stood[client].Between(from, to) + server
}
