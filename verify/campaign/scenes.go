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

var errScene = errors.New("the scene did not come to be: a Lock that should be granted was refused")

// Two sides that have one node in common.
var (
	everywhere = []int{0, 1, 2, 3, 4}
	left       = []int{0, 1, 2}
	right      = []int{2, 3, 4}
)

// cast makes an actor for each set of nodes.
func (w *world) cast(reaches ...[]int) ([]*actor, error) {
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

// lateRelease: a holder whose lease is over releases, and a third one asks for
// what the second one has.
func lateRelease(ctx context.Context, w *world) error {
	as, err := w.cast(everywhere, everywhere, everywhere)
	if err != nil {
		return err
	}
	first := as[0].try(ctx)
	time.Sleep(worldTTL + time.Second)
	second := as[1].try(ctx)
	if first == nil || second == nil {
		return errScene
	}
	first.release()
	as[2].try(ctx)
	return nil
}

// atTheEnd: the nodes' clocks are fast, and another asks right before the lease
// ends by the holder's.
func atTheEnd(ctx context.Context, w *world) error {
	as, err := w.cast(everywhere, everywhere)
	if err != nil {
		return err
	}
	if as[0].try(ctx) == nil {
		return errScene
	}
	time.Sleep(worldTTL * 995 / 1000)
	if as[1].try(ctx) == nil {
		return errScene
	}
	return nil
}

// slowGrant: the answers to a Try are slow, and another asks when the store's
// time is over.
func slowGrant(ctx context.Context, w *world) error {
	as, err := w.cast(everywhere, everywhere)
	if err != nil {
		return err
	}
	begun := time.Now()
	as[0].slow = 500 * time.Millisecond
	if as[0].try(ctx) == nil {
		return errScene
	}
	time.Sleep(worldTTL + 100*time.Millisecond - time.Since(begun))
	if as[1].try(ctx) == nil {
		return errScene
	}
	return nil
}

// slowRenewal is slowGrant with a renewal.
func slowRenewal(ctx context.Context, w *world) error {
	as, err := w.cast(everywhere, everywhere)
	if err != nil {
		return err
	}
	l := as[0].try(ctx)
	if l == nil {
		return errScene
	}
	begun := time.Now()
	as[0].slow = 500 * time.Millisecond
	if err := l.Extend(ctx, worldTTL); err != nil {
		return err
	}
	l.until()
	time.Sleep(worldTTL + 100*time.Millisecond - time.Since(begun))
	if as[1].try(ctx) == nil {
		return errScene
	}
	return nil
}

// splitVote: an attempt fails for want of a majority, and the votes that it got
// are needed by the next.
func splitVote(ctx context.Context, w *world) error {
	as, err := w.cast([]int{0, 1}, left)
	if err != nil {
		return err
	}
	if as[0].try(ctx) != nil {
		return errScene
	}
	time.Sleep(time.Second) // its clean-up runs in the background
	if as[1].try(ctx) == nil {
		w.found = append(w.found, "the votes of a failed attempt are in the way of another")
	}
	return nil
}

// restartBetween: the one node that two sides share is killed and starts empty.
func restartBetween(ctx context.Context, w *world) error {
	return w.bothSides(ctx, (*actor).try, func() { w.stores[2].Restart(nil) })
}

// restartBesideReader is restartBetween with one who only reads.
func restartBesideReader(ctx context.Context, w *world) error {
	return w.bothSides(ctx, (*actor).read, func() { w.stores[2].Restart(nil) })
}

// flushBetween is restartBetween with FLUSHALL.
func flushBetween(ctx context.Context, w *world) error {
	return w.bothSides(ctx, (*actor).try, func() { w.stores[2].Flush() })
}

func (w *world) bothSides(ctx context.Context, first acquire, forget func()) error {
	as, err := w.cast(left, right)
	if err != nil {
		return err
	}
	if l := as[1].try(ctx); l != nil { // the right side knows its nodes
		l.release()
	}
	time.Sleep(time.Second)
	if first(as[0], ctx) == nil {
		return errScene
	}
	forget()
	as[1].try(ctx)
	return nil
}

// clockBehind: the second holder's clock is behind that of the first.
func clockBehind(ctx context.Context, w *world) error { return w.clocksApart(ctx, (*actor).try) }

// writerBehindReader is clockBehind after one who only read.
func writerBehindReader(ctx context.Context, w *world) error {
	return w.clocksApart(ctx, (*actor).read)
}

// acquire is how an actor asks.
type acquire func(*actor, context.Context) *sceneLease

func (w *world) clocksApart(ctx context.Context, first acquire) error {
	a, err := w.actor(0, everywhere...)
	b, err2 := w.actor(-10*time.Second, everywhere...)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	for _, ask := range []func() *sceneLease{func() *sceneLease { return first(a, ctx) }, func() *sceneLease { return b.try(ctx) }} {
		l := ask()
		if l == nil {
			return errScene
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
	as, err := w.cast(left, right)
	if err != nil {
		return err
	}
	if first(as[0], ctx) == nil {
		return errScene
	}
	second(as[1], ctx)
	return nil
}

// readersLeave: of two who read one releases, and then somebody wants to write.
func readersLeave(ctx context.Context, w *world) error {
	as, err := w.cast(everywhere, everywhere, everywhere)
	if err != nil {
		return err
	}
	first, second := as[0].read(ctx), as[1].read(ctx)
	if first == nil || second == nil {
		return errScene
	}
	time.Sleep(time.Second)
	first.release()
	as[2].try(ctx)
	return nil
}

// twoSides: a minority and a majority, cut off from each other.
func twoSides(ctx context.Context, w *world) error {
	as, err := w.cast([]int{0, 1}, right)
	if err != nil {
		return err
	}
	as[0].try(ctx)
	if as[1].try(ctx) == nil {
		return errScene
	}
	return nil
}

// onlyOne: of all nodes only one is reached.
func onlyOne(ctx context.Context, w *world) error {
	a, err := w.actor(0, 2)
	if err != nil {
		return err
	}
	a.try(ctx)
	return nil
}

// overtakenTry: on one store, who asked and had no answer gives up, and what it asked
// for comes after its release.
func overtakenTry(ctx context.Context, w *world) error {
	o := &overtaken{member: w.stores[0], released: make(chan struct{}), came: make(chan struct{})}
	first, err := hasp.New(w.broken.alone(o, newWitness(func(event) {})), nil)
	if err != nil {
		return err
	}
	defer first.Close()
	limit, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := first.Mutex("k", &hasp.LockOptions{TTL: worldTTL}).Lock(limit); err == nil {
		return errScene
	}
	<-o.came
	if info, err := w.stores[0].Inspect(ctx, "k"); err != nil || info.Held {
		w.found = append(w.found, "the key is held for one that was released")
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
