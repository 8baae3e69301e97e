// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

var _ operator.Driver = (*Driver)(nil)

// Operations implements [operator.Driver].
func (d *Driver) Operations() operator.Operations {
	return operator.Operations{ListLeftovers: d.ListLeftovers, RemoveLeftover: d.RemoveLeftover}
}

// A sweep asks for little at a time, and leaves the server to others for longer than it took: a command of others
// waits behind one of these requests at most.
const (
	sweepScan  = 200 // keys that one SCAN looks at
	sweepKeys  = 50  // keys that one pipeline asks about
	sweepPause = 10 * time.Millisecond
)

// ListLeftovers yields what is left over of keys; see [operator.Operations]. It reads the whole database with SCAN, in steps,
// with pauses that are longer than the steps. What a newer hasp wrote is skipped, and the last error says so. With NoPrefix a
// string without an expiry that hasp did not write is none.
func (d *Driver) ListLeftovers(ctx context.Context, prefix string, held func(driver.Info)) iter.Seq2[operator.Leftover, error] {
	return func(yield func(operator.Leftover, error) bool) {
		if d.bad != nil {
			yield(operator.Leftover{}, d.bad)
			return
		}
		s := &sweep{d: d, prefix: prefix, held: held, asked: time.Now()}
		for l, err := range wire.Scan(ctx, d.client, d.pattern(prefix), sweepScan, s.page) {
			if !yield(l, err) || err != nil {
				return
			}
		}
		if s.newer != nil {
			yield(operator.Leftover{}, s.newer)
		}
	}
}

// sweep is one walk over what the servers have.
type sweep struct {
	d      *Driver
	prefix string
	held   func(driver.Info)
	asked  time.Time           // when the latest SCAN began, at the earliest
	found  []operator.Leftover // among the keys of one SCAN
	newer  error               // of the first record of a later layout, all of which are skipped
}

// remnant is a key of Redis that may be left over, and the lock's that it belongs to.
type remnant struct{ name, key, kind string }

// The remnants that are no sidecar: the lock itself, and what its queue has; as sweep.lua calls them.
const (
	leaseRemnant   = "lease"
	foreignRemnant = "foreign"
	placesRemnant  = "places"
	sidecarRemnant = "sidecar"
	goneRemnant    = "gone"
)

// page looks at the keys of one SCAN.
func (s *sweep) page(ctx context.Context, names []string) ([]operator.Leftover, error) {
	s.found = nil
	if err := operator.Rest(ctx, time.Since(s.asked), sweepPause); err != nil {
		return nil, err
	}
	var todo []remnant
	for _, name := range names {
		if r, ok := s.d.remnantOf(name); ok && strings.HasPrefix(r.key, s.prefix) {
			todo = append(todo, r)
		}
	}
	for some := range slices.Chunk(todo, sweepKeys) {
		if err := s.look(ctx, some); err != nil {
			return s.found, err
		}
	}
	s.asked = time.Now()
	return s.found, nil
}

// paced returns what f does, which may not heed its context, after a rest.
func paced[T any](ctx context.Context, f func(context.Context) (T, error)) (v T, err error) {
	begun := time.Now()
	if v, err = wire.Await(ctx, f); err != nil {
		return v, err
	}
	return v, operator.Rest(ctx, time.Since(begun), sweepPause)
}

// remnantOf says which lock a key of Redis is, or belongs to.
func (d *Driver) remnantOf(name string) (r remnant, ok bool) {
	lock, kind := name, leaseRemnant
	if rest, side := strings.CutPrefix(name, wire.Sidecars); side {
		kind, rest, ok = strings.Cut(rest, ":")
		if !ok {
			return r, false
		}
		switch kind {
		case goneRemnant:
			_, rest, _ = strings.Cut(rest, ":") // the owner
		case "grant", "queue", "places", "shares", "held", "room":
		default: // the node record, marks, guards
			return r, false
		}
		if lock, ok = wire.LockOf(rest); !ok {
			return r, false
		}
	}
	key, ok := strings.CutPrefix(lock, d.prefix)
	return remnant{name, key, kind}, ok && driver.CheckKey(key) == nil && !strings.HasPrefix(lock, wire.Sidecars)
}

// look asks about some keys in one pipeline, and then, of those that may be left over, for each.
func (s *sweep) look(ctx context.Context, todo []remnant) error {
	asked := make([]wire.Command, 0, 3*len(todo))
	for _, r := range todo {
		if asked = append(asked, wire.Plain("pttl", r.name)); r.kind == leaseRemnant {
			asked = append(asked, wire.Plain("getrange", r.name, 0, maxShown-1), wire.Plain("getrange", s.d.names(r.key).grant, 0, 58))
		}
	}
	if _, err := paced(ctx, func(ctx context.Context) (any, error) { return nil, wire.Ask(ctx, s.d.client, asked) }); err != nil {
		return err
	}
	for _, r := range todo {
		pttl, err := asked[0].Int()
		asked = asked[1:]
		var value, grant wire.Command
		if r.kind == leaseRemnant {
			value, grant, asked = asked[0], asked[1], asked[2:]
		}
		switch {
		case err != nil, pttl == int64(wire.Free):
		case r.kind != leaseRemnant:
			err = s.sidecar(ctx, r, pttl)
		case s.skips(s.d.names(r.key).grant, grant.Text()):
		case wire.Says(value.Err, "WRONGTYPE"): // not a lock
		case value.Err != nil:
			err = value.Err
		default:
			err = s.lease(ctx, r, value.Text(), pttl, parseGrant(grant.Text()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// skips notes whether a text is of a later layout.
func (s *sweep) skips(name, text string) bool {
	err := newer(name, text)
	s.newer = cmp.Or(s.newer, err)
	return err != nil
}

// lease notes a lock without an expiry, and passes on a lock with one.
func (s *sweep) lease(ctx context.Context, r remnant, value string, pttl int64, g grant) error {
	h := g.holder(value)
	if pttl != int64(wire.Forever) {
		return s.passOn(ctx, r.key, value, pttl, g)
	}
	if h.Foreign {
		if s.d.prefix == "" || len(value) >= maxShown { // another program's data, or a value of which we saw a part
			return nil
		}
		r.kind = foreignRemnant
	}
	what, err := s.ask(ctx, r)
	if err != nil || what.state == "" {
		return err
	}
	l := operator.Leftover{Key: r.key, Kind: operator.LeftLease, Name: r.name, Holder: h, State: what.state, Live: what.is == "live"}
	if !h.Since.IsZero() {
		l.Fence = g.fence
	}
	if h.Mode == driver.Shared {
		info, err := s.describe(ctx, r.key)
		if err != nil {
			return err
		}
		l.Holder, l.Fence = info.Holder, info.Fence
	}
	s.found = append(s.found, l)
	return nil
}

// passOn calls held for a lock that expires.
func (s *sweep) passOn(ctx context.Context, key, value string, pttl int64, g grant) error {
	if s.held == nil {
		return nil
	}
	info := driver.Info{Key: key}
	describe(&info, value, wire.Span(pttl), g)
	if strings.HasPrefix(value, sharedValue) {
		var err error
		if info, err = s.describe(ctx, key); err != nil || !info.Held {
			return err
		}
	}
	s.held(info)
	return nil
}

// describe asks for one of the holders that share a key.
func (s *sweep) describe(ctx context.Context, key string) (driver.Info, error) {
	info, err := paced(ctx, func(ctx context.Context) (driver.Info, error) { return s.d.look(ctx, key, 0) })
	if err != nil && strings.Contains(err.Error(), "WRONGTYPE") { // what is beside it is not ours, and says nothing
		return driver.Info{Key: key}, nil
	}
	return info, err
}

// sidecar notes what belonged to a lock and has no expiry, and of a queue the places that are over.
func (s *sweep) sidecar(ctx context.Context, r remnant, pttl int64) error {
	if r.kind == "queue" {
		if err := s.places(ctx, r); err != nil {
			return err
		}
	}
	if pttl != int64(wire.Forever) {
		return nil
	}
	if r.kind != goneRemnant {
		r.kind = sidecarRemnant
	}
	what, err := s.ask(ctx, r)
	if err != nil || what.state == "" {
		return err
	}
	s.found = append(s.found, operator.Leftover{Key: r.key, Kind: operator.LeftSidecar, Name: r.name, State: what.state})
	return nil
}

// places notes the places in a queue of waiters that have been gone for a while.
func (s *sweep) places(ctx context.Context, r remnant) error {
	r.kind = placesRemnant
	reply, err := s.run(ctx, r)
	switch {
	case err != nil && strings.Contains(err.Error(), "WRONGTYPE"): // no queue of ours
		return nil
	case err != nil:
		return err
	}
	for a := wire.NewReply(reply); len(a.Fields) > 0; {
		value, place := wire.Next[string](a), wire.Next[string](a)
		if a.Bad {
			return wire.ErrReply
		}
		if s.skips(s.d.names(r.key).places, place) {
			continue
		}
		l := operator.Leftover{Key: r.key, Kind: operator.LeftPlace, Name: r.name, State: place + "\n" + value}
		l.Holder = waiters(&wire.Reply{Fields: []any{value, place}})[0]
		s.found = append(s.found, l)
	}
	return nil
}

// finding is what sweep.lua says of a remnant.
type finding struct{ is, state string }

// ask asks whether something is left over; the zero finding says that it is not.
func (s *sweep) ask(ctx context.Context, r remnant) (f finding, err error) {
	reply, err := s.run(ctx, r)
	a := wire.NewReply(reply)
	if err != nil || !a.Bad && len(a.Fields) == 0 {
		return f, err
	}
	f.is = wire.Next[string](a)
	text := wire.Next[string](a)
	f.state = r.kind + " " + f.is + " " + text
	if f.is == "newer" && s.skips(r.name, text) {
		return finding{}, nil
	}
	if a.Bad {
		return finding{}, wire.ErrReply
	}
	return f, nil
}

func (s *sweep) run(ctx context.Context, r remnant) (reply any, err error) {
	return paced(ctx, func(ctx context.Context) (any, error) { return s.d.send.Do(ctx, s.d.sweepCall(r, "", "", 0)) })
}

func (d *Driver) sweepCall(r remnant, seen, place string, stays time.Duration) *wire.Call {
	n := d.names(r.key)
	return &wire.Call{
		Script: sweepScript, Keys: d.withRecord(append(slices.Clone(n.all[:6]), r.name)),
		Args: []any{r.kind, seen, stays.Milliseconds(), place},
	}
}

// RemoveLeftover removes what ListLeftovers found; see [operator.Operations]. A lease that is not renewed is gone at once. A
// lease of which that cannot be known, since its grant is gone or was made permanent as well, and what stood beside a lock
// get an expiry of a minute instead, or, of a node, its longest TTL.
func (d *Driver) RemoveLeftover(ctx context.Context, l operator.Leftover) (stays time.Duration, err error) {
	if err := d.checkKey(l.Key); err != nil {
		return 0, err
	}
	r, seen, place, ok := d.listed(l)
	if !ok {
		return 0, errNotListed
	}
	reply, err := d.send.Do(ctx, d.sweepCall(r, seen, place, max(keep, d.maxTTL)))
	if err != nil {
		return 0, err
	}
	switch ms, ok := reply.(int64); {
	case !ok:
		return 0, wire.ErrReply
	case ms < 0:
		return 0, driver.ErrNotHeld
	default:
		return wire.Span(ms), nil
	}
}

var errNotListed = errors.New("redis: this was not listed by ListLeftovers of a driver with these options")

// listed reads what State says.
func (d *Driver) listed(l operator.Leftover) (r remnant, seen, place string, ok bool) {
	r, ok = d.remnantOf(l.Name)
	if !ok || r.key != l.Key {
		return r, "", "", false
	}
	switch l.Kind {
	case operator.LeftPlace:
		r.kind = placesRemnant
		place, seen, ok = strings.Cut(l.State, "\n")
	case operator.LeftLease, operator.LeftSidecar:
		r.kind, seen, ok = strings.Cut(l.State, " ")
	default:
		ok = false
	}
	return r, seen, place, ok && seen != ""
}
