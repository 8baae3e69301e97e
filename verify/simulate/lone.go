// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
)

// lone is the link between one client and a store that is used without a quorum. The hint that
// the client was handed the key says so, and the client may enter on it: see driver.Hander.
type lone struct {
	*link

	mu      sync.Mutex
	watches map[driver.ID][]*watch
}

// watch is one call of Watch, and what its messages said.
type watch struct {
	hints  chan struct{}
	handed driver.Handover // the newest
}

func newLone(p *process, n *node) *lone {
	return &lone{link: newLink(p, n), watches: map[driver.ID][]*watch{}}
}

var _ driver.Hander = (*lone)(nil)

// Try sends the request.
func (l *lone) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	return l.Vote(ctx, driver.VoteRequest{TryRequest: r})
}

// Release sends the request.
func (l *lone) Release(ctx context.Context, r driver.ReleaseRequest) error {
	return l.Withdraw(ctx, driver.WithdrawRequest{ReleaseRequest: r})
}

// Renew sends the requests. What they ask to be told comes as a message.
func (l *lone) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	sent := make([]driver.RenewRequest, len(rs))
	for i, r := range rs {
		if wanted := r.Wanted; wanted != nil {
			r.Wanted = func() { l.tell(wanted) }
		}
		sent[i] = r
	}
	l.link.Renew(ctx, sent, done)
}

// tell has the network carry a message of the store's, which do takes: late, twice, or not at all.
func (l *lone) tell(do func()) {
	w, f := l.p.c.w, l.fate()
	arrive := func() {
		if !w.cut(CutIn, l.p.c, l.n) && l.p.awake() == nil {
			do()
		}
	}
	if !f.lost {
		w.after(f.out, arrive)
	}
	if f.again > 0 {
		w.after(f.again, arrive)
	}
}

// Watch has messages come until ctx ends. One that is the first since the store handed c.Owner the key tells of that.
func (l *lone) Watch(ctx context.Context, c driver.Claim) (<-chan struct{}, error) {
	in, err := l.link.hints(ctx, c)
	if err != nil {
		return nil, err
	}
	wt := &watch{hints: make(chan struct{}, 1)}
	l.mu.Lock()
	l.watches[c.ID()] = append(l.watches[c.ID()], wt)
	l.mu.Unlock()
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.watches[c.ID()] = slices.DeleteFunc(l.watches[c.ID()], func(o *watch) bool { return o == wt })
	})
	go func() {
		var told driver.Handover
		for {
			var spurious <-chan time.Time
			if every := l.p.c.w.network().Hints; every > 0 {
				spurious = time.After(every)
			}
			select {
			case <-in:
			case <-spurious:
			case <-ctx.Done():
				return
			}
			to, _ := l.n.store.Handed(c)
			if to == told {
				to = driver.Handover{}
			} else {
				told = to // also when it is lost with the node
			}
			l.n.arrive(func(err error) {
				if err == nil {
					l.tell(func() { l.hear(wt, c, to) })
				}
			})
		}
	}()
	return wt.hints, nil
}

// hear takes a message.
func (l *lone) hear(wt *watch, c driver.Claim, to driver.Handover) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to.Fence > wt.handed.Fence {
		wt.handed = to
	}
	l.p.c.w.trace.add(entry{kind: "hears", client: l.p.c.index, life: l.p.life, owner: c.Owner, fence: to.Fence})
	select {
	case wt.hints <- struct{}{}:
	default:
	}
}

// Handed returns the newest handover that a message told of.
func (l *lone) Handed(c driver.Claim) (driver.Handover, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var to driver.Handover
	for _, wt := range l.watches[c.ID()] {
		if wt.handed.Fence > to.Fence {
			to = wt.handed
		}
	}
	return to, to.Fence != 0 && !l.p.crashed()
}
