// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"errors"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// tombTime is how long a released owner is remembered. A session's own requests are carried out in their order, so
// that this is for those of other sessions.
const tombTime = driver.MaxTransit

// Release implements [driver.Driver]. How the lease ended is not kept.
func (d *Driver) Release(ctx context.Context, r driver.ReleaseRequest) error {
	if err := d.valid(r.Check()); err != nil {
		return err
	}
	s, err := d.c.session(ctx)
	if err != nil {
		return err
	}
	e, err := d.c.lock(ctx, d.place(r.Claim), recipe.MarkOf(r.Claim), d.folders())
	if err != nil {
		return err
	}
	defer d.c.unlock(e)
	d.c.leave(e)
	found, err := d.release(ctx, s, e, r)
	if err != nil {
		d.c.stay(e)
		return err
	}
	d.c.released(e)
	if !found {
		return driver.ErrNotHeld
	}
	return nil
}

// release deletes whatever nodes the owner has. found: there was one.
func (d *Driver) release(ctx context.Context, s *zk.Session, e *entry, r driver.ReleaseRequest) (found bool, err error) {
	if name := d.c.record(e).Name; name != "" && r.Settled {
		del := zk.Delete(e.path(name))
		if err := s.Do(ctx, del); err != nil || !absent(del.Err) {
			return true, errors.Join(err, del.Err)
		}
	}
	if !r.Settled {
		// A Try that sees no mark has made its node before this, so that it is found.
		if err := d.bury(ctx, s, r.Claim); err != nil {
			return false, err
		}
	}
	q, err := d.read(ctx, s, e.dir)
	if err != nil {
		return false, err
	}
	var dels []*zk.Call
	for _, n := range q {
		if n.Mark == e.mark {
			dels = append(dels, zk.Delete(e.path(n.Name)))
		}
	}
	if err := s.Do(ctx, dels...); err != nil {
		return false, err
	}
	var errs []error
	for _, del := range dels {
		switch {
		case del.Err == nil:
			found = true
		case !absent(del.Err):
			errs = append(errs, del.Err)
		}
	}
	return found, errors.Join(errs...)
}

// bury marks an owner as released, for a while.
func (d *Driver) bury(ctx context.Context, s *zk.Session, c driver.Claim) error {
	path := d.tomb(c)
	for made := false; ; made = true {
		tomb := zk.Create(path, []byte(recipe.Magic), d.c.acl, zk.Ephemeral)
		err := s.Do(ctx, tomb)
		if err == nil && errors.Is(tomb.Err, zk.ErrNodeExists) {
			tomb.Err = nil // of a release before this one, of which the answer may have been lost
		}
		if tomb.Err == nil && !zk.IsUnsent(err) {
			d.c.remove(tombTime, path)
		}
		switch {
		case err != nil:
			return err
		case tomb.Err == nil:
			return nil
		case made || !absent(tomb.Err):
			return tomb.Err
		}
		if err := d.make(ctx, s); err != nil {
			return err
		}
	}
}
