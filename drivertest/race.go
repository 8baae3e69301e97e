// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var raceCases = []Case{
	{Name: "OneOwnerAskingAtOnce", // failure case 13
		Rule: "Copies of one request that arrive at once, on several connections, are one grant.",
		run:  oneOwnerAtOnce},
	{Name: "JoinRacesWithRelease", // failure case 15
		Rule:  "An owner that joins the queue while the key is released is granted it, or gets a hint to ask again: no hint is lost.",
		Needs: queueing, run: joinRacesWithRelease},
	{Name: "GivingUpRacesWithRelease",
		Rule:  "When the next in the queue gives up while the key is released, the one behind it is granted the key, or gets a hint.",
		Needs: queueing, run: givingUpRacesWithRelease},
	{Name: "NotSentIsTrue", // nobody would release it
		Rule: "A Try whose error says that it was not sent leaves nothing in the store, neither then nor later.",
		run:  notSentIsTrue},
}

// raceRounds is how often a race is run.
const raceRounds = 50

// atOnce runs all the functions at once.
func atOnce(fs ...func()) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	// The goroutine that is started last tends to run first.
	rand.Shuffle(len(fs), func(i, j int) { fs[i], fs[j] = fs[j], fs[i] })
	for _, f := range fs {
		wg.Go(func() { <-start; f() })
	}
	close(start)
	wg.Wait()
}

// woken waits for a hint, or for the refusal's RetryIn, and asks until granted.
func (e *env) woken(ch <-chan struct{}, d driver.Driver, r contend.Owner, refused driver.Result) {
	e.Helper()
	if ch != nil && (refused.RetryIn == 0 || refused.RetryIn > e.slack) {
		e.hinted(ch)
	}
	e.turn(d, r, refused.RetryIn)
}

func notSentIsTrue(e *env) {
	ds := []driver.Driver{e.d, e.open(), e.open()}
	notSent := make([]contend.Owner, 4*raceRounds)
	var tries sync.WaitGroup
	for i := range notSent {
		tries.Go(func() {
			ctx, cancel := context.WithTimeout(e.ctx, rand.N(4*time.Millisecond))
			defer cancel()
			r := e.ask(fmt.Sprintf("k%d", i))
			r.TTL = 20 * e.ttl
			if _, err := contend.Try(ctx, ds[i%len(ds)], r); driver.IsNotSent(err) {
				notSent[i] = r
			}
		})
	}
	tries.Wait()
	time.Sleep(e.ttl / 2) // time must pass: some requests may be late
	for _, r := range notSent {
		if r.Key != "" {
			e.free(r.Key)
		}
	}
}

func oneOwnerAtOnce(e *env) {
	ds := []driver.Driver{e.d, e.open(), e.open()}
	for range raceRounds / 5 {
		r := e.ask("k")
		e.copiesAtOnce(ds, r)
		e.release(e.d, r)
		e.free("k")
	}
}

// copiesAtOnce sends copies of one request at once, which must be one grant.
func (e *env) copiesAtOnce(ds []driver.Driver, r contend.Owner) {
	e.Helper()
	var mu sync.Mutex
	fences := make(map[uint64]int)
	ask := func(d driver.Driver, r contend.Owner) func() {
		return func() {
			res, err := contend.Try(e.ctx, d, r)
			if err != nil || !res.Granted {
				e.Errorf("a copy of a request: %+v, %v, want a grant", res, err)
			}
			mu.Lock()
			defer mu.Unlock()
			fences[res.Fence]++
		}
	}
	atOnce(ask(ds[0], r), ask(ds[1], r), ask(ds[2], queued(r)), ask(ds[0], queued(r)))
	if len(fences) != 1 {
		e.Errorf("copies of one request were granted with the fences %v", fences)
	}
}

func joinRacesWithRelease(e *env) {
	other := e.open()
	for range raceRounds {
		a, b := e.ask("k"), e.ask("k")
		e.grant(e.d, a)
		ch := e.watch(other, b)
		var res driver.Result
		var err, errRelease error
		atOnce(
			func() { errRelease = contend.Release(e.ctx, e.d, a) },
			func() { res, err = contend.Try(e.ctx, other, queued(b)) })
		if err != nil || errRelease != nil {
			e.Fatalf("Try: %v, Release: %v", err, errRelease)
		}
		if !res.Granted {
			e.woken(ch, other, b, res)
		}
		e.release(other, b)
		e.free("k")
	}
}

func givingUpRacesWithRelease(e *env) {
	other := e.open()
	for range raceRounds {
		a, b, c := e.ask("k"), e.ask("k"), e.ask("k")
		e.grant(e.d, a)
		ch := e.watch(other, c)
		e.join(e.d, b, 0)
		e.join(other, c, 1)
		var errA, errB error
		atOnce(
			func() { errA = contend.Release(e.ctx, e.d, a) },
			func() { errB = contend.Release(e.ctx, other, b) })
		if err := errors.Join(errA, errB); err != nil {
			e.Fatalf("Release: %v", err)
		}
		e.woken(ch, other, c, driver.Result{})
		e.refuse(e.d, queued(b))
		e.release(other, c)
		e.free("k")
	}
}
