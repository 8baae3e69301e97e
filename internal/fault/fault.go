// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package fault injects the faults of networks and servers into the calls of a
// driver: it delays, fails, loses, repeats and hangs them, each at a moment that a
// test chooses.
package fault

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// Op is a method of a driver.
type Op int

// The methods that reach the store.
const (
	Try Op = iota
	Renew
	Release
	Watch
	Inspect
	List
	ops
)

// String returns the name of the method.
func (o Op) String() string {
	return [...]string{"Try", "Renew", "Release", "Watch", "Inspect", "List"}[o]
}

// Call is one call of a driver.
type Call struct {
	Op Op
	N  int // it is the N-th call of this Op, from 1
	// Try is what a Try asks for.
	Try driver.TryRequest
}

// Fault is what happens to a call. The zero value is nothing. The parts take
// effect in the order of the fields.
type Fault struct {
	// Before delays the request until the gate opens.
	Before *Gate
	// Delay delays the request for so long.
	Delay time.Duration
	// Err: the request is lost, and the call fails with this.
	Err error
	// Hang: the request is lost, and the call returns when its context ends.
	Hang bool
	// Twice: the request reaches the store twice, and the first answer counts.
	Twice bool
	// After delays the answer until the gate opens.
	After *Gate
	// Late delays the answer for so long.
	Late time.Duration
	// Lost: the answer is lost, and the call fails with this.
	Lost error
	// Mute: the answer is lost, and the call returns when its context ends.
	Mute bool
}

// ErrLink is a fault's error of class driver.ClassUnreachable, whatever the driver.
var ErrLink = errors.New("the link is down")

// Script says what happens to each call. It is called when the call begins,
// by many goroutines at once.
type Script func(Call) Fault

// Driver is a driver with faults.
type Driver struct {
	driver.Driver
	Took func(time.Duration) // how long the driver took for a call, without the faults; may be nil

	script Script

	mu sync.Mutex
	n  [ops]int
}

// New returns d with the faults of a script; nil is none.
func New(d driver.Driver, s Script) *Driver {
	f := &Driver{Driver: d}
	f.Set(s)
	return f
}

// Set changes the script for the calls that begin from now on.
func (d *Driver) Set(s Script) {
	if s == nil {
		s = func(Call) Fault { return Fault{} }
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.script = s
}

// Count returns how many calls of a method have begun.
func (d *Driver) Count(op Op) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n[op]
}

// do passes one call through the script. send may be called twice.
func (d *Driver) do(ctx context.Context, c Call, send func(repeat bool) error) error {
	d.mu.Lock()
	d.n[c.Op]++
	c.N = d.n[c.Op]
	script := d.script
	d.mu.Unlock()
	f := script(c)
	if err := first(f.Before.pass(ctx), wait(ctx, f.Delay), fail(f.Err), hang(ctx, f.Hang)); err != nil {
		return err
	}
	start := time.Now()
	err := send(false)
	if d.Took != nil {
		d.Took(time.Since(start))
	}
	if f.Twice {
		_ = send(true)
	}
	if fault := first(f.After.pass(ctx), wait(ctx, f.Late), fail(f.Lost), hang(ctx, f.Mute)); fault != nil {
		return fault
	}
	return err
}

// Try passes the call through the script.
func (d *Driver) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	return d.try(ctx, r, func() (driver.Result, error) { return d.Driver.Try(ctx, r) })
}

func (d *Driver) try(ctx context.Context, r driver.TryRequest, send func() (driver.Result, error)) (res driver.Result, err error) {
	err = d.do(ctx, Call{Op: Try, Try: r}, func(repeat bool) error {
		got, err := send()
		if !repeat {
			res = got
		}
		return err
	})
	if err != nil {
		return driver.Result{}, err
	}
	return res, nil
}

// Renew passes the call through the script, and reports when all answers are
// known. When the call fails, nothing is reported.
func (d *Driver) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	var mu sync.Mutex
	answers := make(map[int]driver.Renewal, len(rs))
	err := d.do(ctx, Call{Op: Renew}, func(repeat bool) error {
		d.Driver.Renew(ctx, rs, func(i int, a driver.Renewal) {
			mu.Lock()
			defer mu.Unlock()
			if !repeat {
				answers[i] = a
			}
		})
		return nil
	})
	if err != nil {
		return
	}
	for i, a := range answers {
		done(i, a)
	}
}

// Release passes the call through the script.
func (d *Driver) Release(ctx context.Context, r driver.ReleaseRequest) error {
	return d.do(ctx, Call{Op: Release}, func(bool) error { return d.Driver.Release(ctx, r) })
}

// Watch passes the call through the script.
func (d *Driver) Watch(ctx context.Context, c driver.Claim) (ch <-chan driver.Hint, err error) {
	err = d.do(ctx, Call{Op: Watch}, func(repeat bool) error {
		got, err := d.Driver.Watch(ctx, c)
		if !repeat {
			ch = got
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return ch, nil
}

// Inspect passes the call through the script.
func (d *Driver) Inspect(ctx context.Context, key string) (info driver.Info, err error) {
	err = d.do(ctx, Call{Op: Inspect}, func(bool) error {
		var err error
		info, err = d.Driver.Inspect(ctx, key)
		return err
	})
	if err != nil {
		return driver.Info{}, err
	}
	return info, nil
}

// List passes the call through the script, before its first key.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		err := d.do(ctx, Call{Op: List}, func(bool) error { return nil })
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		d.Driver.List(ctx, prefix)(yield)
	}
}

// Classify returns driver.ClassUnreachable for ErrLink, and the driver's class for others.
func (d *Driver) Classify(err error) driver.Class {
	if errors.Is(err, ErrLink) {
		return driver.ClassUnreachable
	}
	return d.Driver.Classify(err)
}

// Node is a node with faults. A Vote is a Try to the script, a Withdraw a Release.
type Node struct {
	*Driver
	node voting.Node
}

// NewNode returns n with the faults of a script; nil is none.
func NewNode(n voting.Node, s Script) *Node { return &Node{New(n, s), n} }

// Vote passes the call through the script.
func (n *Node) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	return n.try(ctx, r.TryRequest, func() (driver.Result, error) { return n.node.Vote(ctx, r) })
}

// Withdraw passes the call through the script.
func (n *Node) Withdraw(ctx context.Context, r voting.WithdrawRequest) error {
	return n.do(ctx, Call{Op: Release}, func(bool) error { return n.node.Withdraw(ctx, r) })
}
