// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/lifetime"
)

// Break takes a key away from the owner, in whatever process it is. The owner's
// lease is lost, which it learns at its next renewal at the latest, at once if the store
// tells it (see driver.Teller; without renewal, at its deadline), and the key goes to
// the next waiter, which is told (Lease.Abandoned).
// Other holders of a shared key keep it. An owner that waits loses its place, and
// rejoins at the end of the queue. owner is the 26 characters that Inspect shows,
// so that a successor is never broken by mistake; ErrNotHeld says that this owner
// neither holds the key nor waits for it. A foreign holder is never broken.
func (c *Client) Break(ctx context.Context, key, owner string) error {
	if err := driver.CheckKey(key); err != nil {
		return c.fail("break", key, err)
	}
	info, err := c.inspect(ctx, key)
	if err != nil {
		return c.fail("break", key, err)
	}
	ctx, done, err := c.calls.During(ctx)
	if err != nil {
		return c.fail("break", key, err)
	}
	defer done()
	l, ok := leaseOf(info, owner)
	h := l.Holder
	for _, w := range info.Queue {
		if !ok && w.Owner == owner && owner != "" {
			h, ok = w, true
		}
	}
	if !ok {
		return c.fail("break", key, notThatOwner(info))
	}
	return c.fail("break", key, c.drv.Release(ctx, driver.ReleaseRequest{TTL: max(DefaultTTL, l.Left), End: driver.Unfinished,
		Claim: driver.Claim{Key: key, Owner: h.Owner, Label: h.Label, Mode: h.Mode, Limit: h.Limit}}))
}

// Adopt takes over a lease that another process of the same job acquired and still
// holds, in its mode and with its fence and slot, and renews it from now on. The
// other process must end without releasing it. A Downgrade that it began may still
// reach the store: adopt such a lease only to read. ErrNotHeld: that owner does not
// hold the key.
func (c *Client) Adopt(ctx context.Context, key, owner string, o *LockOptions) (*Lease, error) {
	l := c.lock(key, o, Exclusive, 0)
	if l.err != nil {
		return nil, c.fail("adopt", key, l.err)
	}
	info, err := c.inspect(ctx, key)
	if err != nil {
		return nil, c.fail("adopt", key, err)
	}
	ctx, done, err := c.calls.During(ctx)
	if err != nil {
		return nil, c.fail("adopt", key, err)
	}
	defer done()
	held, ok := leaseOf(info, owner)
	if !ok {
		return nil, c.fail("adopt", key, notThatOwner(info))
	}
	r := driver.RenewRequest{TTL: l.opts.TTL, Fence: held.Fence, Entered: true, // it may have
		Claim: driver.Claim{Key: key, Owner: owner, Label: held.Holder.Label, Mode: held.Holder.Mode, Limit: held.Holder.Limit}}
	start := c.now()
	res, err := c.renewOnce(ctx, r)
	if err = cmp.Or(err, res.Err); err != nil {
		return nil, c.fail("adopt", key, err)
	}
	now := c.now()
	h := newHold(c.core, r, l.opts, start, lifetime.Facts{Marked: true, Claims: res.Entered})
	h.grant.slot = held.Holder.Slot
	h.life.Give(start)
	h.life.Asks(held.Left)
	if h.life.Grant(start, now, res.TTL); h.life.Over(now) {
		return nil, c.fail("adopt", key, fmt.Errorf("%w: the answer to its renewal took %v of a TTL of %v", ErrLost, clock.Short(now.Sub(start)), res.TTL))
	}
	h.life.Want(res.Wanted)
	lease := h.lease(r.Mode)
	if !c.renewer.Add(h, now) {
		return nil, c.fail("adopt", key, ErrClosed)
	}
	h.tells(ctx)
	lease.acquired(now, false)
	return lease, nil
}

// leaseOf returns an owner's lease of the key that info describes.
func leaseOf(info Info, owner string) (l driver.Holding, ok bool) {
	if owner == "" || !info.Held {
		return l, false
	}
	for _, l := range info.Holders {
		if l.Holder.Owner == owner {
			return l, true
		}
	}
	return driver.Holding{Holder: info.Holder, Fence: info.Fence, Left: info.Left}, info.Holder.Owner == owner
}

func notThatOwner(info Info) error {
	if !info.Held {
		return ErrNotHeld
	}
	return &notHolder{info.Holder, max(info.Holds-1, 0)}
}

// notHolder is ErrNotHeld with the holder of the key, and how many others there are.
type notHolder struct {
	holder Holder
	others int
}

func (e *notHolder) Error() string {
	s := "not held by that owner, but by " + e.holder.String()
	if !e.holder.Foreign {
		s += ", owner " + driver.Printable(e.holder.Owner)
	}
	if e.others > 0 {
		s += fmt.Sprintf(", and %d more", e.others)
	}
	return s
}
func (e *notHolder) Is(target error) bool { return target == ErrNotHeld }

// Admit declares, on the operator's behalf, that no locks are active in the store:
// a store, or node, that is held back because it may have lost leases grants from
// now on. It is for a new deployment, and for a restart that ended all work, too. A
// wrong declaration can lead to two holders. Without it, a store that keeps a node record
// grants nothing for its largest TTL and about ten seconds after a restart.
// ErrUnsupported: this store holds nothing back.
func (c *Client) Admit(ctx context.Context) error {
	ctx, done, err := c.calls.During(ctx)
	if err != nil {
		return c.fail("admit", "", err)
	}
	defer done()
	node, recorded := c.drv.(driver.Recorded)
	switch admit := driver.OperationsOf(c.drv).Admit; {
	case admit != nil:
		err = admit(ctx)
	case recorded:
		var rec driver.Record
		if rec, err = node.Record(ctx); err == nil && !rec.Voting {
			err = node.Admit(ctx, rec, c.traits.MaxTTL)
		}
	default:
		err = ErrUnsupported
	}
	return c.fail("admit", "", err)
}
