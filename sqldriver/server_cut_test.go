// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/stall"
)

// through returns the database behind a link that can be cut.
func (d database) through(t testing.TB) (database, *faultproxy.Proxy) {
	t.Helper()
	var addr string
	if d.postgres() {
		u, err := url.Parse(d.dsn)
		must(t, err)
		addr = u.Host
	} else {
		addr = d.dsn[strings.Index(d.dsn, "(")+1 : strings.Index(d.dsn, ")")]
	}
	p := faultproxy.New(t, addr)
	d.dsn = strings.Replace(d.dsn, addr, p.Addr(), 1)
	return d, p
}

// cutAt breaks the link at the n-th chunk in a direction: which is lost. It
// returns a function that says whether there were that many, when the link is broken.
func cutAt(p *faultproxy.Proxy, dir faultproxy.Direction, n int) (happened func() bool) {
	var seen atomic.Int64
	over := make(chan struct{})
	p.Hook(func(c faultproxy.Chunk) bool {
		if c.Dir != dir || seen.Add(1) != int64(n) {
			return false
		}
		go func() { // within the hook it would wait for itself
			p.Reset()
			close(over)
		}()
		return true
	})
	return func() bool {
		if seen.Load() < int64(n) {
			return false
		}
		<-over
		return true
	}
}

// Rule: wherever the link breaks, a request that is said not to have been sent left
// nothing, one that was answered is as it was answered, and asking again puts it right.
func everyCut(t *testing.T, d database) {
	far, p := d.through(t)
	near := d.open(t)
	shared, place := request("shared"), queued(request("place"))
	shared.Mode, shared.Limit = driver.Shared, 2
	for name, r := range map[string]contend.Owner{"exclusive": request("exclusive"), "shared": shared, "place": place} {
		for dir, word := range map[faultproxy.Direction]string{faultproxy.Up: "request", faultproxy.Down: "answer"} {
			for n := 1; ; n++ {
				stopIf(t, n > 40, "%s: there is no end of chunks", name)
				fresh := request(fmt.Sprint(r.Key, dir, n)) // not one with somebody's tombstone
				fresh.Mode, fresh.Limit, fresh.Queue, fresh.Settled = r.Mode, r.Limit, r.Queue, true
				p.Hook(nil)
				s := far.open(t)
				_, err := s.Inspect(t.Context(), "warm") // it is connected
				must(t, err)
				if r.Queue {
					granted(t, near, request(fresh.Key))
				}
				happened := cutAt(p, dir, n)
				if fresh.Settled = cutTry(t, near, s, fresh, happened); !happened() {
					break
				}
				p.Hook(nil)
				happened = cutAt(p, dir, n)
				err = contend.Release(t.Context(), s, fresh)
				p.Hook(nil)
				again := contend.Release(t.Context(), near, fresh)
				if err == nil && !errors.Is(again, driver.ErrNotHeld) || again != nil && !errors.Is(again, driver.ErrNotHeld) {
					t.Errorf("%s, %s %d: released (%v), and again: %v", name, word, n, err, again)
				}
				if err != nil && !happened() && !errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("%s, %s %d: the release fails without a cut: %v", name, word, n, err)
				}
				failIf(t, found(t, near, fresh), "%s, %s %d: it is still there after its release", name, word, n)
			}
		}
	}
}

// cutTry reports whether no Try can arrive later.
func cutTry(t *testing.T, near, s *Server, r contend.Owner, happened func() bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	res, err := contend.Try(ctx, s, r)
	answered := err == nil || driver.IsNotSent(err)
	there := found(t, near, r)
	switch {
	case err == nil && !there:
		t.Errorf("%s: answered %+v, and nothing is there", r.Key, res)
	case driver.IsNotSent(err) && there:
		t.Errorf("%s: it was said not to be sent (%v), and is there", r.Key, err)
	case err != nil && !happened():
		t.Errorf("%s: it fails without a cut: %v", r.Key, err)
	}
	again, err := contend.Try(t.Context(), near, r)
	must(t, err)
	if again.Granted == r.Queue || again.Granted && res.Granted && again.Fence != res.Fence {
		t.Errorf("%s: asked again: %+v, before %+v", r.Key, again, res)
	}
	return answered
}

// found says whether an owner holds its key, or waits for it.
func found(t *testing.T, d driver.Driver, r contend.Owner) bool {
	t.Helper()
	info := inspect(t, d, r.Key)
	for _, h := range info.Holders {
		if h.Holder.Owner == r.Owner {
			return true
		}
	}
	for _, h := range info.Queue {
		if h.Owner == r.Owner {
			return true
		}
	}
	return false
}

// counting counts what is sent over a link from now on.
func counting(p *faultproxy.Proxy) *atomic.Int64 {
	var sent atomic.Int64
	p.Hook(func(c faultproxy.Chunk) bool {
		if c.Dir == faultproxy.Up {
			sent.Add(1)
		}
		return false
	})
	return &sent
}

// Rule: a free key costs one request, and so do its renewal and its release.
func oneRequest(t *testing.T, d database) {
	far, p := d.through(t)
	s, r := far.open(t), settled(request("k"))
	sent := counting(p)
	for round := range 3 {
		for _, c := range []struct {
			name string
			call func()
		}{
			{"Try", func() { granted(t, s, r) }},
			{"Renew", func() { renewed(t, s, r) }},
			{"Release", func() { must(t, contend.Release(t.Context(), s, r)) }},
		} {
			sent.Store(0)
			c.call()
			s.under.Wait() // the first makes a row, and sweeps
			if n := sent.Load(); round == 2 && n != 1 {
				t.Errorf("%s sent %d requests", c.name, n)
			}
		}
	}
}

// Rule: a call ends soon after its context, and Close after it, whatever the network does.
func blackHole(t *testing.T, d database) {
	far, p := d.through(t)
	s := far.open(t)
	r := request("k")
	granted(t, s, r)
	shared := request("shared")
	shared.Mode = driver.Shared
	p.Swallow(true, true)
	lost := stall.Watch(t)
	for name, call := range map[string]func(ctx context.Context) error{
		"Try":        func(ctx context.Context) error { _, err := contend.Try(ctx, s, request("new")); return err },
		"shared Try": func(ctx context.Context) error { _, err := contend.Try(ctx, s, shared); return err },
		"Release":    func(ctx context.Context) error { return contend.Release(ctx, s, r) },
		"Inspect":    func(ctx context.Context) error { _, err := s.Inspect(ctx, "k"); return err },
		"Renew": func(ctx context.Context) (err error) {
			s.Renew(ctx, []driver.RenewRequest{r.Renewal()}, func(_ int, r driver.Renewal) { err = r.Err })
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		began := time.Now()
		err := call(ctx)
		cancel()
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) && s.Classify(err) != driver.ClassUnreachable || took > 5*time.Second+lost() || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s ended after %v: %v", name, took, err)
		}
	}
	p.Clear()
	p.Reset()
	must(t, s.Close())
}

// Rule: a lease stands while the server is killed and comes back, and fences go on; the
// errors of dead connections are those of a server that cannot be reached.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	for name, kind := range serverKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := kind.start(t)
			s := kind.empty(t, server).open(t)
			held, other := request("held"), settled(request("other"))
			fence := granted(t, s, held).Fence
			var newest uint64
			for range 3 {
				for range 5 {
					res := granted(t, s, other)
					failIf(t, res.Fence <= newest, "the fence is %d, after %d", res.Fence, newest)
					newest = res.Fence
					must(t, contend.Release(t.Context(), s, other))
				}
				server.Restart()
				waitFor(t, "the dead connections of the pool have been found", func() bool {
					_, err := s.Inspect(t.Context(), "held")
					if err != nil && s.Classify(err) != driver.ClassUnreachable {
						t.Errorf("%v (class %d)", err, s.Classify(err))
					}
					return err == nil
				})
				if res := try(t, s, request("held")); res.Granted || res.Holder.Owner != held.Owner {
					t.Errorf("the key is not held any more: %+v", res)
				}
				if res := granted(t, s, held); res.Fence != fence {
					t.Errorf("the fence is %d, was %d", res.Fence, fence)
				}
			}
		})
	}
}
