// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

var errScenario = errors.New("the scenario was not reached: a Lock that should be granted was refused")

// Two sides that have one node in common.
var (
	everywhere = []int{0, 1, 2, 3, 4}
	left       = []int{0, 1, 2}
	right      = []int{2, 3, 4}
)

// newActors makes an actor for each set of nodes.
func (w *world) newActors(reaches ...[]int) ([]*actor, error) {
	var as []*actor
	for _, reach := range reaches {
		a, err := w.actor(0, reach...)
		if err != nil {
			return nil, err
		}
		as = append(as, a)
	}
	return as, nil
}

// lateRelease: a holder whose lease has ended releases, and a third client tries to
// acquire what the second one holds.
func lateRelease(ctx context.Context, w *world) error {
	as, err := w.newActors(everywhere, everywhere, everywhere)
	if err != nil {
		return err
	}
	first := as[0].try(ctx)
	time.Sleep(worldTTL + time.Second)
	second := as[1].try(ctx)
	if first == nil || second == nil {
		return errScenario
	}
	first.release()
	as[2].try(ctx)
	return nil
}

// atTheEnd: the nodes' clocks are fast, and another client tries to acquire right
// before the deadline by the holder's clock.
func atTheEnd(ctx context.Context, w *world) error {
	as, err := w.newActors(everywhere, everywhere)
	if err != nil {
		return err
	}
	if as[0].try(ctx) == nil {
		return errScenario
	}
	time.Sleep(worldTTL * 995 / 1000)
	if as[1].try(ctx) == nil {
		return errScenario
	}
	return nil
}

// slowGrant: the answers to a Try are slow, and another client tries to acquire when
// the lease has expired in the store.
func slowGrant(ctx context.Context, w *world) error {
	as, err := w.newActors(everywhere, everywhere)
	if err != nil {
		return err
	}
	begun := time.Now()
	as[0].slow = 500 * time.Millisecond
	if as[0].try(ctx) == nil {
		return errScenario
	}
	time.Sleep(worldTTL + 100*time.Millisecond - time.Since(begun))
	if as[1].try(ctx) == nil {
		return errScenario
	}
	return nil
}

// slowRenewal is slowGrant with a slow renewal.
func slowRenewal(ctx context.Context, w *world) error {
	as, err := w.newActors(everywhere, everywhere)
	if err != nil {
		return err
	}
	l := as[0].try(ctx)
	if l == nil {
		return errScenario
	}
	begun := time.Now()
	as[0].slow = 500 * time.Millisecond
	if err := l.Extend(ctx, worldTTL); err != nil {
		return err
	}
	l.until()
	time.Sleep(worldTTL + 100*time.Millisecond - time.Since(begun))
	if as[1].try(ctx) == nil {
		return errScenario
	}
	return nil
}

// splitVote: an attempt gets no majority, and the next one needs the votes that it
// got.
func splitVote(ctx context.Context, w *world) error {
	as, err := w.newActors([]int{0, 1}, left)
	if err != nil {
		return err
	}
	if as[0].try(ctx) != nil {
		return errScenario
	}
	time.Sleep(time.Second) // its clean-up runs in the background
	if as[1].try(ctx) == nil {
		w.found = append(w.found, "the votes of a failed attempt block another")
	}
	return nil
}

// restartBetween: the one node that two sides share is killed and starts empty.
func restartBetween(ctx context.Context, w *world) error {
	return w.bothSides(ctx, (*actor).try, func() { w.stores[2].Restart(nil) })
}

// restartBesideReader is restartBetween with a reader as the first holder.
func restartBesideReader(ctx context.Context, w *world) error {
	return w.bothSides(ctx, (*actor).read, func() { w.stores[2].Restart(nil) })
}

// flushBetween is restartBetween with FLUSHALL.
func flushBetween(ctx context.Context, w *world) error {
	return w.bothSides(ctx, (*actor).try, func() { w.stores[2].Flush() })
}

func (w *world) bothSides(ctx context.Context, first acquire, forget func()) error {
	as, err := w.newActors(left, right)
	if err != nil {
		return err
	}
	if l := as[1].try(ctx); l != nil { // the right side sees the records of its nodes
		l.release()
	}
	time.Sleep(time.Second)
	if first(as[0], ctx) == nil {
		return errScenario
	}
	forget()
	as[1].try(ctx)
	return nil
}

// clockBehind: the second holder's clock is behind that of the first.
func clockBehind(ctx context.Context, w *world) error { return w.clocksApart(ctx, (*actor).try) }

// writerBehindReader is clockBehind with a reader as the first holder.
func writerBehindReader(ctx context.Context, w *world) error {
	return w.clocksApart(ctx, (*actor).read)
}

// acquire is a way for an actor to acquire.
type acquire func(*actor, context.Context) *actorLease

func (w *world) clocksApart(ctx context.Context, first acquire) error {
	a, err := w.actor(0, everywhere...)
	b, err2 := w.actor(-10*time.Second, everywhere...)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	for _, ask := range []func() *actorLease{func() *actorLease { return first(a, ctx) }, func() *actorLease { return b.try(ctx) }} {
		l := ask()
		if l == nil {
			return errScenario
		}
		l.release()
		time.Sleep(time.Second)
	}
	return nil
}

// readerBesideWriter: both have a majority but for the one node that they share.
func readerBesideWriter(ctx context.Context, w *world) error {
	return w.beside(ctx, (*actor).try, (*actor).read)
}

func writerBesideReader(ctx context.Context, w *world) error {
	return w.beside(ctx, (*actor).read, (*actor).try)
}

func (w *world) beside(ctx context.Context, first, second acquire) error {
	as, err := w.newActors(left, right)
	if err != nil {
		return err
	}
	if first(as[0], ctx) == nil {
		return errScenario
	}
	second(as[1], ctx)
	return nil
}

// readersLeave: one of two readers releases, and then a writer tries to acquire.
func readersLeave(ctx context.Context, w *world) error {
	as, err := w.newActors(everywhere, everywhere, everywhere)
	if err != nil {
		return err
	}
	first, second := as[0].read(ctx), as[1].read(ctx)
	if first == nil || second == nil {
		return errScenario
	}
	time.Sleep(time.Second)
	first.release()
	as[2].try(ctx)
	return nil
}

// twoSides: a minority and a majority, cut off from each other.
func twoSides(ctx context.Context, w *world) error {
	as, err := w.newActors([]int{0, 1}, right)
	if err != nil {
		return err
	}
	as[0].try(ctx)
	if as[1].try(ctx) == nil {
		return errScenario
	}
	return nil
}

// onlyOne: an actor reaches only one of the nodes.
func onlyOne(ctx context.Context, w *world) error {
	a, err := w.actor(0, 2)
	if err != nil {
		return err
	}
	a.try(ctx)
	return nil
}

// overtakenTry: on one store, an owner gives up a Try without an answer, and the Try
// arrives after the owner's release.
func overtakenTry(ctx context.Context, w *world) error {
	o := &overtaken{member: w.stores[0], released: make(chan struct{}), came: make(chan struct{})}
	first, err := hasp.New(w.broken.alone(o, newWitness()), nil)
	if err != nil {
		return err
	}
	defer first.Close()
	limit, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := first.Mutex("k", &hasp.LockOptions{TTL: worldTTL}).Lock(limit); err == nil {
		return errScenario
	}
	<-o.came
	if info, err := w.stores[0].Inspect(ctx, "k"); err != nil || info.Held {
		w.found = append(w.found, "the key is held for an owner that was released")
	}
	return nil
}

// overtaken is a node that Tries reach after the release of their owner.
type overtaken struct {
	member
	released chan struct{}
	came     chan struct{}
}

func (o *overtaken) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	go func() {
		defer close(o.came)
		<-o.released
		_, _ = o.member.Vote(context.WithoutCancel(ctx), r) // its answer is lost
	}()
	<-ctx.Done()
	return driver.Result{}, ctx.Err()
}

func (o *overtaken) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	defer close(o.released)
	return o.member.Withdraw(ctx, r)
}
