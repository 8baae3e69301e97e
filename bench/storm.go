// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/redisdriver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// s5 is many waiters that give up at once.
var s5 = scenario{
	name: "s5",
	metrics: []metric{
		{"returned", "all returned", seconds, lower, true},
		{"empty", "queue empty", seconds, lower, true},
		{"grant", "next grant", seconds, lower, true},
	},
	variants: []variant{{"1,000 waiters of one client", 1}, {"1,000 waiters of 50 clients", 50}},
	quick:    []variant{{"1,000 waiters of one client", 1}},
	takes:    func(e *env, p *peer) bool { return waiting(e, p) && p.on != inProcess }, // whose Lock does not end with the context
	limit:    2 * time.Minute,
	run:      runStorm,
}

// waiters is how many give up; tests have fewer, since requests of a thousand time out on a busy machine.
var waiters = 1000

// heard is how long waiters have to hear of their own place, which is in the store.
const heard = 2 * time.Second

// settled is how long waiters wait before they give up, if the store does not
// show its waiters.
const settled = 500 * time.Millisecond

func runStorm(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
	c, err := gather(ctx, p, e.target, 2+v.n, 2+v.n)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := c.warm(ctx, 1, 16); err != nil {
		return nil, err
	}
	queue, err := e.queueOf(p)
	if err != nil {
		return nil, err
	}
	defer queue.close()
	holder, next, clients := c.clients[0], c.clients[1], c.clients[2:]
	unlock, err := holder.Lock(ctx, hotKey)
	if err != nil {
		return nil, err
	}

	wait, giveUp := context.WithCancel(ctx)
	defer giveUp()
	ended := make(chan error, waiters)
	for i := range waiters {
		go func() { ended <- waitUngranted(wait, clients[i%len(clients)]) }()
	}
	if err := queue.full(ctx, waiters, ended); err != nil {
		return nil, err
	}
	start := time.Now()
	giveUp()
	for i := range waiters {
		select {
		case err := <-ended:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d waiters did not return: %w", waiters-i, waiters, ctx.Err())
		}
	}
	f := figures{"returned": time.Since(start).Seconds()}
	if queue.count != nil {
		if err := queue.clear(ctx); err != nil {
			return nil, err
		}
		f["empty"] = time.Since(start).Seconds()
	}

	start = time.Now()
	if err := unlock(ctx); err != nil {
		return nil, err
	}
	unlock, err = next.Lock(ctx, hotKey)
	f["grant"] = time.Since(start).Seconds()
	if err != nil {
		return nil, err
	}
	return f, unlock(ctx)
}

// waitUngranted waits for the key until ctx ends.
func waitUngranted(ctx context.Context, l locker) error {
	unlock, err := l.Lock(ctx, hotKey)
	if err == nil {
		return errors.Join(errTwoHolders, unlock(context.WithoutCancel(ctx)))
	}
	if ctx.Err() != nil { // whatever its error is
		err = nil
	}
	return err
}

// queue is the waiters of the hot key, as the store knows them.
type queue struct {
	count func(ctx context.Context) (int, error) // nil: it knows none
	whole bool                                   // a waiter has a place in the store, left behind if it ends before it hears of it
	close func()
}

// queueOf returns access to the queue of a peer that has one.
func (e *env) queueOf(p *peer) (*queue, error) {
	switch {
	case p.name == baseline:
		locks, err := hasp.New(redisdriver.New(e.admin[0], nil), nil)
		if err != nil {
			return nil, err
		}
		return &queue{
			count: func(ctx context.Context) (int, error) {
				info, err := locks.Operator().Inspect(ctx, hotKey)
				return info.Waiters, err
			},
			close: func() { _ = locks.Close() }, // it holds nothing
		}, nil
	case p.on == onEtcd:
		c, err := connectEtcd(e.Etcd)
		if err != nil {
			return nil, err
		}
		return &queue{
			whole: true,
			count: func(ctx context.Context) (int, error) {
				got, err := c.Get(ctx, "/lock/"+hotKey+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
				if err != nil {
					return 0, err
				}
				return int(got.Count) - 1, nil // the holder's key
			},
			close: func() { _ = c.Close() },
		}, nil
	}
	return &queue{close: func() {}}, nil
}

// full returns once want waiters are in the queue, or, unless all will be, the queue stops growing: a peer's
// waiters may queue within its own process. early is of waiters that ended before they were to.
func (q *queue) full(ctx context.Context, want int, early <-chan error) error {
	grew := time.Now()
	for most := 0; most < want && (q.whole || time.Since(grew) < settled); {
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
		select {
		case err := <-early:
			return fmt.Errorf("a waiter gave up too early: %w", err)
		default:
		}
		if q.count == nil {
			continue
		}
		n, err := q.count(ctx)
		if err != nil {
			return err
		}
		if n > most {
			most, grew = n, time.Now()
		}
	}
	if q.whole {
		return pause(ctx, heard)
	}
	return nil
}

// clear returns once no waiter is in the queue.
func (q *queue) clear(ctx context.Context) error {
	for {
		n, err := q.count(ctx)
		if err != nil || n <= 0 {
			return err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("%d waiters are left in the store: %w", n, err)
		}
	}
}
