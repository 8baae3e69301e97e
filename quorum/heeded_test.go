// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hasplock/hasp/quorum"
)

// asker asks as often as it is told to, until it has the key.
type asker struct {
	d    *quorum.Driver
	r    contend.Owner
	due  time.Time
	gone bool
}

func (a *asker) asks(t *testing.T) (granted bool) {
	t.Helper()
	if a.gone || time.Now().Before(a.due) {
		return false
	}
	res := mustTry(t, a.d, a.r)
	a.due = time.Now().Add(res.RetryIn)
	if res.RetryIn == 0 { // it would be told
		a.due = time.Now().Add(300 * time.Millisecond)
	}
	return res.Granted
}

// A writer that has the queue node's vote, and waits for readers that were there before
// it, is heeded by those that come later for as long as it asks.
func TestReadersHeedAWaitingWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := voting(t, 5, memdriver.NodeOptions{})
		first, ts := taps(t, stores)
		mustTry(t, first, ask("warm"))
		ts[0].hook(func() { // the queue node does not hear of this reader
			ts[0].try = func(ctx context.Context, _ driver.VoteRequest) error { <-ctx.Done(); return ctx.Err() }
		})
		before := ask("k")
		before.Mode = driver.Shared
		if res := mustTry(t, first, before); !res.Granted {
			t.Fatalf("refused: %+v", res)
		}
		wd, _ := taps(t, stores)
		rd, _ := taps(t, stores)
		mustTry(t, wd, ask("warm2"))
		mustTry(t, rd, ask("warm3"))
		writer, reader := &asker{d: wd, r: ask("k")}, &asker{d: rd, r: ask("k")}
		writer.r.Queue, reader.r.Queue, reader.r.Mode = true, true, driver.Shared

		for begun := time.Now(); time.Since(begun) < 5*time.Second; time.Sleep(time.Millisecond) {
			if writer.asks(t) {
				t.Fatal("the writer has the key beside a reader")
			}
			if reader.asks(t) {
				t.Fatalf("a reader passed the writer that waits, after %v", time.Since(begun))
			}
		}
		if err := contend.Release(t.Context(), first, before); err != nil {
			t.Fatal(err)
		}
		for begun := time.Now(); !writer.asks(t); time.Sleep(time.Millisecond) {
			if reader.asks(t) || time.Since(begun) > time.Second {
				t.Fatal("the writer does not come next")
			}
		}
	})
}

// One that no longer asks is heeded for half a second.
func TestReadersHeedNoDeadWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := voting(t, 5, memdriver.NodeOptions{})
		rd, _ := taps(t, stores)
		mustTry(t, rd, ask("warm"))
		stores[0].Hold("k", nodeMaxTTL, driver.Label{})
		reader := &asker{d: rd, r: ask("k")}
		reader.r.Queue, reader.r.Mode = true, driver.Shared
		begun := time.Now()
		for ; !reader.asks(t); time.Sleep(time.Millisecond) {
			if time.Since(begun) > time.Second {
				t.Fatal("a reader waits for a writer that is gone")
			}
		}
	})
}

// A reader in the queue is told that the holder shares the key now, where only the queue node
// does not know of it.
func TestReaderHearsOfAConversion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := voting(t, 3, memdriver.NodeOptions{})
		hd, ts := taps(t, stores)
		rd, _ := taps(t, stores)
		mustTry(t, rd, ask("warm"))
		writer, reader := ask("k"), &asker{d: rd, r: ask("k")}
		mustTry(t, hd, writer)
		synctest.Wait() // the third node has voted, too: it is to convert what it has
		reader.r.Queue, reader.r.Mode = true, driver.Shared
		hints, err := contend.Watch(t.Context(), rd, reader.r)
		if err != nil {
			t.Fatal(err)
		}
		if reader.asks(t) {
			t.Fatal("a reader beside a writer")
		}
		ts[0].hook(func() {
			ts[0].try = func(ctx context.Context, _ driver.VoteRequest) error { <-ctx.Done(); return ctx.Err() }
		})
		writer.Mode, writer.Convert = driver.Shared, true
		if res := mustTry(t, hd, writer); !res.Granted {
			t.Fatalf("not converted: %+v", res)
		}
		for begun := time.Now(); !reader.asks(t); {
			select {
			case <-hints:
				reader.due = time.Now()
			case <-time.After(time.Until(reader.due)):
			}
			if time.Since(begun) > time.Second {
				t.Fatal("a reader waits beside one that reads")
			}
		}
	})
}
