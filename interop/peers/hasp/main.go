// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Command hasp is a program that locks with hasp, for the tests of interop/clients: see package lines for what it is told. Its kinds:
// string is the layout that most clients share, and strings several of them, KEY,KEY,...; lock, fair, fenced, read and write are
// Redisson's; multi is several of Redisson's
// plain locks, KEY,KEY,...; red is one of each deployment.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/interop/peers/internal/lines"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/redisdriver/redisson"
	"github.com/redis/go-redis/v9"
)

// engines opens the driver of each kind.
var engines = map[string]func(rdb redis.UniversalClient) driver.Driver{
	"string": func(rdb redis.UniversalClient) driver.Driver {
		return redisdriver.New(rdb, &redisdriver.Options{NoPrefix: true})
	},
	"lock":      redissons(redisson.Lock),
	"fair":      redissons(redisson.Fair),
	"fenced":    redissons(redisson.Fenced),
	"readwrite": redissons(redisson.ReadWrite),
}

func redissons(kind redisson.Kind) func(redis.UniversalClient) driver.Driver {
	return func(rdb redis.UniversalClient) driver.Driver { return redisson.New(rdb, &redisson.Options{Kind: kind}) }
}

// holds is what a lease and the leases of several keys have in common.
type holds interface {
	Err() error
	Release() error
}

// program is hasp over each deployment, by kind.
type program struct {
	*lines.Program
	clients map[string][]*hasp.Client
}

func main() {
	lines.Serve(func(p *lines.Program) (func(context.Context, lines.Request) (*lines.Held, error), error) {
		m := &program{p, make(map[string][]*hasp.Client)}
		for kind, engine := range engines {
			for _, rdb := range p.Redis {
				c, err := hasp.New(engine(rdb), &hasp.Options{Observe: complain})
				if err != nil {
					return nil, err
				}
				m.clients[kind] = append(m.clients[kind], c)
			}
		}
		return m.lock, nil
	})
}

// complain shows what a driver reports that is no part of a normal run.
func complain(_ context.Context, e *event.Event) {
	if e.Kind == event.Trouble || e.Kind == event.HeldBack || e.Kind == event.RenewFailed {
		fmt.Fprintln(os.Stderr, e.Err)
	}
}

func (p *program) lock(ctx context.Context, r lines.Request) (*lines.Held, error) {
	o := &hasp.LockOptions{TTL: p.TTL}
	if r.Lease > 0 {
		o.TTL, o.NoRenew = r.Lease, true
	}
	items, err := p.items(r, o)
	if err != nil {
		return nil, err
	}
	if r.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Wait)
		defer cancel()
	}
	h, fence, err := take(ctx, items, r.Wait == 0)
	if errors.Is(err, hasp.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
		return nil, lines.ErrTimeout
	}
	if err != nil {
		return nil, err
	}
	return &lines.Held{
		Fence:  fence,
		Unlock: func() error { return lost(h.Release()) },
		Held:   func() error { return lost(h.Err()) },
	}, nil
}

// items are the locks that a request names.
func (p *program) items(r lines.Request, o *hasp.LockOptions) (items []hasp.Locker, err error) {
	switch r.Kind {
	case "multi", "strings":
		kind := map[string]string{"multi": "lock", "strings": "string"}[r.Kind]
		for key := range strings.SplitSeq(r.Key, ",") {
			items = append(items, p.clients[kind][0].Mutex(key, o))
		}
	case "red":
		for _, c := range p.clients["lock"] {
			items = append(items, c.Mutex(r.Key, o))
		}
	case "read":
		items = append(items, p.clients["readwrite"][0].RWMutex(r.Key, o).RLocker())
	case "write":
		items = append(items, p.clients["readwrite"][0].RWMutex(r.Key, o))
	default:
		if p.clients[r.Kind] == nil {
			return nil, fmt.Errorf("hasp has no kind %q", r.Kind)
		}
		items = append(items, p.clients[r.Kind][0].Mutex(r.Key, o))
	}
	return items, nil
}

// take takes all items, and returns the fence if there is only one.
func take(ctx context.Context, items []hasp.Locker, once bool) (h holds, fence uint64, err error) {
	if len(items) > 1 {
		if once {
			h, err = hasp.Locks(items).TryLock(ctx)
		} else {
			h, err = hasp.Locks(items).Lock(ctx)
		}
		return h, 0, err
	}
	var l *hasp.Lease
	if once {
		l, err = items[0].TryLock(ctx)
	} else {
		l, err = items[0].Lock(ctx)
	}
	if err != nil {
		return nil, 0, err
	}
	return l, l.Fence(), nil
}

// lost says in the words of the protocol that a lease was lost.
func lost(err error) error {
	if errors.Is(err, hasp.ErrLost) || errors.Is(err, hasp.ErrNotHeld) {
		return lines.ErrLost
	}
	return err
}
