// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"fmt"
	"iter"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/lifetime"
)

// Operator looks after the keys of a store, whichever process holds them. All its methods may be called by many goroutines at once.
type Operator struct{ c *core }

// Operator returns what an operator of the store may do, and no lock needs.
func (c *Client) Operator() *Operator { return &Operator{c.made()} }

// Operations returns what the engine does for an operator besides: nil is what it cannot do. They may not be called after Close.
func (o *Operator) Operations() operator.Operations { return operator.Of(o.c.drv) }

// Inspect returns the holders and the waiters of a key. A free key is no error:
// Info.Held is false.
func (o *Operator) Inspect(ctx context.Context, key string) (Info, error) {
	if err := driver.CheckKey(key); err != nil {
		return Info{}, o.c.fail("inspect", key, mistake{err})
	}
	info, err := o.c.inspect(ctx, key)
	return info, o.c.fail("inspect", key, err)
}

func (c *core) inspect(ctx context.Context, key string) (Info, error) {
	ctx, done, err := c.calls.During(ctx)
	if err != nil {
		return Info{}, err
	}
	defer done()
	info, err := c.drv.Inspect(ctx, key)
	c.hears(err)
	return info, err
}

// List yields the keys that start with prefix and are held or waited for, in no
// particular order. It ends after the first error.
func (o *Operator) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		ctx, done, err := o.c.calls.During(ctx)
		if err != nil {
			yield(Info{}, o.c.fail("list", "", err))
			return
		}
		defer done()
		for info, err := range o.c.drv.List(ctx, prefix) {
			o.c.hears(err)
			if !yield(info, o.c.fail("list", "", err)) || err != nil {
				return
			}
		}
	}
}

// Break takes a key away from the owner, in whatever process it is. The owner's
// lease is lost, which it learns at its next renewal at the latest, at once if the store
// tells it (see driver.Teller; without renewal, at its deadline), and the key goes to
// the next waiter, which is told (Lease.Abandoned).
// Other holders of a shared key keep it. An owner that waits loses its place, and
// rejoins at the end of the queue. owner is the 26 characters that Inspect shows,
// so that a successor is never broken by mistake; ErrNotHeld says that this owner
// neither holds the key nor waits for it. A foreign holder is never broken.
func (o *Operator) Break(ctx context.Context, key, owner string) error {
	if err := driver.CheckKey(key); err != nil {
		return o.c.fail("break", key, mistake{err})
	}
	info, err := o.c.inspect(ctx, key)
	if err != nil {
		return o.c.fail("break", key, err)
	}
	ctx, done, err := o.c.calls.During(ctx)
	if err != nil {
		return o.c.fail("break", key, err)
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
		return o.c.fail("break", key, notThatOwner(info))
	}
	return o.c.fail("break", key, o.c.drv.Release(ctx, driver.ReleaseRequest{TTL: max(DefaultTTL, l.Left), End: driver.EndUnfinished,
		Claim: driver.Claim{Key: key, Owner: h.Owner, Label: h.Label, Mode: h.Mode, Limit: h.Limit}}))
}

// Adopt takes over a lease that another process of the same job acquired and still
// holds, in its mode and with its fence and slot, and renews it from now on. The
// other process must end without releasing it. A Downgrade that it began may still
// reach the store: adopt such a lease only to read. ErrNotHeld: that owner does not
// hold the key.
func (o *Operator) Adopt(ctx context.Context, key, owner string, opts *LockOptions) (*Lease, error) {
	l := (&Client{core: o.c}).lock(key, opts, Exclusive, 0)
	if l.err != nil {
		return nil, o.c.fail("adopt", key, l.err)
	}
	info, err := o.c.inspect(ctx, key)
	if err != nil {
		return nil, o.c.fail("adopt", key, err)
	}
	ctx, done, err := o.c.calls.During(ctx)
	if err != nil {
		return nil, o.c.fail("adopt", key, err)
	}
	defer done()
	held, ok := leaseOf(info, owner)
	if !ok {
		return nil, o.c.fail("adopt", key, notThatOwner(info))
	}
	r := driver.RenewRequest{TTL: l.opts.TTL, Fence: held.Fence, Entered: true, // it may have
		Claim: driver.Claim{Key: key, Owner: owner, Label: held.Holder.Label, Mode: held.Holder.Mode, Limit: held.Holder.Limit}}
	start := o.c.now()
	res, err := o.c.renewOnce(ctx, r)
	if err = cmp.Or(err, res.Err); err != nil {
		return nil, o.c.fail("adopt", key, err)
	}
	now := o.c.now()
	h := newHold(o.c, r, &l.opts, start, lifetime.Facts{Marked: true, Unclaimed: res.Unclaimed})
	h.grant.slot = held.Holder.Slot
	h.life.Give(start)
	h.life.Asks(held.Left)
	if h.life.Grant(start, now, res.TTL); h.life.Over(now) {
		return nil, o.c.fail("adopt", key, fmt.Errorf("%w: the answer to its renewal took %v of a TTL of %v", ErrLost, short(now.Sub(start)), res.TTL))
	}
	h.life.Want(res.Wanted)
	lease := h.lease(r.Mode)
	if !o.c.renewer.Add(h, now) {
		return nil, o.c.fail("adopt", key, ErrClosed)
	}
	h.setCaller(ctx)
	lease.emitAcquired(now, false)
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
	return &notHolder{info.Holder, max(info.Leases-1, 0)}
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
func (o *Operator) Admit(ctx context.Context) error {
	ctx, done, err := o.c.calls.During(ctx)
	if err != nil {
		return o.c.fail("admit", "", err)
	}
	defer done()
	node, recorded := o.c.drv.(voting.Recorded)
	switch admit := operator.Of(o.c.drv).Admit; {
	case admit != nil:
		err = admit(ctx)
	case recorded:
		var rec voting.Record
		if rec, err = node.Record(ctx); err == nil && !rec.Voting {
			err = node.Admit(ctx, rec, o.c.traits.MaxTTL)
		}
	default:
		err = ErrUnsupported
	}
	return o.c.fail("admit", "", err)
}
