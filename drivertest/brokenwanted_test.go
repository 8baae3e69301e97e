// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"runtime"
	"sync"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

// latest are the last of each key that asked to be told of a join.
type latest struct {
	mu  sync.Mutex
	all map[string]func()
}

func (l *latest) note(key string, wanted func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = make(map[string]func())
	}
	l.all[key] = wanted
}

func (l *latest) tell(key string) {
	l.mu.Lock()
	wanted := l.all[key]
	l.mu.Unlock()
	if wanted != nil {
		wanted()
	}
}

// tellsLast returns an open function of an engine that tells, for each key, the last that asked. when says whether
// a refused request is told of, before which so many waited; forget: a Renew without Wanted takes an earlier one back.
func tellsLast(when func(s *memdriver.Store, r driver.VoteRequest, before int) bool, forget bool) engine {
	return one(func(s *memdriver.Store, p *patched) {
		l := &latest{}
		p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
			if !r.Queue && (r.Wanted != nil || forget) {
				l.note(r.Key, r.Wanted)
			}
			r.Wanted = nil
			return renewOne(ctx, s, r)
		}
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			before := looked(s, r.Key).Waiters
			res, err := s.Vote(ctx, r)
			if err == nil && !res.Granted && when(s, r, before) {
				l.tell(r.Key)
			}
			return res, err
		}
	})
}

func joined(s *memdriver.Store, r driver.VoteRequest, before int) bool {
	return looked(s, r.Key).Waiters > before
}

var brokenWanted = []brokenEngine{
	{"nobody is told of a join", "JoinIsTold JoinIsToldOnce JoinIsToldToSharers JoinIsToldToSlots JoinIsToldToWhoAsks JoinRacesWithAsking",
		prolong(func(_ *memdriver.Store, r *driver.RenewRequest) { r.Wanted = nil })},
	{"only the last of those who share a key is told", "JoinIsToldToSharers JoinIsToldToSlots", tellsLast(joined, true)},
	{"whoever is refused is told of", "JoinIsToldOnce",
		tellsLast(func(*memdriver.Store, driver.VoteRequest, int) bool { return true }, true)},
	{"whoever asks again is told of", "JoinIsToldOnce",
		tellsLast(func(_ *memdriver.Store, r driver.VoteRequest, _ int) bool { return r.Queue }, true)},
	{"who asked once is told of later holders' waiters", "JoinIsToldToWhoAsks", tellsLast(joined, false)},
	{"a join is told of to the holders of all keys", "JoinIsToldToWhoAsks", one(func(s *memdriver.Store, p *patched) {
		var l latest
		n := 0
		p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
			if r.Wanted != nil {
				n++
				l.note(string(rune(n)), r.Wanted)
			}
			return renewOne(ctx, s, r)
		}
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			for i := 1; r.Queue && !res.Granted && i <= n; i++ {
				l.tell(string(rune(i)))
			}
			return res, err
		}
	})},
	{"whoever asks keeps", "KeeperIsNamed", prolong(func(_ *memdriver.Store, r *driver.RenewRequest) { r.Keeps = r.Wanted != nil })},
	{"no keeper is named", "KeeperIsNamed", prolong(func(_ *memdriver.Store, r *driver.RenewRequest) { r.Keeps = false })},
	{"the renewal that asks does not say that somebody waits", "JoinRacesWithAsking", renewing(func(ctx context.Context, s *memdriver.Store, r driver.RenewRequest) driver.Renewal {
		for r.Wanted != nil && looked(s, r.Key).Waiters == 0 { // the join comes first
			runtime.Gosched()
		}
		a := renewOne(ctx, s, r)
		a.Wanted = a.Wanted && r.Wanted == nil
		return a
	})},
}
