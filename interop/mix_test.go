// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/internal/testserver"
)

const (
	mixHolds  = 600
	mixTTL    = 100 * time.Millisecond
	mixThink  = 10 * time.Millisecond // at most, between two holds of a client
	mixWork   = 3 * time.Millisecond  // at most, while it holds the key
	mixCrash  = 20                    // one of so many holds is never released
	mixOfKind = 2
)

// mix is a run of many clients of all kinds on one key.
type mix struct {
	testing.TB
	ours, theirs string // the key, as we and as the peers call it

	log    history.Log
	enough chan struct{} // closed when every client has to stop
	left   atomic.Int64  // holds until then
}

// taken is what a client got, how long it may believe in it, and how it gives
// it back.
type taken struct {
	hold     history.Hold
	deadline time.Time
	free     func() error
}

// Rule: whichever library holds the key, it holds it alone: the times
// in which clients believed to hold it are disjoint, and our fences rise.
func TestAllKindsExcludeEachOther(t *testing.T) {
	s := testserver.Redis(t)
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			m := &mix{TB: t, enough: make(chan struct{})}
			m.ours, m.theirs = (&bench{TB: t, layout: l}).key("k")
			m.left.Store(mixHolds)
			var wg sync.WaitGroup
			for range mixOfKind {
				ours := newLocks(t, s, l, nil).Mutex(m.ours, &hasp.LockOptions{TTL: mixTTL, NoRenew: true})
				wg.Go(func() { m.run(func() (*taken, error) { return m.takeOurs(ours) }) })
				for _, p := range peers {
					b := &bench{TB: t, peer: p, rdb: dial(t, s)}
					wg.Go(func() { m.run(func() (*taken, error) { return m.takeTheirs(b) }) })
				}
			}
			wg.Wait()
			m.check()
		})
	}
}

// run locks the key again and again.
func (m *mix) run(take func() (*taken, error)) {
	for {
		select {
		case <-m.enough:
			return
		case <-time.After(rand.N(mixThink)):
		}
		got, err := take()
		if err != nil {
			m.Error(err)
		}
		if got == nil {
			continue
		}
		h := m.log.Acquired(got.hold, got.deadline)
		if rand.N(mixCrash) != 0 {
			time.Sleep(rand.N(mixWork)) // the work
			m.log.Released(h)
			if err := got.free(); err != nil {
				m.Error(err)
			}
		}
		if m.left.Add(-1) == 0 {
			close(m.enough)
		}
	}
}

func (m *mix) takeOurs(mutex *hasp.Mutex) (*taken, error) {
	start := time.Now()
	l, err := mutex.Lock(m.Context())
	if e := (*hasp.Error)(nil); time.Since(start) > mixTTL*9/10 && errors.As(err, &e) && (e.Class == driver.ClassUnreachable || e.Class == driver.ClassUnknown) {
		return nil, nil // this machine was slow: no answer within the TTL
	}
	if err != nil {
		return nil, err
	}
	return &taken{history.Hold{Key: "k", Owner: "hasp", Fence: l.Fence()}, l.Deadline(), func() error {
		if err := l.Release(); !errors.Is(err, hasp.ErrLost) {
			return err
		}
		return nil // this machine was slow
	}}, nil
}

func (m *mix) takeTheirs(b *bench) (*taken, error) {
	// Redis counts whole milliseconds: a careful peer stops one before.
	start := time.Now()
	deadline := start.Add(mixTTL - time.Millisecond)
	u, err := b.peer.obtain(m.Context(), b.rdb, m.theirs, mixTTL)
	if err != nil && time.Since(start) > mixTTL*9/10 {
		return nil, nil // this machine was slow: no time is left of the TTL
	}
	if u == nil || err != nil {
		return nil, err
	}
	return &taken{history.Hold{Key: "k", Owner: b.peer.name}, deadline, func() error {
		_, err := u(m.Context())
		return err
	}}, nil
}

func (m *mix) check() {
	holds := m.log.Holds()
	if err := history.Check(holds); err != nil {
		m.Error(err)
	}
	count := map[string]int{}
	for _, h := range holds {
		count[h.Owner]++
	}
	if len(count) != len(peers)+1 {
		m.Error("some kinds of client never held the key")
	}
	m.Logf("holds: %v", count)
}
