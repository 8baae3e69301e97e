// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp"
)

// A mistake of the program panics in hasp's words, and leaves the client usable.
func TestMistakesPanicInWords(t *testing.T) {
	c := newClient(t, newStore(), nil)
	l := lock(t, c, "held", nil)
	var none context.Context
	run := func(context.Context, *hasp.Lease) error { return nil }
	ctx := t.Context()
	for name, mistake := range map[string]func(){
		"Lock(nil)":        func() { _, _ = c.Mutex("k", nil).Lock(none) },
		"TryLock(nil)":     func() { _, _ = c.Mutex("k", nil).TryLock(none) },
		"LockKeys(nil)":    func() { _, _ = c.LockKeys(none, "k") },
		"Do(nil)":          func() { _ = c.Mutex("k", nil).Do(none, run) },
		"Do without f":     func() { _ = c.Mutex("k", nil).Do(ctx, nil) },
		"Lead without f":   func() { _ = c.Election("k", nil).Lead(ctx, nil) },
		"Leader(nil)":      func() { _, _ = c.Election("k", nil).Leader(none) },
		"Observe(nil)":     func() { c.Election("k", nil).Observe(none) },
		"Inspect(nil)":     func() { _, _ = c.Inspect(none, "k") },
		"Extend(nil)":      func() { _ = l.Extend(none, time.Minute) },
		"Context(nil)":     func() { l.Context(none) },
		"zero Mutex":       func() { _, _ = new(hasp.Mutex).Lock(ctx) },
		"zero Mutex's Do":  func() { _ = new(hasp.Mutex).Do(ctx, run) },
		"zero RWMutex":     func() { _, _ = new(hasp.RWMutex).RLock(ctx) },
		"zero Election":    func() { _, _ = new(hasp.Election).Leader(ctx) },
		"LockAll of zeros": func() { _, _ = hasp.LockAll(ctx, new(hasp.Mutex)) },
		"zero Client":      func() { new(hasp.Client).Mutex("k", nil) },
		"zero Lease":       func() { _ = new(hasp.Lease).Release() },
		"zero Lease's Err": func() { _ = new(hasp.Lease).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.HasPrefix(said, "hasp: ") {
					t.Errorf("it says %s", said)
				}
			}()
			mistake()
		})
	}
	release(t, l)
	release(t, lock(t, c, "k", nil))
}

// A copy of a Lease does not give back what the original still has; go vet finds it.
func TestCopyOfALeaseReleasesNothing(t *testing.T) {
	d := &hooked{Driver: newStore()}
	l := lock(t, newClient(t, d, nil), "k", nil)
	was := reflect.ValueOf(l).Elem()
	copied := reflect.New(was.Type()) // so that go vet does not see it
	copied.Elem().Set(was)
	func() {
		defer func() {
			if said := fmt.Sprint(recover()); !strings.HasPrefix(said, "hasp: a copy of a Lease") {
				t.Errorf("it says %s", said)
			}
		}()
		_ = copied.Interface().(*hasp.Lease).Release()
	}()
	if err := l.Err(); err != nil || d.releases.Load() != 0 {
		t.Errorf("the original: %v; %d releases", err, d.releases.Load())
	}
	release(t, l)
}

// What no engine can add to its clock is an error before the store is asked.
func TestTTLOfCenturies(t *testing.T) {
	d := &hooked{Driver: newStore()}
	c := newClient(t, d, nil)
	const centuries = 290 * 365 * 24 * time.Hour
	if _, err := c.Mutex("k", &hasp.LockOptions{TTL: centuries}).Lock(t.Context()); err == nil || d.tries.Load() != 0 {
		t.Errorf("Lock: %v after %d requests", err, d.tries.Load())
	}
	if err := lock(t, c, "k", nil).Extend(t.Context(), centuries); err == nil || d.renews.Load() != 0 {
		t.Errorf("Extend: %v after %d requests", err, d.renews.Load())
	}
}
