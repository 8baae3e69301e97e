// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pipe_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/pipe"
)

// An agent that ends grants nothing more, and leaves its clients the grace to give back what they have.
func TestEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		b := another(t, a.store)
		other := lockOf(t, b, "other")
		r := a.raw(&pipe.Options{Grace: 10 * time.Second})
		r.ask("lock", `{"key":"k1"}`)
		r.ask("lock", `{"key":"k2"}`)
		id := r.send("lock", `{"key":"other"}`)
		synctest.Wait()
		a.stop()
		seen := map[string]bool{}
		for range 2 {
			switch l := r.next(); {
			case l.Method == "ending" && l.Params.Left == 10_000:
				seen["ending"] = true
			case string(l.ID) == fmt.Sprint(id) && l.kind() == "closed":
				seen["wait"] = true
			default:
				t.Errorf("%+v", l)
			}
		}
		if len(seen) != 2 {
			t.Errorf("the client hears %v", seen)
		}
		if l := r.ask("lock", `{"key":"free"}`); l.kind() != "closed" {
			t.Errorf("a new lock: %+v", l)
		}
		time.Sleep(9 * time.Second)
		if l := r.ask("release", `{"lease":"1"}`); l.Error != nil {
			t.Errorf("in the grace: %+v", l)
		}
		if all := r.rest(); len(all) != 0 {
			t.Errorf("%+v", all)
		}
		if lockOf(t, b, "k1").Abandoned() || !lockOf(t, b, "k2").Abandoned() {
			t.Error("what was released is abandoned, or the other way round")
		}
		_ = other.Release()
	})
}

// Listing of keys in pages, and a key with many waiters, whose labels are as long as they can be.
func TestShowAndList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		b := another(t, a.store)
		all := strings.Repeat("\x01", driver.MaxKey)
		long := &hasp.LockOptions{Reason: strings.Repeat("r", 450), Label: &driver.Label{Host: "h"}}
		want := map[string]bool{}
		for i := range 1000 {
			key := fmt.Sprintf("%04d\x01%s", i, strings.Repeat("\x02", i/2))
			if i%7 == 0 {
				key = fmt.Sprintf("%04d\xff", i)
			}
			want[key] = true
			l, err := b.Mutex(key, long).Lock(t.Context())
			must(t, l, err)
		}
		r := a.raw(nil)
		params, pages := `{}`, 0
		last := ""
		for params != "" {
			l := r.ask("list", params)
			var page pipe.Listing
			if l.Error != nil || json.Unmarshal(l.Result, &page) != nil || len(page.Keys) == 0 {
				t.Fatalf("page %d: %+v", pages, l.Error)
			}
			for _, k := range page.Keys {
				if k.Bytes != nil {
					k.Key = string(k.Bytes)
				}
				if !want[k.Key] || k.Key <= last || k.Holder == nil || !k.Held {
					t.Fatalf("%q after %q is not wanted, or comes again", k.Key, last)
				}
				delete(want, k.Key)
				last = k.Key
			}
			pages, params = pages+1, ""
			if page.Next != nil {
				next, _ := json.Marshal(map[string][]byte{"after": page.Next})
				params = string(next)
			}
		}
		if len(want) > 0 || pages < 5 {
			t.Errorf("%d keys are missing on %d pages", len(want), pages)
		}
		hostile := `{"reason":"` + strings.Repeat("<", 490) + `"}` // which is six times as long when Go writes it
		for range 120 {
			claim := driver.Claim{Key: all, Owner: rand.Text(), Label: hostile, Mode: driver.Shared, Limit: 60}
			_, err := a.store.Try(t.Context(), driver.TryRequest{Claim: claim, TTL: time.Minute, Queue: true, Patience: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
		}
		var k struct {
			Holds, Waiters int
			Holders, Queue []json.RawMessage
		}
		if l := r.ask("show", `{"key":"`+strings.ReplaceAll(all, "\x01", `\u0001`)+`"}`); l.Error != nil || json.Unmarshal(l.Result, &k) != nil {
			t.Fatalf("show: %+v", l.Error)
		}
		if k.Holds != 60 || k.Waiters != 60 || len(k.Holders) == 0 || len(k.Queue) == 0 {
			t.Errorf("%d of %d holders, %d of %d waiters", len(k.Holders), k.Holds, len(k.Queue), k.Waiters)
		}
	})
}

// Modes, several keys, and a grant of the store on which two connections take turns.
func TestModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		one, two := a.client(), a.client()
		lock := func(c *pipe.Client, p pipe.LockParams) *pipe.Lease {
			t.Helper()
			l, err := c.Lock(t.Context(), p)
			return must(t, l, err)
		}
		lock(one, pipe.LockParams{Key: "r", Mode: "shared", Wait: once})
		lock(two, pipe.LockParams{Key: "r", Mode: "shared", Wait: once})
		_, err := two.Lock(t.Context(), pipe.LockParams{Key: "r", Wait: once})
		wantKind(t, err, pipe.Busy)
		slots := map[int]bool{}
		for _, c := range []*pipe.Client{one, two} {
			slots[*lock(c, pipe.LockParams{Key: "s", Slots: 2, Wait: once}).Keys[0].Slot] = true
		}
		if !slots[0] || !slots[1] {
			t.Errorf("the slots are %v", slots)
		}
		if _, err = one.Lock(t.Context(), pipe.LockParams{Key: "s", Slots: 2, Wait: once}); err == nil {
			t.Error("a third slot of two")
		}
		all := lock(one, pipe.LockParams{Keys: []string{"b", "a", "b"}, Wait: once})
		if len(all.Keys) != 3 || all.Keys[1].Key != "a" || all.Fence != "" || all.Keys[0].Fence != all.Keys[2].Fence {
			t.Errorf("%+v", all.Keys)
		}
		_, err = two.Lock(t.Context(), pipe.LockParams{Keys: []string{"free", "a"}, Wait: once})
		if e := wantKind(t, err, pipe.Busy); e.Key != "a" {
			t.Errorf("%+v", e)
		}
		lock(two, pipe.LockParams{Key: "free", Wait: once})

		cohort := pipe.LockParams{Key: "c", Cohort: 60_000}
		first := lock(one, cohort)
		next := make(chan *pipe.Lease)
		for range 2 {
			go func() {
				if l, err := two.Lock(t.Context(), cohort); err == nil {
					next <- l
				}
			}()
		}
		synctest.Wait()
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		turn := <-next
		if turn.Abandoned || turn.Fence == first.Fence {
			t.Errorf("a turn is %+v after %+v", turn.Grant, first.Grant)
		}
		if _, err := one.Lock(t.Context(), pipe.LockParams{Key: "c", Wait: once}); err == nil {
			t.Error("granted beside a turn")
		}
		two.Kill()
		if l := lock(one, pipe.LockParams{Key: "c"}); !l.Abandoned {
			t.Error("a turn of a connection that broke is not abandoned")
		}
	})
}

// A grant of the store goes through the agent's break, extend and status.
func TestLostByABreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		c := a.client()
		kept, err := c.Lock(t.Context(), pipe.LockParams{Key: "kept", TTL: 3000})
		must(t, kept, err)
		broken, err := c.Lock(t.Context(), pipe.LockParams{Key: "broken", TTL: 3000})
		must(t, broken, err)
		var until pipe.Until
		if err := c.Call(t.Context(), "extend", map[string]any{"lease": kept.Lease, "ttl_ms": 50_000}, &until); err != nil || until.Left < 40_000 {
			t.Errorf("extended to %d ms: %v", until.Left, err)
		}
		if err := a.locks.Operator().Break(t.Context(), "broken", broken.Keys[0].Owner); err != nil {
			t.Fatal(err)
		}
		<-broken.Done()
		var e *pipe.Error
		if !errors.As(broken.Err(), &e) || e.Kind != pipe.Lost || !errors.Is(e, hasp.ErrLost) || !errors.Is(e, hasp.ErrNotHeld) {
			t.Errorf("lost by %v", broken.Err())
		}
		for _, method := range []string{"status", "extend"} {
			wantKind(t, c.Call(t.Context(), method, map[string]any{"lease": broken.Lease, "ttl_ms": 1000}, nil), pipe.Lost)
		}
		time.Sleep(time.Hour) // what was told does not shorten what stands
		if kept.Err() != nil {
			t.Error(kept.Err())
		}
		wantKind(t, broken.Release(), pipe.Lost)
		if kept.Release() != nil {
			t.Error("the other lease is lost, too")
		}
	})
}

// A client that ends a lease itself, before its agent ends, releases work that was not finished, of which the agent does not know.
func TestReleaseOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		c, err := pipe.NewClient(t.Context(), a.connect(&pipe.Options{Grace: time.Minute}), "test", 0)
		must(t, c, err)
		defer c.Kill()
		lock := func(key string) *pipe.Lease {
			l, err := c.Lock(t.Context(), pipe.LockParams{Key: key})
			return must(t, l, err)
		}
		lost, finished, left := lock("lost"), lock("finished"), lock("left")
		if err := errors.Join(finished.Release(), left.Abandon()); err != nil {
			t.Error(err)
		}
		a.stop()
		<-lost.Done()
		wantKind(t, lost.Release(), pipe.Lost)
		for _, key := range []string{"lost", "finished", "left"} {
			next, err := a.locks.Mutex(key, nil).Lock(t.Context())
			if must(t, next, err); next.Abandoned() != (key != "finished") {
				t.Errorf("%s: abandoned: %v", key, next.Abandoned())
			}
		}
	})
}
