// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
)

// operation is what is cut, and what must be so then: run finds what is wrong, and returns errors of
// requests that nothing disturbs.
type operation struct {
	name string
	cold bool // the client has no connection before
	run  func(s *step, ctx context.Context) error
}

// The owner of a step asks through the links; the other one does not.
var operations = []operation{
	{name: "Try, of a new client", cold: true, run: (*step).try},
	{name: "Try", run: (*step).try},
	{name: "Try to share", run: (*step).share},
	{name: "Try for a place", run: (*step).join},
	{name: "Try that converts", run: (*step).convert},
	{name: "Renew", run: (*step).renew},
	{name: "Renew of a place", run: (*step).sign},
	{name: "Release", run: (*step).give},
	{name: "Release of a place", run: (*step).leave},
	{name: "Release of another's lease (break)", run: (*step).revoke},
	{name: "Watch and join", run: (*step).watch},
	{name: "Inspect", run: (*step).inspect},
	{name: "List", run: (*step).list},
}

func (s *step) share(ctx context.Context) error {
	s.r.Mode = driver.Shared
	return s.try(ctx)
}

// try: a grant that was answered is there, one that was not sent is not, and asking again gives the same
// one; nobody else is granted the key beside it.
func (s *step) try(ctx context.Context) error {
	res, late, err := s.cutTry(ctx, s.r)
	if err != nil || late {
		return err
	}
	return s.granted(ctx, res)
}

// join: a place that was answered is there, and it is served once the holder has released.
func (s *step) join(ctx context.Context) error {
	if err := s.nearTry(ctx, s.other, true); err != nil {
		return err
	}
	s.r.Queue = true
	_, late, err := s.cutTry(ctx, s.r)
	if err != nil || late {
		return err
	}
	return s.served(ctx)
}

// cutTry is the Try that is cut, and how it goes on: whoever was answered late gives up, which is a
// release, and the request comes after it.
func (s *step) cutTry(ctx context.Context, r driver.TryRequest) (res driver.Result, late bool, err error) {
	cut := s.call(ctx, func(ctx context.Context) (err error) { res, err = s.far.Try(ctx, r); return err })
	role, err := s.role(ctx, r.Owner)
	switch {
	case err != nil:
		return res, false, err
	case cut == nil && res.Granted != (role == holds) || cut == nil && role == "":
		s.found("it was answered %+v, and the store says %q", res, role)
	case driver.IsNotSent(cut) && role != "":
		s.found("it was said not to be sent (%v), and the store says %q", cut, role)
	}
	if cut != nil && s.cut == Late {
		return res, true, s.overtaken(ctx)
	}
	s.mend()
	got := res
	if err := s.again(ctx, func(ctx context.Context) (err error) { got, err = s.far.Try(ctx, r); return err }); err != nil {
		return res, false, err
	}
	if got.Granted == r.Queue || res.Granted && got.Fence != res.Fence {
		s.found("asked again it is answered %+v, before %+v", got, res)
	}
	return got, false, nil
}

// overtaken gives up, as its caller does: the owner is released before its Try comes to the store, which must
// refuse it then. What comes late within a transaction may keep others waiting until it is there. The sessions
// of ZooKeeper order the requests of one client: only its own release is judged.
func (s *step) overtaken(ctx context.Context) error {
	release := func(ctx context.Context) error { return s.far.Release(ctx, ended(s.r, false)) }
	limit, cancel := context.WithTimeout(ctx, brief)
	err := release(limit)
	cancel()
	if k := s.w.store.Kind; err != nil && k != ZooKeeper && k != ZooKeeper3 {
		release = func(ctx context.Context) error { return s.w.near.Release(ctx, ended(s.r, false)) }
		limit, cancel := context.WithTimeout(ctx, 2*brief)
		err = release(limit)
		cancel()
	}
	s.mend()
	if err != nil {
		if err := s.again(ctx, release); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			return err
		}
	}
	if err := s.again(ctx, func(ctx context.Context) error { _, err := s.far.Inspect(ctx, s.r.Key); return err }); err != nil {
		return err
	}
	if s.r.Queue {
		if err := s.nearRelease(ctx, s.other, true); err != nil {
			return err
		}
	}
	next := request(s.r.Key)
	if err := s.nearTry(ctx, next, true); err != nil {
		return err
	}
	return s.nearRelease(ctx, next, true)
}

// granted: the owner holds the key, alone, until its release; the next fence is larger.
func (s *step) granted(ctx context.Context, res driver.Result) error {
	s.fence = res.Fence
	s.w.uses(s.r.Key, res.Fence)
	if err := s.nearTry(ctx, request(s.r.Key), false); err != nil {
		return err
	}
	r := s.r
	r.Queue = false
	if err := s.again(ctx, func(ctx context.Context) error { return s.far.Release(ctx, ended(r, true)) }); err != nil {
		s.found("its release: %v", err)
	}
	next := request(s.r.Key)
	if err := s.nearTry(ctx, next, true); err != nil {
		return err
	}
	return s.nearRelease(ctx, next, true)
}

// served: the holder releases, and the owner, first in the queue, has the key when it asks.
func (s *step) served(ctx context.Context) error {
	if err := s.nearRelease(ctx, s.other, true); err != nil {
		return err
	}
	return s.asks(ctx)
}

// asks: the owner is granted the key.
func (s *step) asks(ctx context.Context) error {
	var res driver.Result
	err := s.again(ctx, func(ctx context.Context) (err error) { res, err = s.far.Try(ctx, s.r); return err })
	if err != nil {
		return err
	}
	if !res.Granted {
		s.found("it asks for a free key, and is refused: %+v", res)
	}
	return s.granted(ctx, res)
}

// take has the owner acquire the key, uncut.
func (s *step) take(ctx context.Context) error {
	res, err := s.far.Try(ctx, s.r)
	if err == nil && !res.Granted {
		s.found("a free key is refused: %+v", res)
	}
	s.fence = res.Fence
	s.w.uses(s.r.Key, res.Fence)
	return err
}

// wait has the owner wait in the queue, uncut, behind the other one.
func (s *step) wait(ctx context.Context) error {
	if err := s.nearTry(ctx, s.other, true); err != nil {
		return err
	}
	s.r.Queue = true
	res, err := s.far.Try(ctx, s.r)
	if res.Granted {
		s.found("two hold the key")
	}
	return err
}

// convert: the lease is shared in the end, with the same fence, and was there all the time.
func (s *step) convert(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	s.r.Mode, s.r.Convert, s.r.Fence = driver.Shared, true, s.fence
	var res driver.Result
	cut := s.call(ctx, func(ctx context.Context) (err error) { res, err = s.far.Try(ctx, s.r); return err })
	if cut == nil && !res.Granted {
		s.found("the lease that it holds is not converted: %+v", res)
	}
	s.mend()
	if err := s.again(ctx, func(ctx context.Context) (err error) { res, err = s.far.Try(ctx, s.r); return err }); err != nil {
		return err
	}
	if !res.Granted || res.Fence != s.fence {
		s.found("asked again to convert: %+v, with the fence %d", res, s.fence)
	}
	s.r.Convert, s.r.Fence = false, 0
	reader := request(s.r.Key)
	reader.Mode = driver.Shared
	if err := s.nearTry(ctx, reader, true); err != nil {
		return err
	}
	if err := s.nearRelease(ctx, reader, true); err != nil {
		return err
	}
	return s.granted(ctx, res)
}

// renew: a renewal that was not answered takes nothing away, and the next one succeeds.
func (s *step) renew(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	return s.renewed(ctx, driver.RenewRequest{Claim: s.r.Claim, TTL: lasts, Fence: s.fence}, func() error {
		return s.granted(ctx, driver.Result{Fence: s.fence})
	})
}

// sign: the same for a place.
func (s *step) sign(ctx context.Context) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.renewed(ctx, driver.RenewRequest{Claim: s.r.Claim, Queue: true, TTL: lasts, Patience: lasts}, func() error { return s.served(ctx) })
}

func (s *step) renewed(ctx context.Context, r driver.RenewRequest, then func() error) error {
	once := func(d driver.Driver) func(context.Context) error {
		return func(ctx context.Context) error {
			err := errors.New("the renewal has no answer")
			d.Renew(ctx, []driver.RenewRequest{r}, func(_ int, a driver.Renewal) { err = a.Err })
			return err
		}
	}
	if err := s.call(ctx, once(s.far)); errors.Is(err, driver.ErrNotHeld) {
		s.found("it is said not to be held")
	}
	s.mend()
	if err := s.again(ctx, once(s.far)); err != nil {
		s.found("the next renewal: %v", err)
	}
	return then()
}

// give: a release that was answered has been carried out, and one that comes late takes nobody else's lease.
func (s *step) give(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	return s.released(ctx, s.r, true)
}

// leave: the same for a place.
func (s *step) leave(ctx context.Context) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	if err := s.released(ctx, s.r, true); err != nil {
		return err
	}
	return s.nearRelease(ctx, s.other, true)
}

// revoke: the same for the lease of another process.
func (s *step) revoke(ctx context.Context) error {
	if err := s.nearTry(ctx, s.other, true); err != nil {
		return err
	}
	return s.released(ctx, s.other, false)
}

// watch: who watches, and then waits, gets a hint after the release, or is told to poll.
func (s *step) watch(ctx context.Context) error {
	if err := s.nearTry(ctx, s.other, true); err != nil {
		return err
	}
	s.r.Queue = true
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var hints <-chan struct{}
	listens := func(limit context.Context) (err error) {
		watching, stop := context.WithCancel(watching)
		defer context.AfterFunc(limit, stop)()
		hints, err = s.far.Watch(watching, s.r.Claim)
		return err
	}
	var last driver.Result
	joins := func(ctx context.Context) (err error) { last, err = s.far.Try(ctx, s.r); return err }
	var watched, joined error
	_ = s.call(ctx, func(ctx context.Context) error {
		watched = listens(ctx)
		joined = joins(ctx)
		return errors.Join(watched, joined)
	})
	s.mend()
	if watched != nil {
		if err := s.again(ctx, listens); err != nil {
			return err
		}
	}
	if watched != nil || joined != nil {
		if err := s.again(ctx, joins); err != nil {
			return err
		}
	}
	if err := s.nearRelease(ctx, s.other, true); err != nil {
		return err
	}
	return s.hinted(ctx, hints, last.RetryIn)
}

// hintLimit is far above what a hint takes, and below the time after which a waiter looks by itself.
const hintLimit = lasts / 8

// hinted: each hint has the owner ask, and one of them gives it the key. Where the engine promises none, the
// waiter also asks once the time is over that its last answer named.
func (s *step) hinted(ctx context.Context, hints <-chan struct{}, again time.Duration) error {
	for limit := time.After(hintLimit); hints != nil; {
		var poll <-chan time.Time
		if again > 0 && !s.far.Traits().Hints {
			poll = time.After(again)
		}
		select {
		case <-hints:
		case <-poll:
		case <-limit:
			s.found("the key was free for %v, and its waiter got no hint", hintLimit)
			return s.asks(ctx)
		}
		var res driver.Result
		err := s.again(ctx, func(ctx context.Context) (err error) { res, err = s.far.Try(ctx, s.r); return err })
		if err != nil {
			return err
		}
		if res.Granted {
			return s.granted(ctx, res)
		}
		again = res.RetryIn
	}
	return s.asks(ctx) // it polls
}

// inspect: an answer is true.
func (s *step) inspect(ctx context.Context) error {
	return s.looks(ctx, func(ctx context.Context) (driver.Info, error) { return s.far.Inspect(ctx, s.r.Key) })
}

func (s *step) list(ctx context.Context) error {
	return s.looks(ctx, func(ctx context.Context) (info driver.Info, err error) {
		for i, err := range s.far.List(ctx, s.r.Key) {
			if err != nil {
				return info, err
			}
			info = i
		}
		return info, nil
	})
}

func (s *step) looks(ctx context.Context, look func(ctx context.Context) (driver.Info, error)) error {
	if err := s.nearTry(ctx, s.other, true); err != nil {
		return err
	}
	once := func(ctx context.Context) error {
		info, err := look(ctx)
		if err == nil && (!info.Held || info.Holder.Owner != s.other.Owner) {
			s.found("it shows %+v", info)
		}
		return err
	}
	_ = s.call(ctx, once)
	s.mend()
	if err := s.again(ctx, once); err != nil {
		return err
	}
	return s.nearRelease(ctx, s.other, true)
}
