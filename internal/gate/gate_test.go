// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package gate_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/gate"
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestClose(t *testing.T) {
	g := gate.New()
	if !g.Enter() {
		t.Fatal("an open gate lets nobody in")
	}
	if g.Open.Err() != nil || g.Base.Err() != nil {
		t.Error("a context of an open gate has ended")
	}
	if !g.Close() || g.Close() {
		t.Error("the first Close closes, a second does not")
	}
	if g.Enter() {
		t.Error("a closed gate lets somebody in")
	}
	if g.Open.Err() == nil || g.Base.Err() != nil {
		t.Error("Close ends Open, and not Base")
	}
	g.EnterLate() // the clean-up of the call that is in
	g.Leave()
	if isClosed(g.Idle()) {
		t.Error("idle while the clean-up is under way")
	}
	g.Leave()
	if !isClosed(g.Idle()) {
		t.Error("not idle once all have left")
	}
	if g.Stop(); g.Base.Err() == nil {
		t.Error("Stop ends Base")
	}
}

func TestCloseOfAnIdleGate(t *testing.T) {
	g := gate.New()
	g.Enter()
	g.Leave()
	if isClosed(g.Idle()) {
		t.Error("an open gate is not idle for good")
	}
	if g.Close(); !isClosed(g.Idle()) {
		t.Error("a closed gate that nobody is in is idle")
	}
}

func TestDuring(t *testing.T) {
	g := gate.New()
	parent, cancel := context.WithCancel(t.Context())
	ctx, done, err := g.During(parent)
	if err != nil {
		t.Fatal(err)
	}
	other, otherDone, err := g.During(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if cancel(); ctx.Err() == nil || other.Err() != nil {
		t.Error("the context ends with its parent, and with no other's")
	}
	g.Close()
	if <-other.Done(); !errors.Is(context.Cause(other), driver.ErrClosed) {
		t.Errorf("the cause of the end is %v", context.Cause(other))
	}
	done()
	if isClosed(g.Idle()) {
		t.Error("idle while one is in")
	}
	if otherDone(); !isClosed(g.Idle()) {
		t.Error("not idle once all have left")
	}
	if _, _, err := g.During(t.Context()); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("During of a closed gate: %v", err)
	}
}
