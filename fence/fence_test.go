// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"errors"
	"fmt"
	"math"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		fence, newest uint64
		ok, stale     bool
	}{
		{1, 0, true, false}, {7, 7, true, false}, {8, 7, true, false}, {6, 7, false, true},
		{0, 0, false, false}, {0, 7, false, false}, {math.MaxInt64, math.MaxInt64, true, false}, {math.MaxInt64 + 1, 0, false, false},
	} {
		err := Check("r", c.fence, c.newest)
		if (err == nil) != c.ok || errors.Is(err, ErrStale) != c.stale {
			t.Errorf("%d: fence %d after %d: %v", i, c.fence, c.newest, err)
		}
		if stale := (*StaleError)(nil); errors.As(err, &stale) && *stale != (StaleError{"r", c.fence, c.newest}) {
			t.Errorf("%d: %+v", i, stale)
		}
	}
}

// A guard is what the tests of each kind have in common.
type guarded interface {
	write(fence uint64) error
	read(fence uint64) error
}

// testGuard has a guard judge a few fences. nothing: a read of what was never written is an error.
func testGuard(t *testing.T, g guarded) {
	t.Helper()
	step := func(what string, err error, want error) {
		t.Helper()
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	step("a first write", g.write(5), nil)
	step("the same holder's second", g.write(5), nil)
	step("a read of a later holder", g.read(9), nil)
	step("a write below a read", g.write(6), nil)
	step("a late write", g.write(5), ErrStale)
	step("a late read", g.read(5), ErrStale)
	step("a read of the writer", g.read(6), nil)
	step("a fence with more digits", g.write(10), nil)
	step("a late write of fewer digits", g.write(9), ErrStale)
	step("the largest fence", g.write(math.MaxInt64), nil)
	step("a late one", g.write(math.MaxInt64-1), ErrStale)
	for _, bad := range []uint64{0, math.MaxInt64 + 1} {
		if err := g.write(bad); err == nil || errors.Is(err, ErrStale) {
			t.Errorf("%d is no fence: %v", bad, err)
		}
		if err := g.read(bad); err == nil || errors.Is(err, ErrStale) {
			t.Errorf("%d is no fence to read with: %v", bad, err)
		}
	}
	var stale *StaleError
	if err := g.write(3); !errors.As(err, &stale) || stale.Fence != 3 || stale.Newest != math.MaxInt64 {
		t.Errorf("%v: %+v", err, stale)
	}
}

type memory struct {
	Memory
	writes int
}

func (m *memory) write(fence uint64) error {
	return m.Write("r", fence, func() error { m.writes++; return nil })
}
func (m *memory) read(fence uint64) error { return m.Read("r", fence, func() error { return nil }) }

func TestMemory(t *testing.T) {
	t.Parallel()
	m := &memory{}
	testGuard(t, m)
	if m.writes != 5 {
		t.Errorf("%d writes were done, want 5", m.writes)
	}
	if err := m.Write("another", 1, func() error { return nil }); err != nil {
		t.Error(err)
	}
}

// A write that fails may have been done in part: nothing smaller may follow it.
func TestMemoryOfAFailedWrite(t *testing.T) {
	t.Parallel()
	var m Memory
	broken := errors.New("broken")
	if err := m.Write("r", 7, func() error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := m.Write("r", 6, func() error { t.Error("written"); return nil }); !errors.Is(err, ErrStale) {
		t.Error(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = m.Write("r", 9, func() error { panic("broken") })
	}()
	if err := m.Write("r", 8, func() error { t.Error("written"); return nil }); !errors.Is(err, ErrStale) {
		t.Error(err)
	}
}

// Readers read together; a writer waits for them, and is alone.
func TestMemoryExcludes(t *testing.T) {
	t.Parallel()
	var m Memory
	in, out, done := make(chan struct{}), make(chan struct{}), make(chan error)
	for range 2 {
		go func() { done <- m.Read("r", 1, func() error { in <- struct{}{}; <-out; return nil }) }()
	}
	<-in
	<-in // both are in it
	wrote := make(chan error, 1)
	go func() { wrote <- m.Write("r", 2, func() error { return nil }) }()
	select {
	case err := <-wrote:
		t.Errorf("written while others read: %v", err)
	default:
	}
	close(out)
	for _, ch := range []chan error{done, done, wrote} {
		if err := <-ch; err != nil {
			t.Error(err)
		}
	}
	n := 0
	for i := range 100 {
		go func() { done <- m.Write("r", uint64(2+i%2), func() error { n++; return nil }) }()
	}
	granted := 0
	for range 100 {
		if err := <-done; err == nil {
			granted++
		}
	}
	if n != granted || n < 50 {
		t.Errorf("%d writes were done, %d say so", n, granted)
	}
}

func ExampleMemory() {
	var guard Memory
	balance := 100
	withdraw := func(fence uint64) error { // the fence is that of the caller's lease
		return guard.Write("account/7", fence, func() error { balance -= 10; return nil })
	}
	fmt.Println(withdraw(41), balance)
	fmt.Println(withdraw(42), balance)
	fmt.Println(withdraw(41), balance)
	// Output:
	// <nil> 90
	// <nil> 80
	// fence: "account/7" was written with fence 42: fence 41 comes too late, its lock was lost; stop, and write nothing 80
}
