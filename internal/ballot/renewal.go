// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"time"

	"github.com/hasplock/hasp/driver"
)

// Renewal counts the answers to one renewal of one lease. It counts as renewed once a
// majority of the nodes prolonged what they had. A node that lost its vote is asked for
// it afterwards, which counts from the next renewal on: a vote that is given anew says
// nothing about the time before.
type Renewal struct {
	nodes  int
	held   Set           // prolonged it
	gone   Set           // said that they don't have it
	ttl    time.Duration // the least of those that count
	wanted bool
	queued bool // the queue node answered: wanted is known
	done   bool // the outcome was given
}

// NewRenewal counts the answers of so many nodes.
func NewRenewal(nodes int) Renewal { return Renewal{nodes: nodes} }

// Answer notes the answer of a node: Answered, NotHolder, or none. queue: it is the queue
// node.
func (r *Renewal) Answer(node int, kind Kind, a driver.Renewal, queue bool) {
	switch kind {
	case Answered:
		if r.held == 0 {
			r.ttl = a.TTL
		}
		r.ttl = min(r.ttl, a.TTL)
		r.held.Add(node)
		r.wanted = r.wanted || a.Wanted
	case NotHolder:
		r.gone.Add(node)
	}
	r.queued = r.queued || queue
}

// Outcome is what became of it, once that is known, and once only. waits: the queue
// node, which knows the waiters, has yet to answer.
func (r *Renewal) Outcome(waits bool) (res driver.Renewal, known bool) {
	switch {
	case r.done:
		return res, false
	case r.Stands() && (!waits || r.queued):
		res = driver.Renewal{TTL: r.ttl, Wanted: r.wanted}
	case r.gone.Len() > r.nodes-need(r.nodes):
		res.Err = driver.ErrNotHeld
	default:
		return res, false
	}
	r.done = true
	return res, true
}

// Stands says that a majority prolonged the lease.
func (r *Renewal) Stands() bool { return r.held.Len() >= need(r.nodes) }

// Known says that Outcome gave the outcome.
func (r *Renewal) Known() bool { return r.done }

// Held are the nodes that prolonged the lease.
func (r *Renewal) Held() Set { return r.held }

// Gone are the nodes that no longer have it.
func (r *Renewal) Gone() Set { return r.gone }
