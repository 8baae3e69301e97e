// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
)

// operation is what is cut, and what must be so then.
type operation struct {
	name string
	cold bool // the client has no connection before
	run  func(s *step)
}

// The owner of a step asks through the links; the other one does not.
var operations = []operation{
	{name: "Try, of a new client", cold: true, run: (*step).try},
	{name: "Try", run: (*step).try},
	{name: "Try to share", run: func(s *step) { s.r.Mode = driver.Shared; s.try() }},
	{name: "Try for a place", run: (*step).join},
	{name: "Try that converts", run: (*step).convert},
	{name: "Renew", run: func(s *step) { s.take(); s.renewed(); s.granted(s.fence) }},
	{name: "Renew of a place", run: func(s *step) { s.wait(); s.renewed(); s.served() }},
	{name: "Release", run: func(s *step) { s.take(); s.released(s.r, true) }},
	{name: "Release of a place", run: func(s *step) { s.wait(); s.released(s.r, true); s.free(s.other) }},
	{name: "Release of another's lease (break)", run: func(s *step) { s.near(s.other, true); s.released(s.other, false) }},
	{name: "Watch and join", run: (*step).watch},
	{name: "Inspect", run: func(s *step) {
		s.looks(func(ctx context.Context) (driver.Info, error) { return s.far.Inspect(ctx, s.r.Key) })
	}},
	{name: "List", run: func(s *step) {
		s.looks(func(ctx context.Context) (info driver.Info, err error) {
			for info, err = range s.far.List(ctx, s.r.Key) {
				if err != nil {
					break
				}
			}
			return info, err
		})
	}},
}

// try: a grant that was answered is in the store, a request that was not sent has left nothing there, and asking
// again gives the same grant; no other owner is granted the key beside it.
func (s *step) try() {
	if res, ok := s.cutTry(); ok {
		s.granted(res.Fence)
	}
}

// join: a place that was answered is there, and it is served once the holder has released.
func (s *step) join() {
	s.near(s.other, true)
	s.r.Queue = true
	if _, ok := s.cutTry(); ok {
		s.served()
	}
}

// cutTry is the Try that is cut, and how it goes on: an owner that was answered late gives up, which is a
// release, and the request comes after it; ok is false then.
func (s *step) cutTry() (got driver.Result, ok bool) {
	var res driver.Result
	cut := s.call(s.asks(&res))
	switch role := s.role(s.r.Owner); {
	case cut == nil && res.Granted != (role == holds) || cut == nil && role == "":
		s.found("it was answered %+v, and the store says %q", res, role)
	case driver.IsNotSent(cut) && role != "":
		s.found("it was said not to be sent (%v), and the store says %q", cut, role)
	}
	if cut != nil && s.cut == Late {
		s.overtaken()
		return res, false
	}
	s.mend()
	got = res
	s.Must(s.again(s.asks(&got)))
	if got.Granted == s.r.Queue || res.Granted && got.Fence != res.Fence {
		s.found("asked again it is answered %+v, before %+v", got, res)
	}
	return got, true
}

// overtaken gives up, as its caller does: the owner is released before its Try comes to the store, which must
// refuse it then. What comes late within a transaction may keep others waiting until it is there. The sessions
// of ZooKeeper order the requests of one client: only its own release is judged.
func (s *step) overtaken() {
	release := gives(s.far, s.r, false)
	err := s.within(brief, release)
	if k := s.w.store.Kind; err != nil && k != ZooKeeper && k != ZooKeeper3 {
		release = gives(s.w.near, s.r, false)
		err = s.within(2*brief, release)
	}
	s.mend()
	if err != nil {
		s.mustEnd(s.again(release))
	}
	s.Must(s.again(func(ctx context.Context) error { _, err := s.far.Inspect(ctx, s.r.Key); return err }))
	if s.r.Queue {
		s.free(s.other)
	}
	s.passOn(request(s.r.Key))
}

// granted: the owner holds the key, alone, until its release; the next fence is larger.
func (s *step) granted(fence uint64) {
	s.has(fence)
	s.near(request(s.r.Key), false)
	r := s.r
	r.Queue = false
	if err := s.again(gives(s.far, r, true)); err != nil {
		s.found("its release: %v", err)
	}
	s.passOn(request(s.r.Key))
}

// served: the holder releases, and the owner, first in the queue, has the key when it asks.
func (s *step) served() {
	s.free(s.other)
	s.granted(s.turn())
}

// turn has the owner be granted the key.
func (s *step) turn() (fence uint64) {
	var res driver.Result
	s.Must(s.again(s.asks(&res)))
	if !res.Granted {
		s.found("it asks for a free key, and is refused: %+v", res)
	}
	return res.Fence
}

// take has the owner acquire the key, uncut.
func (s *step) take() {
	res, err := s.far.Try(s.Context(), s.r)
	s.Must(err)
	if !res.Granted {
		s.found("a free key is refused: %+v", res)
	}
	s.has(res.Fence)
}

// wait has the owner wait in the queue, uncut, behind the other one.
func (s *step) wait() {
	s.near(s.other, true)
	s.r.Queue = true
	res, err := s.far.Try(s.Context(), s.r)
	s.Must(err)
	if res.Granted {
		s.found("two hold the key")
	}
}

// convert: the lease is shared in the end, with the same fence, and was there all the time.
func (s *step) convert() {
	s.take()
	s.r.Mode, s.r.Convert, s.r.Fence = driver.Shared, true, s.fence
	var res driver.Result
	if s.call(s.asks(&res)) == nil && !res.Granted {
		s.found("the lease that it holds is not converted: %+v", res)
	}
	s.mend()
	s.Must(s.again(s.asks(&res)))
	if !res.Granted || res.Fence != s.fence {
		s.found("asked again to convert: %+v, with the fence %d", res, s.fence)
	}
	s.r.Convert, s.r.Fence = false, 0
	reader := request(s.r.Key)
	reader.Mode = driver.Shared
	s.passOn(reader)
	s.granted(res.Fence)
}

// renewed: a renewal that was not answered takes nothing away, of a lease or of a place, and the next one succeeds.
func (s *step) renewed() {
	r := driver.RenewRequest{Claim: s.r.Claim, TTL: lasts, Fence: s.fence}
	if s.r.Queue {
		r.Queue, r.Patience = true, lasts
	}
	once := func(ctx context.Context) error {
		err := errors.New("the renewal has no answer")
		s.far.Renew(ctx, []driver.RenewRequest{r}, func(_ int, a driver.Renewal) { err = a.Err })
		return err
	}
	if err := s.call(once); errors.Is(err, driver.ErrNotHeld) {
		s.found("it is said not to be held")
	}
	s.mend()
	if err := s.again(once); err != nil {
		s.found("the next renewal: %v", err)
	}
}

// released: a release that was answered has been carried out, of a lease or of a place, the owner's or another
// process's, and a request that comes late takes no other owner's lease.
func (s *step) released(r driver.TryRequest, settled bool) {
	before := s.role(r.Owner) // of a waiter the key is held by another
	cut := s.call(gives(s.far, r, settled))
	switch role := s.role(r.Owner); {
	case errors.Is(cut, driver.ErrNotHeld):
		s.found("it %s the key, and its release says that it does not", before)
	case cut == nil && role != "":
		s.found("it was released, and the store says %q", role)
	}
	if cut != nil && s.cut == Late { // the next holder is not affected by what comes late, unless its transaction has begun
		if err := s.within(2*brief, gives(s.w.near, r, settled)); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			s.mend()
		}
	}
	again := func() {
		s.mend()
		s.mustEnd(s.again(gives(s.far, r, settled)))
		if role := s.role(r.Owner); role != "" {
			s.found("it was released, and the store says %q", role)
		}
	}
	if before != holds {
		again()
		return
	}
	if s.cut != Late || s.mended() {
		again()
	}
	next := request(s.r.Key)
	s.near(next, true)
	again()
	if role := s.role(next.Owner); role != holds {
		s.found("a release that came late took the next one's lease (%q)", role)
	}
	s.free(next)
}

// watch: a waiter that watches, and then joins, gets a hint after the release, or is told to poll.
func (s *step) watch() {
	s.near(s.other, true)
	s.r.Queue = true
	watching, stop := context.WithCancel(s.Context())
	defer stop()
	var hints <-chan driver.Hint
	listens := func(limit context.Context) (err error) {
		watching, stop := context.WithCancel(watching)
		defer context.AfterFunc(limit, stop)()
		hints, err = s.far.Watch(watching, s.r.Claim)
		return err
	}
	var last driver.Result
	joins := s.asks(&last)
	var watched, joined error
	_ = s.call(func(ctx context.Context) error {
		watched = listens(ctx)
		joined = joins(ctx)
		return errors.Join(watched, joined)
	})
	s.mend()
	if watched != nil {
		s.Must(s.again(listens))
	}
	if watched != nil || joined != nil {
		s.Must(s.again(joins))
	}
	s.free(s.other)
	s.granted(s.hinted(hints, last.RetryIn))
}

// hintLimit is far above what a hint takes, and below the time after which a waiter looks by itself.
const hintLimit = lasts / 8

// hinted: each hint has the owner ask, and one of them gives it the key. Where the engine promises none, the
// waiter also asks after the time that its last answer named.
func (s *step) hinted(hints <-chan driver.Hint, again time.Duration) (fence uint64) {
	for limit := time.After(hintLimit); hints != nil; {
		var poll <-chan time.Time
		if again > 0 && !s.far.Traits().Tells.Has(driver.TellsFree) {
			poll = time.After(again)
		}
		select {
		case <-hints:
		case <-poll:
		case <-limit:
			s.found("the key was free for %v, and its waiter got no hint", hintLimit)
			return s.turn()
		}
		var res driver.Result
		s.Must(s.again(s.asks(&res)))
		if res.Granted {
			return res.Fence
		}
		again = res.RetryIn
	}
	return s.turn() // it polls
}

// looks: an answer is true.
func (s *step) looks(look func(ctx context.Context) (driver.Info, error)) {
	s.near(s.other, true)
	once := func(ctx context.Context) error {
		info, err := look(ctx)
		if err == nil && (!info.Held || info.Holder.Owner != s.other.Owner) {
			s.found("it shows %+v", info)
		}
		return err
	}
	_ = s.call(once)
	s.mend()
	s.Must(s.again(once))
	s.free(s.other)
}
