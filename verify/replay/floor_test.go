// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/verify/model"
)

// A step of the model of one node's memory, and a longest lease that is shorter than
// what it remembers.
const (
	floorStep = 10 * time.Second
	floorTTL  = 10 * time.Second
)

// What is wrong, as the model calls it.
const (
	notAbove  = "a fence that is not above the last one of the key would be granted"
	overtaken = "the floor for all keys is above a fence that was granted less than a rotation ago"
)

// memory plays a story about one node's memory of fences.
type memory struct {
	t    testing.TB
	n    node
	seen member // n with its wrapper
	out  outcome

	last uint64    // fence of the key
	at   time.Time // when it was granted
}

// oneNode plays with requests to one node.
var oneNode = level{"messages", playMemory}

// playMemory plays in memory, in a bubble.
func playMemory(t *testing.T, s model.Trace, r rules) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNode(floorTTL)
		m := &memory{t: t, n: n, seen: n}
		if r.memory != nil {
			m.seen = r.memory(n)
		}
		m.admit()
		time.Sleep(2 * 20 * time.Second) // a long time without proposals
		m.play(s)
		o = m.out
	})
	return o
}

func (m *memory) admit() {
	rec, err := m.n.Record(context.Background())
	if err == nil {
		err = m.n.Admit(context.Background(), rec, floorTTL)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *memory) play(s model.Trace) {
	for k, step := range s.Steps {
		if why := m.step(step); why != "" {
			m.out.leaves = append(m.out.leaves, fmt.Sprintf("%d. %s: %s", k+1, step, why))
		}
	}
}

func (m *memory) step(s model.Step) (leaves string) {
	switch s.Act {
	case model.Tick:
		time.Sleep(floorStep)
	case model.Jump:
		m.n.jump(time.Duration(s.Value) * floorStep)
	case model.Back:
		m.n.jump(-time.Duration(s.Value) * floorStep)
	case model.Forget:
		if m.seen == m.n {
			m.n.expire(key)
		}
	case model.Grant:
		m.last, m.at = max(m.n.micros(), m.last+1), time.Now()
		return m.propose(key, m.last)
	case model.Access:
		if why := m.propose(rand.Text(), m.n.micros()); why != "" {
			return why
		}
		if m.last == 0 || time.Since(m.at) >= 20*time.Second {
			return ""
		}
		if why := m.propose(rand.Text(), m.last); why == "" {
			return "a proposal as old as the key's would still be granted"
		}
		m.out.wrong = overtaken
	case model.Ask:
		if n, ok := m.seen.(*memNode); ok {
			n.expire(key)
		}
		if why := m.propose(key, m.last); why != "" {
			return why
		}
		m.out.wrong = notAbove
	}
	return ""
}

// propose acquires a key, and releases it.
func (m *memory) propose(key string, fence uint64) (leaves string) {
	r := contend.Owner{Key: key, Owner: rand.Text(), Label: "{}", TTL: floorTTL, Fence: fence, Settled: true}
	res, err := m.seen.Vote(context.Background(), r.Vote())
	why := answer(res, err)
	if why == "" {
		if err := m.seen.Withdraw(context.Background(), r.Withdrawal()); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			m.t.Fatal(err)
		}
	}
	return why
}

// renamed makes a node forget a key some time after a grant, but not what it remembers
// for all keys, by giving the key another name.
type renamed struct {
	member
	after time.Duration
	at    *time.Time
	in    func() // before such a Try, and after it
	out   func()
}

func (f renamed) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	if r.Key == key && !f.at.IsZero() && time.Since(*f.at) >= f.after {
		f.in()
		defer f.out()
		r.Key += " again"
	}
	if r.Key == key {
		*f.at = time.Now()
	}
	return f.member.Vote(ctx, r)
}

func (f renamed) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	if err := f.member.Withdraw(ctx, r); err == nil || r.Key != key {
		return err
	}
	r.Key += " again"
	return f.member.Withdraw(ctx, r)
}

// afterHalf forgets after half the time.
func afterHalf(n *memNode) member {
	return renamed{n, 30 * time.Second, new(time.Time), func() {}, func() {}}
}

// oneTurn forgets in time, but shows the node only one rotation of 25 seconds where
// there was more time.
func oneTurn(n *memNode) member {
	const by = 35 * time.Second
	return renamed{n, 60 * time.Second, new(time.Time), func() { n.jump(-by) }, func() { n.jump(by) }}
}

// expires forgets the key by the store's clock alone.
func expires(n *memNode) member {
	return renamed{n, 0, new(time.Time), func() {}, func() {}}
}

// newest takes the newest number as the floor in every rotation.
type newest struct {
	member
	n              *memNode
	at, cur, floor *uint64
}

func (f newest) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	if now := f.n.micros(); now-*f.at >= uint64((20 * time.Second).Microseconds()) {
		*f.at, *f.floor = now, *f.cur
	}
	if r.Proposal <= *f.floor {
		return driver.Result{Why: driver.FenceTooLow, Fence: *f.floor}, nil
	}
	*f.cur = max(*f.cur, r.Proposal)
	return f.member.Vote(ctx, r)
}

func twoNumbers(n *memNode) member { return newest{n, n, new(uint64), new(uint64), new(uint64)} }
