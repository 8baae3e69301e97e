// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// A script of Renew carries up to perScript requests.
const (
	perScript = 100
	perQueue  = 25 // of signs of life in one queue, each of which looks at the places before it
)

// job is one script of a Renew and what its answers are about.
type job struct {
	call  *wire.Call
	about []int                 // request of each answer
	owned []driver.RenewRequest // these; the caller may have its own back before a lane is done with them
	place bool
	slot  int
	borne []bool // which leases were prolonged alone: their slot moves
}

// Renew prolongs leases and keeps places in queues; see [driver.Driver].
func (d *Driver) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	var leases, places []int
	for i, r := range rs {
		switch err := d.valid(r.Key, r.Check()); {
		case err != nil:
			done(i, driver.Renewal{Err: err})
		case !r.Queue && d.tooLong(r.TTL):
			done(i, driver.Renewal{Err: &wire.ConfigError{Why: fmt.Sprintf("a TTL of %v is longer than %v, Redisson's lockWatchdogTimeout (Options.LockWatchdogTimeout)",
				r.TTL, d.maxTTL)}})
		case !r.Queue:
			leases = append(leases, i)
		case d.kind == Fair:
			places = append(places, i)
		default: // there are none
			done(i, driver.Renewal{Err: driver.ErrNotHeld})
		}
	}
	jobs := append(d.leaseJobs(rs, leases), d.placeJobs(rs, places)...)
	wire.Carry(ctx, d.send, func(time.Duration) {}, jobs, func(j *job) (*wire.Call, int) { return j.call, j.slot },
		func(j *job) { d.bear(ctx, j) }, func(j *job) { d.report(rs, j, done) })
}

// bear prolongs leases while their slot moves to another master of the cluster, which may take longer than they have
// left: each key by a script of its own, which go-redis takes to where the key is. A reader's hold comes before the lock,
// which alone would keep others out.
func (d *Driver) bear(ctx context.Context, j *job) {
	if j.place || ctx.Err() != nil || !wire.Says(j.call.Err, "TRYAGAIN") {
		return
	}
	var holds, locks []*wire.Call
	for _, r := range j.owned {
		names, own, ttl := d.names(r.Key), fieldOf(r.Owner), wire.Millis(r.TTL)
		lock := &wire.Call{Script: bear, Keys: []any{names.lock}, Args: []any{ttl, own}}
		if d.kind == ReadWrite {
			holds = append(holds, &wire.Call{Script: bear, Keys: []any{names.timeout(own)}, Args: []any{ttl}})
			lock.Args = append(lock.Args, own+":write")
		}
		locks = append(locks, lock)
	}
	if len(holds) > 0 {
		d.send.Exec(ctx, holds)
	}
	d.send.Exec(ctx, locks)
	j.borne = make([]bool, len(j.about))
	for k, lock := range locks {
		field, _ := lock.Reply.(int64)
		reader := d.kind == ReadWrite && field == 1
		j.borne[k] = lock.Err == nil && field > 0 && (!reader || holds[k].Err == nil && holds[k].Reply == int64(1))
	}
}

// leaseJobs groups leases by what one script can carry: one TTL and, in a cluster, one hash slot.
func (d *Driver) leaseJobs(rs []driver.RenewRequest, idx []int) (jobs []*job) {
	type group struct {
		ttl  time.Duration
		slot int
	}
	groups := map[group][]int{}
	for _, i := range idx {
		g := group{rs[i].TTL, d.slotOf(rs[i].Key)}
		groups[g] = append(groups[g], i)
	}
	for g, all := range groups {
		for about := range slices.Chunk(all, perScript) {
			n, ttl := len(about), wire.Millis(g.ttl)
			parts, script := 2, extend
			switch d.kind {
			case Fair:
				parts = 3
			case ReadWrite:
				parts, script = 3, rwExtend
			case Lock, Fenced:
			}
			keys, args := make([]any, parts*n), []any{ttl, ttl + keepAbout.Milliseconds(), n}
			var owned []driver.RenewRequest
			for k, i := range about {
				owned = append(owned, rs[i])
				names, own := d.names(rs[i].Key), fieldOf(rs[i].Owner)
				keys[k], keys[n+k] = names.lock, names.about()
				switch d.kind {
				case Fair:
					keys[2*n+k] = names.queue
				case ReadWrite:
					keys[2*n+k] = names.timeout(own)
				case Lock, Fenced:
				}
				args = append(args, own, rs[i].Label)
			}
			jobs = append(jobs, &job{call: &wire.Call{Script: script, Keys: keys, Args: args}, about: about, owned: owned, slot: g.slot})
		}
	}
	return jobs
}

// placeJobs makes a script of the places in one queue.
func (d *Driver) placeJobs(rs []driver.RenewRequest, idx []int) (jobs []*job) {
	byKey := map[string][]int{}
	for _, i := range idx {
		byKey[rs[i].Key] = append(byKey[rs[i].Key], i)
	}
	for key, all := range byKey {
		names := d.names(key)
		for about := range slices.Chunk(all, perQueue) {
			args := []any{d.publish(), names.channel}
			for _, i := range about {
				args = append(args, fieldOf(rs[i].Owner), rs[i].Label, wire.Millis(rs[i].Patience))
			}
			keys := []any{names.lock, names.about(), names.queue, names.timeouts, names.waiters()}
			jobs = append(jobs, &job{call: &wire.Call{Script: fairKeep, Keys: keys, Args: args}, about: about, place: true, slot: d.slotOf(key)})
		}
	}
	return jobs
}

// report passes on what a job's script answered.
func (d *Driver) report(rs []driver.RenewRequest, j *job, done func(int, driver.Renewal)) {
	answers, _ := j.call.Reply.([]any)
	for k, i := range j.about {
		var n int64
		err, ok := j.call.Err, false
		if err == nil && len(answers) == len(j.about) {
			n, ok = answers[k].(int64)
		}
		switch {
		case err != nil && j.borne != nil && j.borne[k]:
			done(i, driver.Renewal{TTL: rs[i].TTL})
		case err != nil:
			done(i, driver.Renewal{Err: err})
		case !ok:
			done(i, driver.Renewal{Err: wire.ErrReply})
		case !j.place && n < 0:
			done(i, driver.Renewal{Err: &wire.TypeError{Key: d.names(rs[i].Key).about(), Type: "value that hasp did not write"}})
		case j.place && n < 0, !j.place && n == 0:
			done(i, driver.Renewal{Err: driver.ErrNotHeld})
		case j.place:
			in := wire.Span(n)
			if _, hinted := d.rank(rs[i].Claim); !hinted {
				in = pollMax
			}
			done(i, driver.Renewal{RetryIn: in})
		default:
			done(i, driver.Renewal{TTL: rs[i].TTL, Wanted: n == 2})
		}
	}
}
