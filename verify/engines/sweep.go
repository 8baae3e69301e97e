// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/verify/broken"
)

// Cut is what happens to a message of an operation.
type Cut string

// The cuts. A request cannot be delivered twice within a TCP connection; that one comes late it can.
const (
	Lost Cut = "lost, and the connection reset"
	Mute Cut = "lost, like all after it: the connection is half open"
	Late Cut = "held back until its caller has given up, and then delivered"
)

// Cuts are all of them.
var Cuts = []Cut{Lost, Mute, Late}

// Sweeping says what to cut.
type Sweeping struct {
	Cuts   []Cut
	Ops    []string     // by name; nil: all
	Beside int          // how many are cut side by side; 0 means 8
	First  bool         // end with the first that is found
	Broken broken.Fault // of the driver that is cut off; nil: as it is
}

// Swept is what a sweep did and found.
type Swept struct {
	Steps map[string]map[Cut]int // by operation: at how many steps it was cut
	Found []string
}

// most is more chunks than any operation has.
const most = 80

// sweep is one under way.
type sweep struct {
	t     testing.TB
	store *Store
	o     Sweeping
	near  *Conn  // behind no link
	name  string // begins its keys

	mu     sync.Mutex
	result Swept
	keys   map[string]uint64 // all that were used, with their largest fence
}

// Sweep cuts each operation at each of its messages, in both directions, one after the other until it
// completes uncut, and reports where the driver said what is not so, an answer was not the same the second
// time, two owners held a key, a fence fell, a hint was lost for good, or something was left in the store.
func Sweep(t testing.TB, s *Store, o Sweeping) *Swept {
	t.Helper()
	if o.Beside == 0 {
		o.Beside = 8
	}
	near, err := Open(s.Kind, s.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	w := &sweep{t: t, store: s, o: o, near: near, name: rand.Text()[:5], keys: map[string]uint64{}, result: Swept{Steps: map[string]map[Cut]int{}}}
	w.all()
	w.nothingLeft()
	slices.Sort(w.result.Found)
	return &w.result
}

// all goes through all lanes: an operation, a cut and a direction each.
func (w *sweep) all() {
	var wg sync.WaitGroup
	defer wg.Wait()
	room := make(chan struct{}, w.o.Beside)
	for i := range operations {
		op := &operations[i]
		if w.o.Ops != nil && !slices.Contains(w.o.Ops, op.name) {
			continue
		}
		for _, cut := range w.o.Cuts {
			for _, dir := range []faultproxy.Direction{faultproxy.Up, faultproxy.Down} {
				room <- struct{}{}
				wg.Go(func() {
					w.lane(op, cut, dir)
					<-room
				})
			}
		}
	}
}

func (w *sweep) lane(op *operation, cut Cut, dir faultproxy.Direction) {
	for k := 1; k <= most; k++ {
		s := &step{w: w, op: op, cut: cut, dir: dir, k: k}
		happened := s.run()
		if !happened || w.enough() {
			return
		}
		w.mu.Lock()
		if w.result.Steps[op.name] == nil {
			w.result.Steps[op.name] = map[Cut]int{}
		}
		w.result.Steps[op.name][cut]++
		w.mu.Unlock()
	}
	w.found("%s (%s): there is no end of messages", op.name, cut)
}

func (w *sweep) enough() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.o.First && len(w.result.Found) > 0
}

func (w *sweep) found(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Found = append(w.result.Found, fmt.Sprintf(format, args...))
}

// uses notes a key, and a fence that was granted for it.
func (w *sweep) uses(key string, fence uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys[key] = max(w.keys[key], fence)
}

// nothingLeft checks at the end that every key is free, and can be had with a larger fence than any before.
func (w *sweep) nothingLeft() {
	for key, fence := range w.keys {
		ctx, cancel := context.WithTimeout(w.t.Context(), soon)
		info, err := w.near.Inspect(ctx, key)
		switch {
		case err != nil:
			w.found("%s: at the end: %v", key, err)
		case info.Held || info.Waiters > 0:
			w.found("%s: at the end it is held by %d, and %d wait", key, info.Leases, info.Waiters)
		default:
			r := request(key)
			res, err := w.near.Try(ctx, r)
			if err != nil || !res.Granted || res.Fence <= fence {
				w.found("%s: at the end: %+v, %v, after the fence %d", key, res, err, fence)
			}
			_ = w.near.Release(ctx, driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL, Settled: true}) // what is left is its own
		}
		cancel()
	}
}
