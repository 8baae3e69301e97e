// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/redisdriver"
)

// s15 is how soon a holder hears of a waiter. No peer tells its holders.
var s15 = scenario{
	name: "s15",
	metrics: []metric{
		{"p50", "p50", seconds, lower, false},
		{"p99", "p99", seconds, lower, true},
		{"longest", "longest", seconds, lower, false},
	},
	variants: counts("client", 2),
	takes:    func(_ *env, p *peer) bool { return p.name == baseline },
	run:      runWanted,
	bars: []bar{
		within(baseline, "p99 at most one round trip (2 ms) and 5 ms", 2, "p99", most(0.007)),
	},
}

func runWanted(ctx context.Context, e *env, _ variant, _ *peer) (figures, error) {
	events := make(chan event.Event, 16)
	note := func(_ context.Context, ev *event.Event) {
		if ev.Kind == event.Renewed || ev.Kind == event.Waiting {
			events <- *ev
		}
	}
	var clients [2]*hasp.Client
	for i := range clients {
		rdb := haspRedis(e.slow(2 * time.Millisecond).Redis[0])
		defer rdb.Close()
		var err error
		if clients[i], err = hasp.New(redisdriver.New(rdb, nil), &hasp.Options{Observe: note}); err != nil {
			return nil, err
		}
		defer clients[i].Close()
	}
	next := func(kind event.Kind) (event.Event, error) {
		for {
			select {
			case ev := <-events:
				if ev.Kind == kind {
					return ev, nil
				}
			case <-ctx.Done():
				return event.Event{}, ctx.Err()
			}
		}
	}
	var times hist
	begin, lasts := time.Now(), e.lasts(5*time.Second)
	for n := 0; n < 3 || time.Since(begin) < lasts; n++ {
		took, err := wanted(ctx, clients, next)
		if err != nil {
			return nil, err
		}
		if n >= 3 { // the first ones open connections
			times.add(took)
		}
	}
	return figures{"p50": times.quantile(0.5), "p99": times.quantile(0.99), "longest": times.longest.Seconds()}, nil
}

// wanted has one client hold a key and the other wait for it, once.
func wanted(ctx context.Context, clients [2]*hasp.Client, next func(event.Kind) (event.Event, error)) (time.Duration, error) {
	held, err := clients[0].Mutex(hotKey, nil).Lock(ctx)
	if err != nil {
		return 0, err
	}
	tells := held.Wanted()
	if _, err := next(event.Renewed); err != nil { // it asks
		return 0, err
	}
	got := make(chan error, 1)
	go func() {
		lease, err := clients[1].Mutex(hotKey, nil).Lock(ctx)
		if err == nil {
			err = lease.Release()
		}
		got <- err
	}()
	var heard time.Time
	select {
	case <-tells:
		heard = time.Now()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	joins, err := next(event.Waiting)
	if err == nil {
		err = held.Release()
	}
	return heard.Sub(joins.Sent), errors.Join(err, <-got)
}
