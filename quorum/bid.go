// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
)

// set is a set of nodes.
type set uint8

func (s set) has(n *node) bool { return s&(1<<n.index) != 0 }
func (s *set) add(n *node)     { *s |= 1 << n.index }
func (s *set) drop(n *node)    { *s &^= 1 << n.index }

// bid is what is known of one owner, from its first Try to its Release. A bid
// that is missing (of another process) is no harm: then every node is asked.
//
// A vote is given back for the fence that its node granted, and never for that of
// the lease; and what a node still grants with a fence that was given back is not
// counted: whenever such a release arrives, it takes no vote that counts.
type bid struct {
	turn chan struct{} // held by the Try under way

	mu      sync.Mutex
	req     driver.TryRequest // as it was asked for last
	end     driver.End        // of one that was released
	over    bool              // released, or refused without a place, and gone
	late    set               // which have not answered when it was released: what they granted since is nobody's
	counts  bool              // a round is under way: what comes in is its business
	tries   int
	elected uint64           // the fence of the lease; 0: none
	leased  bool             // there was one
	marked  bool             // its holder was told that the key was abandoned
	asked   set              // where a Try was sent
	top     uint64           // the largest fence that it proposed
	votes   [maxNodes]uint64 // the fence that each granted last
	given   [maxNodes]uint64 // and up to which it was given back
	unsure  set              // where one had no answer: it may still come
	open    [maxNodes]uint64 // the largest fence of those without an answer
	has     set              // where the owner has the vote, as far as is known
	back    set              // where a release was sent and not confirmed: it may come late
	pending [maxNodes]int    // Tries that have not returned
	line    *node            // where its place in line is
	gate    bool             // it has the vote of the line node, whose turn it is
	lost    int              // attempts in a row without a majority
	keeps   string           // who has the key at the line node only, as the latest Try saw it
	since   time.Time        // from when on
	// keepsUntil is when that ends, as far as is known; see lives
	keepsUntil time.Time
	seen       uint64    // proposals must be above, as far as that is no node's alone
	far        bool      // a proposal was too far above a node's clock
	told       set       // which said that they have it Shared
	shares     bool      // it was Exclusive, and is Shared now as far as its holder goes: all are to be told
	until      time.Time // nothing of it is in the nodes any more
}

// bids are those under way.
type bids struct {
	mu    sync.Mutex
	all   map[driver.ID]*bid
	sweep int // look for what is over when there are so many
}

// open returns the bid of an owner, a new one if need be.
func (bs *bids) open(r driver.TryRequest) *bid {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b := bs.all[r.ID()]
	if b == nil {
		if len(bs.all) >= bs.sweep {
			bs.clean()
		}
		b = &bid{turn: make(chan struct{}, 1), req: r}
		bs.all[r.ID()] = b
	}
	return b
}

// clean drops bids whose owners vanished: nothing of them is left anywhere.
func (bs *bids) clean() {
	now := time.Now()
	for id, b := range bs.all {
		b.mu.Lock()
		if !b.until.IsZero() && b.until.Before(now) {
			delete(bs.all, id)
		}
		b.mu.Unlock()
	}
	bs.sweep = 2*len(bs.all) + 1024
}

// get returns the bid of an owner, or nil.
func (bs *bids) get(c driver.Claim) *bid {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	return bs.all[c.ID()]
}

// renewed notes that a lease is renewed. A lease of another process, which was
// adopted, has its bid from here on; nil when its fence is not known.
func (bs *bids) renewed(d *Driver, r driver.RenewRequest) *bid {
	b := bs.get(r.Claim)
	if b == nil && r.Fence == 0 {
		return nil
	}
	if b == nil {
		b = bs.open(driver.TryRequest{Claim: r.Claim, TTL: r.TTL})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tries == 0 && !b.over && b.elected == 0 && r.Fence != 0 {
		b.adopt(d, r.Fence)
	}
	b.shares = b.shares || r.Mode == driver.Shared && b.tries == 0 // who knows what its nodes were told
	b.stays(r.TTL)
	return b
}

// adopt takes over a lease of another process. mu is held.
func (b *bid) adopt(d *Driver, fence uint64) {
	b.elected, b.leased = fence, true
	for _, n := range d.nodes {
		b.asked.add(n)
		b.unsure.add(n)
	}
}

// drop ends a bid.
func (bs *bids) drop(c driver.Claim) {
	bs.mu.Lock()
	delete(bs.all, c.ID())
	bs.mu.Unlock()
}

// enter begins a Try: one at a time.
func (b *bid) enter(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *bid) leave() { <-b.turn }

// begin notes what a Try asks for.
func (b *bid) begin(r driver.TryRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.elected == 0 { // a new acquisition: what was converted before is over
		b.shares, b.told = false, 0
	}
	b.req, b.over, b.counts = r, false, true
	b.tries++
	b.stays(max(r.TTL, r.Patience))
}

// stays moves the moment after which no node has anything of the bid. mu is held.
func (b *bid) stays(lasts time.Duration) {
	if until := time.Now().Add(2 * lasts); until.After(b.until) {
		b.until = until
	}
}

// sends notes that a Try goes out to a node; it is false when the owner was
// released before.
func (b *bid) sends(n *node) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return false
	}
	b.asked.add(n)
	b.pending[n.index]++
	return true
}

// proposes notes the fence of a round.
func (b *bid) proposes(fence uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.top = max(b.top, fence)
}

// most is the largest fence that a node may have granted. mu is held.
func (b *bid) most() uint64 { return max(b.top, b.elected, slices.Max(b.votes[:])) }

// learns notes what a refusal of a proposed fence says. What is above limit only
// the node that says it would grant.
func (b *bid) learns(res driver.Result, proposed, limit uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if res.Fence <= limit {
		b.seen = max(b.seen, res.Fence)
	}
	b.far = b.far || res.Why == driver.FenceTooLow && res.Fence < proposed
}

// returned notes what became of a Try for a fence at a node. That another holds the
// key there, or that the owner was released, says that it does not; every other refusal is of what was asked
// for now, and says nothing of a vote that an earlier Try was given, but that a
// proposal is too low or too far names at least the vote that the owner has.
func (b *bid) returned(n *node, fence uint64, res driver.Result, err error) {
	b.mu.Lock()
	defer b.dropIfOver(n.d)
	defer b.mu.Unlock()
	b.pending[n.index]--
	switch {
	case driver.IsNotSent(err): // earlier Tries are as they were
	case err != nil && !errors.Is(err, driver.ErrNotVoting):
		b.unsure.add(n)
		b.open[n.index] = max(b.open[n.index], fence)
	case res.Granted:
		b.has.add(n)
		b.votes[n.index] = max(b.votes[n.index], res.Fence)
	case err == nil && (res.Why == driver.Held || res.Why == driver.Released):
		if fence >= b.votes[n.index] { // not the answer to an earlier Try, which was overtaken
			b.has.drop(n)
		}
	case err == nil && res.Why == driver.FenceTooLow && res.Fence+1 < b.open[n.index]: // what had no answer was not granted
	case b.open[n.index] > b.given[n.index]: // a Try without an answer may have been granted
		b.has.add(n)
		b.votes[n.index] = max(b.votes[n.index], b.open[n.index])
	}
	// An answer after the round belongs to the lease, if there is one, or goes
	// back.
	late := b.has.has(n) && !(b.gate && b.line == n) || b.over && b.unsure.has(n)
	if !b.counts && b.elected == 0 && late && (b.over || b.tries > 0) { // a lease that was taken over has no known fence
		b.giveBack(n)
	}
}

// giveBack releases what the owner has at a node. An owner that was released is
// to be remembered there when a Try of it may still come. mu is held.
func (b *bid) giveBack(n *node) (done <-chan struct{}) {
	r := driver.WithdrawRequest{ReleaseRequest: driver.ReleaseRequest{
		Claim: b.req.Claim, TTL: b.req.TTL, End: b.end, Settled: !b.over || b.settled(n)}}
	if !b.over || b.late.has(n) && r.End == driver.Unfinished {
		r.End = driver.Unused
	}
	// A request that comes late takes no vote that was given since, nor one that
	// the lease counts on. A place has no fence.
	if r.UpTo = b.votes[n.index]; b.over {
		r.UpTo = b.most()
	} else if b.elected != 0 {
		r.UpTo = min(r.UpTo, b.elected-1)
	}
	r.UpTo = max(r.UpTo, 1)
	b.given[n.index] = max(b.given[n.index], r.UpTo)
	over, tries := b.over, b.tries
	b.has.drop(n)
	b.back.add(n)
	ch := make(chan struct{})
	if !n.d.spawn(func() {
		ok := b.confirmed(n, n.release(b, r, over))
		close(ch)
		for pause := probePause; !ok && !over && b.stands(tries) && pause.Wait(n.d.life.Done()); {
			ok = b.confirmed(n, n.release(b, r, false))
		}
	}) {
		close(ch)
	}
	return ch
}

// stands says that the owner has neither asked again nor was released, and that a
// node may still have something of it.
func (b *bid) stands(tries int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.over && b.tries == tries && time.Now().Before(b.until)
}

// confirmed notes the answer to a release, and says whether there was one.
func (b *bid) confirmed(n *node, err error) bool {
	if err != nil && !errors.Is(err, driver.ErrNotHeld) {
		return false
	}
	if b != nil {
		b.mu.Lock()
		b.back.drop(n)
		if b.over { // a Try that comes late is refused there
			b.unsure.drop(n)
		}
		b.mu.Unlock()
		b.dropIfOver(n.d)
	}
	return true
}

// dropIfOver forgets the bid of an owner that was released, once nothing of it is
// under way.
func (b *bid) dropIfOver(d *Driver) {
	b.mu.Lock()
	over, id := b.over && b.quiet(), b.req.ID()
	b.mu.Unlock()
	if !over {
		return
	}
	d.bids.mu.Lock()
	defer d.bids.mu.Unlock()
	if d.bids.all[id] == b && len(b.turn) == 0 {
		delete(d.bids.all, id)
	}
}

// settled says whether every Try that was sent to a node was answered.
// mu is held.
func (b *bid) settled(n *node) bool { return !b.unsure.has(n) && b.pending[n.index] == 0 }

// quiet says that nothing of the bid is under way anywhere. mu is held.
func (b *bid) quiet() bool {
	return b.unsure == 0 && b.has == 0 && b.back == 0 && b.pending == [maxNodes]int{}
}

// blank says that no node has anything of the bid, and none will: nothing was ever
// granted, or may have been. Once a vote was given back the bid has to be known: the
// release may come late, and take what the owner was granted since.
func (b *bid) blank() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	never := [maxNodes]uint64{}
	return b.quiet() && b.line == nil && b.elected == 0 && b.votes == never && b.given == never && b.open == never
}

// gaveBack returns the fence up to which votes of a node are not counted: a
// release is, or was, under way which takes them.
func (b *bid) gaveBack(n *node) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.given[n.index]
}

// sees notes who has the key at the line node only, "" for nobody, and until when. One
// that asked since is heeded from now.
func (b *bid) sees(owner string, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keeps != owner || b.askedSince(until) {
		b.keeps, b.since, b.keepsUntil = owner, time.Now(), until
	}
}

// askedSince says that the holder at the line node only has its vote for longer than
// when it was seen. mu is held.
func (b *bid) askedSince(until time.Time) bool { return until.After(b.keepsUntil.Add(heedTime / 10)) }

// keptFrom says that the latest Try saw a holder at the line node only.
func (b *bid) keptFrom(owner string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keeps == owner && owner != ""
}

// heedsFor is for how long a holder is still heeded which only the line node knows; 0:
// it is not that one, or it was for long enough.
func (b *bid) heedsFor(owner string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if owner == "" || b.keeps != owner {
		return 0
	}
	return max(heedTime-time.Since(b.since), 0)
}

// waitedFor says that such a holder was heeded for long enough, and did not ask since.
func (b *bid) waitedFor(owner string, until time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return owner != "" && b.keeps == owner && time.Since(b.since) >= heedTime && !b.askedSince(until)
}
