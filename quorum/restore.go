// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"sync"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/ballot"
)

// restoreLanes is how many votes are asked for again at once, at one node.
const restoreLanes = 16

// restoreAll asks the nodes for the votes that they lost, of leases that stand: a
// majority prolonged them in this very renewal. Nodes that missed that a lease is
// Shared now are told: they keep others out, and the queue node does not wake the
// waiters that could share the key.
func (w *renewing) restoreAll(asked ballot.Set) {
	for _, n := range w.d.nodes {
		if !asked.Has(n.index) {
			continue
		}
		var lost []voting.VoteRequest
		w.mu.Lock()
		for k := range w.all {
			one := &w.all[k]
			if one.o == nil || !one.Stands() {
				continue
			}
			r := w.rs[one.i]
			try := driver.TryRequest{Claim: r.Claim, TTL: r.TTL}
			switch {
			case one.Gone().Has(n.index) && r.Fence != 0:
				lost = append(lost, voting.VoteRequest{TryRequest: try, Proposal: r.Fence, Restore: true})
			case one.Held().Has(n.index) && one.o.uninformed(n, one.Held()):
				try.Convert, try.Fence = true, r.Fence
				lost = append(lost, voting.VoteRequest{TryRequest: try})
			}
		}
		w.mu.Unlock()
		if len(lost) > 0 && n.serving() {
			w.d.spawn(func() { n.restoreMany(lost) })
		}
	}
}

func (o *owner) uninformed(n *node, held ballot.Set) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Uninformed(n.index, held)
}

func (n *node) restoreMany(lost []voting.VoteRequest) {
	work := make(chan voting.VoteRequest, len(lost))
	for _, r := range lost {
		work <- r
	}
	close(work)
	var wg sync.WaitGroup
	for range min(restoreLanes, len(lost)) {
		wg.Go(func() {
			for r := range work {
				n.restore(r)
			}
		})
	}
	wg.Wait()
}

// restore asks for one vote, or tells that it is Shared now. The lease's Release
// goes to this node, too, from now on.
func (n *node) restore(r voting.VoteRequest) {
	o := n.d.owners.get(r.Claim)
	if o == nil {
		return // released meanwhile
	}
	o.mu.Lock()
	r, ok := o.Restore(n.index, r)
	o.mu.Unlock()
	if !ok {
		return
	}
	_ = n.call(r.TTL, func(ctx context.Context) error {
		res, err := n.drv.Vote(ctx, r)
		return n.voted(o, ballot.Reply{Asked: r, Answer: ballot.Answer{Result: res}}, err, func(error) {}) // the next renewal counts it
	})
}
