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
	"github.com/redis/go-redis/v9"
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
		nodes, err := wire.Masters(ctx, d.rdb)
		if err != nil {
			yield(operator.Leftover{}, err)
			return
		}
		s := &sweep{d: d, prefix: prefix, held: held, yield: yield}
		for _, node := range nodes {
			more, err := s.node(ctx, node)
			if err != nil {
				yield(operator.Leftover{}, err)
			}
			if err != nil || !more {
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
	yield  func(operator.Leftover, error) bool
	newer  error // of the first record of a later layout, all of which are skipped
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

// node walks over one server, and says whether to go on.
func (s *sweep) node(ctx context.Context, node redis.Cmdable) (more bool, err error) {
	type page struct {
		names  []string
		cursor uint64
	}
	match := "*" + wire.Glob(s.d.prefix+s.prefix) + "*" // as List has it
	var todo []remnant
	for cursor, over := uint64(0), false; !over; over = cursor == 0 {
		from := cursor
		p, err := paced(ctx, func(ctx context.Context) (p page, err error) {
			p.names, p.cursor, err = node.Scan(ctx, from, match, sweepScan).Result()
			return p, err
		})
		if err != nil {
			return false, err
		}
		cursor = p.cursor
		for _, name := range p.names {
			if r, ok := s.d.remnantOf(name); ok && strings.HasPrefix(r.key, s.prefix) {
				todo = append(todo, r)
			}
		}
		for len(todo) >= sweepKeys || cursor == 0 && len(todo) > 0 {
			n := min(sweepKeys, len(todo))
			if more, err := s.look(ctx, todo[:n]); err != nil || !more {
				return false, err
			}
			todo = append([]remnant(nil), todo[n:]...)
		}
	}
	return true, nil
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
func (s *sweep) look(ctx context.Context, todo []remnant) (more bool, err error) {
	type answer struct {
		left         *redis.Cmd // as a number: a time.Duration may be too short for it
		value, grant *redis.StringCmd
	}
	answers, err := paced(ctx, func(ctx context.Context) ([]answer, error) {
		all := make([]answer, len(todo))
		_, _ = s.d.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, r := range todo {
				if all[i].left = p.Do(ctx, "PTTL", r.name); r.kind == leaseRemnant {
					all[i].value = p.GetRange(ctx, r.name, 0, maxShown-1)
					all[i].grant = p.GetRange(ctx, s.d.names(r.key).grant, 0, 58)
				}
			}
			return nil
		})
		return all, nil // each command has its own error
	})
	if err != nil {
		return false, err
	}
	for i, r := range todo {
		more := true
		pttl, err := answers[i].left.Int64()
		switch value := answers[i].value; {
		case err != nil, pttl == int64(wire.Free):
		case value != nil && s.skips(s.d.names(r.key).grant, answers[i].grant.Val()):
		case value == nil:
			more, err = s.sidecar(ctx, r, pttl)
		case redis.HasErrorPrefix(value.Err(), "WRONGTYPE"): // not a lock
		case value.Err() != nil:
			err = value.Err()
		default:
			more, err = s.lease(ctx, r, value.Val(), pttl, parseGrant(answers[i].grant.Val()))
		}
		if err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// skips notes whether a text is of a later layout.
func (s *sweep) skips(name, text string) bool {
	err := newer(name, text)
	s.newer = cmp.Or(s.newer, err)
	return err != nil
}

// lease yields a lock without an expiry, and passes on a lock with one.
func (s *sweep) lease(ctx context.Context, r remnant, value string, pttl int64, g grant) (more bool, err error) {
	h := g.holder(value)
	if pttl != int64(wire.Forever) {
		return true, s.passOn(ctx, r.key, value, pttl, g)
	}
	if h.Foreign {
		if s.d.prefix == "" || len(value) >= maxShown { // another program's data, or a value of which we saw a part
			return true, nil
		}
		r.kind = foreignRemnant
	}
	what, err := s.ask(ctx, r)
	if err != nil || what.state == "" {
		return true, err
	}
	l := operator.Leftover{Key: r.key, Kind: operator.LeftLease, Name: r.name, Holder: h, State: what.state, Live: what.is == "live"}
	if !h.Since.IsZero() {
		l.Fence = g.fence
	}
	if h.Mode == driver.Shared {
		info, err := s.describe(ctx, r.key)
		if err != nil {
			return false, err
		}
		l.Holder, l.Fence = info.Holder, info.Fence
	}
	return s.yield(l, nil), nil
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

// sidecar yields what belonged to a lock and has no expiry, and of a queue the places that are over.
func (s *sweep) sidecar(ctx context.Context, r remnant, pttl int64) (more bool, err error) {
	if r.kind == "queue" {
		if more, err := s.places(ctx, r); err != nil || !more {
			return false, err
		}
	}
	if pttl != int64(wire.Forever) {
		return true, nil
	}
	if r.kind != goneRemnant {
		r.kind = sidecarRemnant
	}
	what, err := s.ask(ctx, r)
	if err != nil || what.state == "" {
		return true, err
	}
	return s.yield(operator.Leftover{Key: r.key, Kind: operator.LeftSidecar, Name: r.name, State: what.state}, nil), nil
}

// places yields the places in a queue of waiters that have been gone for a while.
func (s *sweep) places(ctx context.Context, r remnant) (more bool, err error) {
	r.kind = placesRemnant
	reply, err := s.run(ctx, r)
	switch {
	case err != nil && strings.Contains(err.Error(), "WRONGTYPE"): // no queue of ours
		return true, nil
	case err != nil:
		return false, err
	}
	for a := wire.NewReply(reply); len(a.Fields) > 0; {
		value, place := wire.Next[string](a), wire.Next[string](a)
		if a.Bad {
			return false, wire.ErrReply
		}
		if s.skips(s.d.names(r.key).places, place) {
			continue
		}
		l := operator.Leftover{Key: r.key, Kind: operator.LeftPlace, Name: r.name, State: place + "\n" + value}
		l.Holder = waiters(&wire.Reply{Fields: []any{value, place}})[0]
		if !s.yield(l, nil) {
			return false, nil
		}
	}
	return true, nil
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
