// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/history"
)

// Whatever links are cut, reset or silent, and whatever sessions expire by that: only those that share a key hold it together,
// fences rise, and in the end every key can be had.
func TestCutLinks(t *testing.T) {
	t.Parallel()
	for layout, name := range map[Layout]string{ReadWrite: "ReadWrite", Semaphore: "Semaphore"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cutLinks(t, layout)
		})
	}
}

func cutLinks(t *testing.T, layout Layout) {
	const clients, workers, keys, lasts = 3, 9, 2, 15 * time.Second
	w := newWorld(t)
	var log history.Log
	var cs []*hasp.Client
	var links []*faultproxy.Proxy
	for range clients {
		d, p := w.behind(brief)
		d = New(d.c, &Options{Root: w.root, Layout: layout})
		c, err := hasp.New(d, nil)
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		cs, links = append(cs, c), append(links, p)
	}
	ctx, cancel := context.WithTimeout(w.ctx, lasts)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { cut(ctx, links) })
	for i := range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				contendFor(ctx, t, cs[i%clients], string(rune('a'+rand.IntN(keys))), &log)
			}
		})
	}
	wg.Wait()
	holds := log.Holds()
	if err := history.Check(holds); err != nil {
		t.Error(err)
	}
	t.Logf("%d holds", len(holds))
	for _, p := range links {
		p.Clear()
	}
	for i := range keys {
		l, err := cs[0].Mutex(string(rune('a'+i)), &hasp.LockOptions{TTL: brief / 2}).Lock(w.ctx)
		must(t, err)
		if err := l.Release(); err != nil && !errors.Is(err, hasp.ErrLost) {
			t.Error(err)
		}
	}
}

// cut breaks links in all ways until ctx ends.
func cut(ctx context.Context, links []*faultproxy.Proxy) {
	for ctx.Err() == nil {
		p := links[rand.IntN(len(links))]
		switch rand.IntN(5) {
		case 0:
			p.Reset()
		case 1:
			p.CloseAll()
		case 2:
			p.Swallow(false, true) // answers are lost
		case 3:
			p.Swallow(true, true)
		case 4:
			p.Refuse()
			p.Reset()
		}
		select {
		case <-time.After(rand.N(brief / 2)):
		case <-ctx.Done():
		}
		if rand.IntN(3) > 0 {
			p.Clear()
			p.Reset()
		}
	}
}

// contendFor holds a key once, or tries to for a while.
func contendFor(ctx context.Context, t *testing.T, c *hasp.Client, key string, log *history.Log) {
	ctx, cancel := context.WithTimeout(ctx, brief)
	defer cancel()
	m := c.RWMutex(key, &hasp.LockOptions{TTL: brief / 2})
	lock, h := m.Lock, history.Hold{Key: key}
	if rand.IntN(2) == 0 {
		lock, h.Shared = m.RLock, true
	}
	l, err := lock(ctx)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, hasp.ErrHeld) && !errors.Is(err, hasp.ErrLost) {
			t.Logf("Lock: %v", err)
		}
		return
	}
	h.Owner, h.Fence = l.Owner(), l.Fence()
	hold := log.Acquired(h, l.Deadline())
	select {
	case <-l.Done():
	case <-time.After(rand.N(20 * time.Millisecond)):
		log.Extended(hold, l.Deadline())
	}
	log.Released(hold)
	_ = l.Release() // the link may be cut
}

// What owners have that never ask again is given up, whatever was lost on the way, although their session goes on.
func TestNothingStaysAfterCutLinks(t *testing.T) {
	t.Parallel()
	for layout, name := range map[Layout]string{ReadWrite: "ReadWrite", Semaphore: "Semaphore"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			var links []*faultproxy.Proxy
			for range 3 {
				d, p := w.behind(time.Hour)
				d = New(d.c, &Options{Root: w.root, Layout: layout})
				links = append(links, p)
				for range 3 {
					wg.Go(func() {
						for ctx.Err() == nil {
							askAndLeave(ctx, d)
						}
					})
				}
			}
			wg.Go(func() { cut(ctx, links) })
			wg.Wait()
			for _, p := range links {
				p.Clear()
				p.Reset()
			}
			d := New(w.admin, &Options{Root: w.root, Layout: layout})
			w.eventually("nothing is left", func() bool {
				for _, err := range d.List(w.ctx, "") {
					must(t, err)
					return false
				}
				return true
			})
		})
	}
}

// askAndLeave has an owner ask a few times for a key, and perhaps release it.
func askAndLeave(ctx context.Context, d *Driver) {
	r := queued(ask(string(rune('a' + rand.IntN(2)))))
	r.TTL, r.Patience = time.Second, time.Second
	if rand.IntN(2) == 0 {
		r = reader(r)
	}
	for range 1 + rand.IntN(4) {
		one, cancel := context.WithTimeout(ctx, time.Duration(200+rand.IntN(2)*9000)*time.Millisecond)
		res, err := contend.Try(one, d, r)
		cancel()
		if err == nil && res.Granted && r.Mode == driver.Exclusive && rand.IntN(2) == 0 {
			r.Convert, r.Mode = true, driver.Shared
		}
		time.Sleep(rand.N(20 * time.Millisecond))
	}
	if rand.IntN(3) == 0 {
		_ = contend.Release(ctx, d, r)
	}
}
