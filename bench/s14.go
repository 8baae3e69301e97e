// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// s14 is s2 with a network in between.
var s14 = scenario{
	name:  "s14",
	title: "one hot key, with a network in between: a millisecond each way",
	about: "As S2, with clients whose connections go by a relay that holds up what each side sends for a millisecond, and a little longer, since " +
		"timers are late. hasp claims first is hasp whose waiters ask for the key that they were handed before they use it, as before.",
	metrics: contended,
	variants: func(bool) (vs []variant) {
		for _, n := range []int{16, 128} {
			vs = append(vs, variant{fmt.Sprintf("%d clients", n), n})
		}
		return vs
	},
	field: func(e *env, all []*peer) []*peer {
		names := []string{baseline, "redislock 5ms", "redsync fail-fast", "rueidislock"}
		few := slices.DeleteFunc(available(e, all), func(p *peer) bool { return !slices.Contains(names, p.name) })
		if i := slices.IndexFunc(few, func(p *peer) bool { return p.name == baseline }); i >= 0 {
			few = slices.Insert(few, i+1, claimsFirst)
		}
		return few
	},
	run: func(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
		r, err := newRelay(e.target.Redis[0], time.Millisecond)
		if err != nil {
			return nil, err
		}
		defer r.close()
		to := e.target
		to.Redis = append([]string{r.addr()}, to.Redis[1:]...)
		c := &workers{hold: time.Millisecond}
		defer c.close()
		if err := c.open(ctx, p, to, v.n); err != nil {
			return nil, err
		}
		g := new(guard)
		for _, l := range c.opened {
			c.list = append(c.list, &worker{locker: l, key: hotKey, guard: g})
		}
		return c.contend(ctx, e, p, e.lasts(contests[v.n]))
	},
	bars: []bar{
		atLeast(1.8, "16 clients: handoffs/s at least 1.8 times those of waiters that claim first", 16, "handoffs", asks),
		atLeast(1.8, "128 clients: handoffs/s at least 1.8 times those of waiters that claim first", 128, "handoffs", asks),
		atLeast(1, "128 clients: more handoffs/s than any peer", 128, "handoffs", "redislock 5ms", "redsync fail-fast", "rueidislock"),
	},
}

// asks is the name of claimsFirst.
const asks = baseline + " claims first"

// claimsFirst is hasp over an engine with hints that do not say what was handed over.
var claimsFirst = haspOver(func(rdb *redis.Client) driver.Driver { return unsaid{redisdriver.New(rdb, nil)} },
	asks, hasp.LockOptions{}, "as hasp, but a waiter that was handed the key asks for it first")

type unsaid struct{ driver.Driver }

func (d unsaid) Traits() driver.Traits {
	t := d.Driver.Traits()
	t.Enters = false
	return t
}

// relay passes connections on to a server, and what they carry later.
type relay struct {
	ln    net.Listener
	to    string
	after time.Duration
	all   sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

// newRelay listens on a free loopback port.
func newRelay(to string, after time.Duration) (*relay, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{ln: ln, to: to, after: after}
	r.all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			r.all.Go(func() { r.carry(c) })
		}
	})
	return r, nil
}

func (r *relay) addr() string { return r.ln.Addr().String() }

func (r *relay) close() {
	_ = r.ln.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
	r.mu.Unlock()
	r.all.Wait()
}

// carry passes on what both sides of a connection send, until one ends.
func (r *relay) carry(client net.Conn) {
	server, err := net.Dial("tcp", r.to)
	if err != nil {
		_ = client.Close()
		return
	}
	r.mu.Lock()
	r.conns = append(r.conns, client, server)
	r.mu.Unlock()
	r.all.Go(func() { r.oneWay(client, server) })
	r.oneWay(server, client)
}

// parcel is what one read returned, and when it is to arrive.
type parcel struct {
	b   []byte
	due time.Time
}

func (r *relay) oneWay(from, to net.Conn) {
	sent := make(chan parcel, 1024)
	r.all.Go(func() {
		var err error
		for p := range sent {
			if err == nil {
				time.Sleep(time.Until(p.due))
				_, err = to.Write(p.b)
			}
		}
		_ = errors.Join(from.Close(), to.Close())
	})
	defer close(sent)
	for {
		b := make([]byte, 16<<10)
		n, err := from.Read(b)
		if err != nil {
			return
		}
		sent <- parcel{b[:n], time.Now().Add(r.after)}
	}
}
