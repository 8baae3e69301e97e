// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// How requests meet leases that are attached to a session: those of others make them ordinary ones, and a Renew waits for the
// beat, see session.go.

// detachCall makes a lease an ordinary one; see detach.lua.
func detachCall(lock, grant any, id string) *wire.Call {
	return &wire.Call{Script: detachScript, Keys: []any{lock, grant, sessionKey(id)}}
}

// exec runs calls as one pipeline. An error: the context ended, and the calls are still in use.
func (d *Driver) exec(ctx context.Context, calls []*wire.Call) error {
	_, err := wire.Await(ctx, func(ctx context.Context) (any, error) {
		d.renew.Exec(ctx, calls)
		return nil, nil //nolint:nilnil // each call has its own
	})
	return err
}

// detach does it for somebody who wants the key of c.
func (d *Driver) detach(ctx context.Context, c *wire.Call, id string) error {
	_, err := d.send.Do(ctx, detachCall(c.Keys[0], c.Keys[1], id))
	return err
}

// attachedTo is the session that a lease is attached to, as try.lua and release.lua answer; "": it is not, or to none.
func attachedTo(reply any) string {
	if f, ok := reply.([]any); ok && len(f) == 2 && f[0] == int64(attachedCode) {
		id, _ := f[1].(string)
		return id
	}
	return ""
}

// attachedCode is what they begin that answer with.
const attachedCode = 6

// maxDetach is how often one request is sent, and has a lease made an ordinary one: its holder has it attached again after each renewal.
const maxDetach = 3

// detached runs a call of the batch script until it is not refused because of a session.
func (d *Driver) detached(ctx context.Context, c *wire.Call) (*wire.Call, error) {
	for range maxDetach {
		reply, err := d.send.Do(ctx, c) // c.Reply may still be written where this is an error
		id := attachedTo(reply)
		if err != nil || id == "" {
			return c, err
		}
		if err = d.detach(ctx, c, id); err != nil {
			return c, err
		}
		c = &wire.Call{Script: c.Script, Mark: c.Mark, Keys: c.Keys, Args: c.Args}
	}
	return c, errAttached
}

// attachedLease is the number of a lease in a Renew that was found attached, and its session.
type attachedLease struct {
	i  int
	id string
}

// errAttached is of a lease that was attached again each time: only its holder's driver does that, after a renewal.
var errAttached = errors.New("redis: the holder attached its lease to a session again while this was asked for: ask again")

// joined are the leases of a Renew that one beat is to renew.
type joined struct {
	s      *session
	turn   *turn
	leases []int
}

// join has leases that are attached wait for a beat, and returns the others.
func (d *Driver) join(rs []driver.RenewRequest, leases []int) (others []int, beats []joined) {
	if d.sessions == nil {
		return leases, nil
	}
	of := map[*session][]int{}
	for _, i := range leases {
		if s := d.sessions.of(rs[i]); s != nil {
			of[s] = append(of[s], i)
		} else {
			others = append(others, i)
		}
	}
	for s, all := range of {
		t, attached, rest := s.join(rs, all)
		if others = append(others, rest...); t != nil {
			beats = append(beats, joined{s, t, attached})
		}
	}
	slices.SortFunc(beats, func(a, b joined) int { return cmp.Compare(a.s.ttl, b.s.ttl) }) // the one that comes first is awaited first
	return others, beats
}

// await reports what beats renewed, and has alone renew the leases that they did not.
func (d *Driver) await(ctx context.Context, rs []driver.RenewRequest, beats []joined, done func(int, driver.Renewal), alone func([]int)) {
	for _, b := range beats {
		if !b.turn.over(ctx, d.life) {
			continue
		}
		var others []int
		for _, i := range b.leases {
			switch {
			case b.turn.err != nil:
				done(i, driver.Renewal{Err: b.turn.err})
			case b.s.stands(rs[i].Owner, b.turn):
				done(i, driver.Renewal{TTL: rs[i].TTL})
			default:
				others = append(others, i)
			}
		}
		if len(others) > 0 {
			alone(others) // the next beat may be one of another TTL, and come later
		}
	}
}

// detachAll makes leases ordinary ones, and returns those that are.
func (d *Driver) detachAll(ctx context.Context, rs []driver.RenewRequest, all []attachedLease, done func(int, driver.Renewal)) (leases []int) {
	for some := range slices.Chunk(all, perAttach) {
		calls := make([]*wire.Call, len(some))
		for k, l := range some {
			names := d.names(rs[l.i].Key)
			calls[k] = detachCall(names.lock, names.grant, l.id)
		}
		if d.exec(ctx, calls) != nil {
			return leases
		}
		for k, l := range some {
			if err := calls[k].Err; err != nil {
				done(l.i, driver.Renewal{Err: err})
			} else {
				leases = append(leases, l.i)
			}
		}
	}
	return leases
}
