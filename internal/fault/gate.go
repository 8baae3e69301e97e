// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"sync"
	"time"
)

// Gate blocks calls until it is opened, and reports when one has arrived, so that a
// test waits for events instead of durations.
type Gate struct {
	arrived, opened   chan struct{}
	arriveOnce, opens sync.Once
}

// NewGate returns a closed gate.
func NewGate() *Gate {
	return &Gate{arrived: make(chan struct{}), opened: make(chan struct{})}
}

// Arrived is closed when the first call is at the gate.
func (g *Gate) Arrived() <-chan struct{} { return g.arrived }

// Open lets all calls pass, now and later. Opening twice is harmless.
func (g *Gate) Open() { g.opens.Do(func() { close(g.opened) }) }

// pass waits for the gate to open. Each call passes where there is none.
func (g *Gate) pass(ctx context.Context) func() error {
	return func() error {
		if g == nil {
			return nil
		}
		g.arriveOnce.Do(func() { close(g.arrived) })
		select {
		case <-g.opened:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func wait(ctx context.Context, d time.Duration) func() error {
	return func() error {
		if d <= 0 {
			return nil
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func fail(err error) func() error { return func() error { return err } }

func hang(ctx context.Context, yes bool) func() error {
	return func() error {
		if !yes {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

// first runs one step after the other up to the first that fails.
func first(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
