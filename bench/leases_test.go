// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// smoke runs a scenario once under a small load, with the named peers and real
// servers. The figures mean nothing; that each metric has one does.
func smoke(t *testing.T, s *scenario, v variant, names ...string) {
	t.Parallel()
	e := newEnv(t, true)
	for _, p := range s.field(e, peers) {
		if !slices.Contains(names, p.name) {
			continue
		}
		f, err := once(t.Context(), e, s, v, p)
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		for _, m := range s.metrics {
			if _, ok := f[m.Name]; !ok && p.name == baseline {
				t.Errorf("%s has no %s", p.name, m.Name)
			}
		}
		t.Logf("%s: %v", p.name, f)
	}
}

func TestS4(t *testing.T) {
	smoke(t, &s4, variant{n: 200}, baseline, overRueidis, "redislock", "rueidislock")
}

// extendableLocker is a locker that does not renew.
type extendableLocker struct{ extended, released atomic.Int32 }

func (*extendableLocker) Lock(context.Context, string) (unlock, error) {
	return nil, errors.New("Lock of a locker that has to be extended")
}

func (*extendableLocker) Close() error { return nil }

func (l *extendableLocker) lockExtendable(context.Context, string) (extend, unlock unlock, err error) {
	return func(context.Context) error { l.extended.Add(1); return errors.New("not this time") },
		func(context.Context) error { l.released.Add(1); return nil }, nil
}

// A lock without renewal is extended every third of its TTL, also after an
// error, until the pile ends.
func TestPileExtends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &extendableLocker{}
		p := &pile{locker: l, ttl: 30 * time.Second}
		p.living, p.stop = context.WithCancel(t.Context())
		unlock, err := p.take(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30*time.Second + 1)
		synctest.Wait()
		if n := l.extended.Load(); n != 3 {
			t.Errorf("extended %d times in a TTL", n)
		}
		p.stop()
		p.keeper.Wait()
		if err := unlock(t.Context()); err != nil || l.released.Load() != 1 {
			t.Errorf("unlock: %v, released %d times", err, l.released.Load())
		}
	})
}
