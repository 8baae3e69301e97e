// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/internal/stall"
)

var randomCases = []Case{
	{Name: "RandomMix", // failure cases 28 and 34
		Rule: "Whatever many clients do at once, with waits that are cancelled and holders that convert or vanish: only owners that share a key hold it together, up to their limits and with different slots, fences rise, every owner that keeps waiting is granted the key, and no key is available to a waiter that asks only on hints.",
		run:  randomMix},
}

// mix is a random run on a few keys.
type mix struct {
	*env
	log      history.Log
	seed     uint64
	vanished atomic.Int64

	mu    sync.Mutex
	kept  []*history.Hold // how long the store may have kept a key for an owner
	waits []history.Wait
}

func randomMix(e *env) {
	const clients, workers, keys, rounds = 4, 12, 3, 12
	m := &mix{env: e, seed: uint64(time.Now().UnixNano())}
	e.Logf("seed %d", m.seed)
	ds := make([]driver.Driver, clients)
	for i := range ds {
		ds[i] = e.open()
	}
	if !e.fake {
		stall.Of(e, e.probe) // the mix's own requests excuse nothing
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(m.seed, uint64(w)))
			for range rounds {
				if !m.round(ds[w%clients], rnd, "k"+strconv.Itoa(rnd.IntN(keys))) {
					return
				}
			}
		})
	}
	wg.Wait()
	holds := m.log.Holds()
	if !e.traits.Fencing {
		for i := range holds {
			holds[i].Fence = 0
		}
	}
	if err := history.Check(holds); err != nil {
		e.Error(err)
	}
	if e.fake && e.traits.Queue == driver.QueueHandoff { // otherwise a claim may be late
		if err := history.CheckOrder(holds); err != nil {
			e.Error(err)
		}
	}
	if err := history.CheckIdle(m.stays(), m.waits, func(string, time.Time, time.Time) time.Duration { return m.slack + m.stalled() }); err != nil {
		e.Error(err)
	}
	e.Logf("%d holds, %d of them ended by expiry", len(holds), m.vanished.Load())
	e.eventually(3*e.ttl, "everything is over", func() bool { return len(e.list("")) == 0 })
}

// stays returns how long the store may have kept each key for an owner.
func (m *mix) stays() []history.Hold {
	kept := make([]history.Hold, len(m.kept))
	for i, h := range m.kept {
		kept[i] = *h
	}
	return kept
}

// keep records that the store was asked to keep a key for ttl, and answered now.
func (m *mix) keep(h *history.Hold, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.To = time.Now().Add(ttl)
}

// round is one acquisition: it may give up, and a holder may vanish.
func (m *mix) round(d driver.Driver, rnd *rand.Rand, key string) (ok bool) {
	r := m.mode(rnd, m.ask(key))
	r.TTL = max(m.ttl/2+rand.N(m.ttl), m.traits.MinTTL)
	gives := time.Duration(1 << 62)
	if rnd.IntN(4) == 0 {
		gives = rand.N(m.ttl)
	}
	h, kept, err := m.acquire(d, r, gives)
	if err != nil {
		m.Errorf("%s on %q: %v", r.Owner, key, err)
		m.giveBack(d, r) // its place would be in the way of all others
		return false
	}
	if h == nil {
		return m.giveBack(d, r)
	}
	m.work(rnd)
	if r.Mode == driver.Exclusive && m.traits.Shared && rnd.IntN(3) == 0 {
		if r, ok = m.convert(d, m.sharing(rnd, converting(r)), h, kept); !ok {
			m.giveBack(d, r)
			return false
		}
		m.work(rnd)
	}
	r.End = driver.End(rnd.IntN(3))
	if rnd.IntN(16) == 0 { // vanished
		m.vanished.Add(1)
		return true
	}
	if rnd.IntN(3) == 0 {
		start := time.Now()
		contend.Renew(m.ctx, d, []contend.Owner{r}, func(_ int, a driver.Renewal) {
			if a.Err == nil {
				m.log.Extended(h, start.Add(sure(a.TTL)))
				m.keep(kept, a.TTL)
			}
		})
	}
	m.log.Released(h)
	ok = m.giveBack(d, r)
	m.keep(kept, 0)
	return ok
}

// mode makes some requests share the key.
func (m *mix) mode(rnd *rand.Rand, r contend.Owner) contend.Owner {
	if !m.traits.Shared || rnd.IntN(2) == 0 {
		return r
	}
	return m.sharing(rnd, r)
}

// sharing makes a request Shared, with a limit or without.
func (m *mix) sharing(rnd *rand.Rand, r contend.Owner) contend.Owner {
	if !m.traits.Slots {
		return sharing(r, 0)
	}
	return sharing(r, rnd.IntN(4))
}

func (m *mix) work(rnd *rand.Rand) { time.Sleep(time.Duration(rnd.Int64N(int64(m.ttl / 20)))) }

// convert returns r in Shared mode, unless its lease ended.
func (m *mix) convert(d driver.Driver, r contend.Owner, h, kept *history.Hold) (_ contend.Owner, ok bool) {
	h.Limit = r.Limit
	m.log.Downgraded(h)
	start := time.Now()
	res, err := contend.Try(m.ctx, d, r)
	if err != nil || res.Granted && (res.Fence != h.Fence || res.Slot != 0) {
		m.Errorf("Convert by %s with the fence %d: %+v, %v", r.Owner, h.Fence, res, err)
		return r, false
	}
	if res.Granted {
		m.log.Extended(h, start.Add(sure(res.TTL)))
		m.keep(kept, res.TTL)
		kept.Limit, kept.Down = r.Limit, time.Now()
	}
	r.Convert = false
	return r, true
}

func (m *mix) giveBack(d driver.Driver, r contend.Owner) bool {
	if err := contend.Release(m.ctx, d, r); err != nil && !errors.Is(err, driver.ErrNotHeld) {
		m.Errorf("Release by %s: %v", r.Owner, err)
		return false
	}
	return true
}

// acquire waits like hasp: watch, join, then ask on a hint, at RetryIn, or with each
// sign of life. It gives up after gives, and returns nil.
func (m *mix) acquire(d driver.Driver, r contend.Owner, gives time.Duration) (h, kept *history.Hold, err error) {
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	hints, err := contend.Watch(ctx, d, r)
	if err != nil {
		return nil, nil, err
	}
	r.Queue = m.traits.Queue != driver.QueueNone
	began := time.Now()
	hold := history.Hold{Key: r.Key, Owner: r.Owner, Shared: r.Mode == driver.Shared, Limit: r.Limit}
	wait := history.Wait{Key: r.Key, Owner: r.Owner, Shared: hold.Shared, Limit: r.Limit}
	defer func() { m.waited(wait, h == nil) }()
	// All before it may vanish, one after another.
	limit := 24*m.ttl + m.slack
	for {
		start, asked := time.Now(), m.log.Tick()
		res, err := contend.Try(ctx, d, r)
		if err != nil {
			return nil, nil, err
		}
		waited := time.Since(began)
		if waited > limit+m.stalled() {
			return nil, nil, errors.New("not granted, or only after " + waited.String())
		}
		if res.Granted {
			hold.Fence, hold.Slot = res.Fence, res.Slot
			h = m.log.Acquired(hold, start.Add(sure(res.TTL)))
			return h, m.keeps(*h, res.TTL), nil
		}
		if wait.Asked.IsZero() && r.Queue {
			wait.Asked, wait.From = start, time.Now()
			hold.Asked, hold.Queued = asked, m.log.Tick()
		}
		if waited > gives {
			return nil, nil, nil
		}
		pause := r.Patience / 3
		if hints == nil {
			pause = m.ttl / 3
		}
		if res.RetryIn > 0 {
			pause = min(pause, res.RetryIn)
		}
		select {
		case <-hints:
		case <-time.After(min(pause, max(gives-waited, 0)+time.Millisecond)):
		}
	}
}

// keeps records that the store keeps a key for h.
func (m *mix) keeps(h history.Hold, ttl time.Duration) *history.Hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.To = time.Now().Add(ttl)
	m.kept = append(m.kept, &h)
	return &h
}

// waited records a wait that has ended. An owner that gives up keeps its place until its
// Release arrives, and need not claim the key.
func (m *mix) waited(w history.Wait, gaveUp bool) {
	if w.Asked.IsZero() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	w.To, w.Away = time.Now(), gaveUp
	m.waits = append(m.waits, w)
}
