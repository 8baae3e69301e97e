// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// A script of Renew carries up to perScript requests, see also wire.Carry. Measured with
// 100,000 leases on two shared cores: 0.7 s and 5 µs of the server for each
// lease, while others waited 7 ms at the 99th percentile; with 500 in a script
// and four lanes it took as long, and others waited 13 to 24 ms.
const perScript = 250

// job is one script of a Renew and what its answers are about.
type job struct {
	renewGroup
	call  *wire.Call
	rs    []driver.RenewRequest
	about []int // which of rs each answer is about
	lease bool
	begun time.Time
	alone []*wire.Call // for each again, of the lock alone: its slot moves
}

// renewGroup is what the requests of one script have in common; of places only the hash slot.
type renewGroup struct {
	hashSlot int // in a cluster, else -1
	ttl      time.Duration
	inbox    string // on which holders hear of waiters that join; "": they do not ask
	entered  bool
	shared   bool
	lasts    bool // their grants need not be prolonged
}

// isShared is what extend.lua answers of a lease that is shared, where it does not have all keys of the lock.
const isShared = 3

// Renew prolongs leases and keeps places in queues; see [driver.Driver].
func (d *Driver) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	var leases, places []int
	for i, r := range rs {
		switch err := d.valid(r.Key, r.Check()); {
		case err != nil:
			done(i, driver.Renewal{Err: err})
		case !r.Queue && d.maxTTL != 0 && r.TTL > d.maxTTL:
			done(i, driver.Renewal{Err: tooLong(r.TTL, d.maxTTL)})
		case r.Queue:
			places = append(places, i)
		default:
			leases = append(leases, i)
		}
	}
	asked := slices.ContainsFunc(leases, func(i int) bool { return rs[i].Wanted != nil })
	channel := "" // on which holders hear of waiters that join
	if len(leases) > 0 {
		if in := d.boxes.listen(asked); in != nil {
			defer in.Begun(ctx) // all outcomes are reported before, and so they are here
			if stands, _ := in.Up(); stands {
				channel = in.channel
			} else if asked {
				defer d.askOnceItStands(ctx, rs, leases, in)
			}
		}
	}
	lasts := make([]bool, len(rs))
	for _, i := range leases {
		lasts[i] = d.leases.renewed(&rs[i])
	}
	d.carry(ctx, append(d.leaseJobs(rs, leases, channel, lasts), d.placeJobs(rs, places)...), func(j *job) { d.report(j, done) })
}

// carry sends jobs, and calls report for each.
func (d *Driver) carry(ctx context.Context, jobs []*job, report func(*job)) {
	wire.Carry(ctx, d.renew, d.delay.sample, jobs, func(j *job) (*wire.Call, int) { return j.call, j.hashSlot },
		func(j *job) { d.askAnew(ctx, j) }, report)
}

// askAnew asks once more what the first answer to a job about leases leaves open.
func (d *Driver) askAnew(ctx context.Context, j *job) {
	answers, _ := j.call.Reply.([]any)
	switch {
	case !j.lease:
	case wire.Says(j.call.Err, "TRYAGAIN"):
		d.renewWhileResharding(ctx, j)
	case !j.shared && slices.Contains(answers, any(int64(isShared))): // a Try that converted overtook the renewal
		j.shared, j.lasts = true, false
		j.call = d.extendCall(j)
		d.renew.Exec(ctx, []*wire.Call{j.call})
	}
}

// renewWhileResharding prolongs leases while their slot moves to another master of the cluster, which may
// take longer than they have left: the grant of each, and then its lock, which alone says whether it
// stands. See bear.lua.
func (d *Driver) renewWhileResharding(ctx context.Context, j *job) {
	if ctx.Err() != nil {
		return
	}
	n, ttl, values := len(j.about), j.call.Args[0].(int64), j.call.Args[2:]
	var grants []*wire.Call
	for i := range n {
		j.alone = append(j.alone, bearing(j.call.Keys[i], values[i], -1, ttl))
		owner := values[i].(string)[:driver.OwnerLen]
		if !j.lasts {
			grants = append(grants, bearing(j.call.Keys[n+i], owner, len(owner), ttl+keep.Milliseconds()))
		}
	}
	d.renew.Exec(ctx, append(grants, j.alone...))
}

func bearing(key any, begins any, length int, ms int64) *wire.Call {
	return &wire.Call{Script: bearScript, Keys: []any{key}, Args: []any{begins, length, ms}}
}

// leaseJobs groups leases by what one script can carry, and keeps their order. They ask on that channel to be told of waiters
// that join; "": none does. lasts says whose grants last without that, nil: none.
func (d *Driver) leaseJobs(rs []driver.RenewRequest, idx []int, channel string, lasts []bool) []*job {
	var jobs []*job
	begun := time.Now()
	open := map[renewGroup]*job{}
	for _, i := range idx {
		r := &rs[i]
		g := renewGroup{d.hashSlot(r.Key), r.TTL, inboxOf(r, channel), r.Entered && d.maxTTL == 0, r.Mode == driver.Shared, false}
		g.lasts = lasts != nil && lasts[i] && g.inbox == "" && !g.entered && !g.shared
		j := open[g]
		if j == nil || len(j.about) == perScript {
			j = &job{renewGroup: g, rs: rs, lease: true, begun: begun}
			open[g], jobs = j, append(jobs, j)
		}
		j.about = append(j.about, i)
	}
	for _, j := range jobs {
		j.call = d.extendCall(j)
	}
	return jobs
}

// extendCall prolongs the leases of a job. It names all keys of a lock only where the client knows that its owner shares it.
func (d *Driver) extendCall(j *job) *wire.Call {
	n, each := len(j.about), 3
	switch {
	case j.shared:
		each = 6
	case j.lasts:
		each = 2
	}
	keys := make([]any, each*n, each*n+1)
	args := append(make([]any, 0, n+4), wire.Millis(j.ttl), n)
	var fences, claimed []any
	for k, i := range j.about {
		r := &j.rs[i]
		if j.shared {
			names := d.names(r.Key)
			for part, at := range [...]int{0, 1, 2, 4, 5, 6} { // all but the places
				keys[part*n+k] = names.all[at]
			}
		} else {
			lock, grant, queue := d.fewNames(r.Key)
			if keys[k], keys[(each-1)*n+k] = lock, queue; !j.lasts {
				keys[n+k] = grant
			}
		}
		args = append(args, value(r.Claim))
		if d.maxTTL != 0 {
			fences = append(fences, fenceHeld(r))
		} else if j.entered {
			claimed = append(claimed, fenceHeld(r))
		}
	}
	if args = append(args, fences...); j.inbox != "" || j.entered {
		args = append(args, j.inbox)
	}
	if j.entered {
		args = append(append(args, d.grantState()), claimed...)
	}
	return &wire.Call{Script: d.scripts.extend, Keys: d.withRecord(keys), Args: args}
}

// inboxOf is where the holder of a lease wants to be told of waiters that join, see queue.lua; "": nowhere.
func inboxOf(r *driver.RenewRequest, channel string) string {
	switch {
	case channel == "" || r.Wanted == nil:
		return ""
	case r.Keeps:
		return "~" + channel
	}
	return channel
}

// fenceHeld is what a lease's fence must not be below; nothing when it is not
// known.
func fenceHeld(r *driver.RenewRequest) string {
	if r.Fence == 0 {
		return ""
	}
	return digits(r.Fence)
}

// placeJobs groups places by queue, and queues by what one script can carry.
func (d *Driver) placeJobs(rs []driver.RenewRequest, idx []int) []*job {
	sorted := slices.SortedStableFunc(slices.Values(idx), func(a, b int) int {
		return cmp.Or(cmp.Compare(d.hashSlot(rs[a].Key), d.hashSlot(rs[b].Key)), cmp.Compare(rs[a].Key, rs[b].Key))
	})
	var jobs []*job
	var j *job
	for len(sorted) > 0 {
		key := rs[sorted[0]].Key
		n := 1
		for n < len(sorted) && n < perScript && rs[sorted[n]].Key == key {
			n++
		}
		if hashSlot := d.hashSlot(key); j == nil || j.hashSlot != hashSlot || len(j.about)+n > perScript {
			j = &job{renewGroup: renewGroup{hashSlot: hashSlot}, call: &wire.Call{Script: d.scripts.keep}, rs: rs}
			jobs = append(jobs, j)
		}
		names := d.names(key)
		j.call.Keys = append(append(j.call.Keys, names.all[:5]...), names.room)
		j.call.Args = append(j.call.Args, n)
		for _, i := range sorted[:n] {
			j.call.Args = append(j.call.Args, value(rs[i].Claim), wire.Millis(rs[i].Patience))
		}
		j.about = append(j.about, sorted[:n]...)
		sorted = sorted[n:]
	}
	for _, j := range jobs {
		j.call.Keys = d.withRecord(j.call.Keys)
	}
	return jobs
}

// withRecord adds the key that the scripts of a node want at the end.
func (d *Driver) withRecord(keys []any) []any {
	if d.maxTTL == 0 {
		return keys
	}
	return append(keys, recordKey)
}

// tooLong is of a TTL that the node does not allow.
func tooLong(ttl, most time.Duration) error {
	return &wire.ConfigError{Why: fmt.Sprintf("a TTL of %v is longer than %v, the longest that the node allows", ttl, most)}
}

// barred says why a node's script did nothing, or nil.
func (j *job) barred() error {
	switch most, ok := j.call.Reply.(int64); {
	case !ok:
		return nil
	case !j.lease:
		return driver.ErrNotHeld
	case most > 0:
		return tooLong(j.ttl, wire.Span(most))
	}
	return fmt.Errorf("redis: %w", voting.ErrNotVoting)
}

// report passes on what a job's script answered.
func (d *Driver) report(j *job, done func(int, driver.Renewal)) {
	err := j.call.Err
	if err == nil && d.maxTTL != 0 {
		err = j.barred()
	}
	r := wire.NewReply(j.call.Reply)
	if err == nil && (r.Bad || len(r.Fields) != len(j.about)) {
		err = wire.ErrReply
	}
	for k, i := range j.about {
		switch {
		case err == nil:
			answer := d.renewal(&j.rs[i], j.lease, r)
			if j.lease && !j.lasts && answer.Err == nil && d.maxTTL == 0 && j.ttl <= spare {
				d.leases.lasting(&j.rs[i], j.begun)
			}
			done(i, answer)
		case j.alone != nil && j.alone[k].Err == nil && j.alone[k].Reply == int64(1):
			done(i, driver.Renewal{TTL: j.ttl, Unclaimed: j.rs[i].Entered})
		default:
			done(i, driver.Renewal{Err: err})
		}
	}
}

// renewal reads the next answer of a script.
func (d *Driver) renewal(of *driver.RenewRequest, lease bool, r *wire.Reply) driver.Renewal {
	if text, ok := r.Fields[0].(string); ok {
		r.Fields = r.Fields[1:]
		if !lease {
			return driver.Renewal{Err: strange(d.names(of.Key).places, text, strangePlace)}
		}
		return driver.Renewal{Err: cmp.Or(newer(d.names(of.Key).grant, text), wire.ErrReply)}
	}
	switch n := wire.Next[int64](r); {
	case r.Bad, lease && n >= isShared:
		return driver.Renewal{Err: wire.ErrReply}
	case lease && n <= 0:
		d.leases.drop(of.ID())
		return driver.Renewal{Err: driver.ErrNotHeld}
	case lease:
		return driver.Renewal{TTL: of.TTL, Wanted: n == 2}
	case n < 0:
		return driver.Renewal{Err: driver.ErrNotHeld}
	default:
		return driver.Renewal{RetryIn: d.lookIn(of.Claim, n)}
	}
}

// askOnceItStands renews the leases that ask. Some were renewed without asking, as the subscription did not stand yet: their holders
// did not hear of waiters that joined before. Where the next attempt to subscribe fails, it goes on beside Renew: the next renewal
// may be far away.
func (d *Driver) askOnceItStands(ctx context.Context, rs []driver.RenewRequest, leases []int, in *inbox) {
	var asks []driver.RenewRequest
	var lasts time.Duration
	for _, i := range leases {
		if rs[i].Wanted != nil {
			asks, lasts = append(asks, rs[i]), max(lasts, rs[i].TTL)
		}
	}
	if stands, err := in.Await(ctx); stands {
		d.askAgain(ctx, asks, in)
	} else if err != nil { // else this client may not subscribe: the next renewal asks
		d.boxes.Beside(func() {
			ctx, cancel := context.WithTimeout(d.life, lasts)
			defer cancel()
			if in.Outlast(ctx, func() bool { return len(d.leases.stillAsk(asks)) > 0 }) {
				d.askAgain(ctx, d.leases.stillAsk(asks), in)
			}
		})
	}
}

// askAgain renews leases that ask, and tells the holders of keys with a waiter.
func (d *Driver) askAgain(ctx context.Context, rs []driver.RenewRequest, in *inbox) {
	all := make([]int, len(rs))
	for i := range all {
		all[i] = i
	}
	d.carry(ctx, d.leaseJobs(rs, all, in.channel, nil), func(j *job) {
		d.report(j, func(i int, r driver.Renewal) {
			if id := rs[i].ID(); r.Err == nil && r.Wanted {
				d.leases.tell(id.Key, func(a asker) bool { return a.id == id })
			}
		})
	})
}

// lookIn says when a place should try again without a hint.
func (d *Driver) lookIn(c driver.Claim, ms int64) time.Duration {
	in := wire.Span(ms)
	if mode, _ := d.boxes.mode(c); mode != modePoll {
		return in
	}
	if ms == 0 {
		return pollMax
	}
	return min(in, pollStep)
}

// confirm waits until the replicas confirm a lease that was granted. It renews it for that: a renewal always writes.
func (d *Driver) confirm(ctx context.Context, r driver.RenewRequest, granted driver.Result) (res driver.Result, err error) {
	j := d.leaseJobs([]driver.RenewRequest{r}, []int{0}, "", nil)[0]
	if _, err := d.renew.Do(ctx, j.call); err != nil {
		return res, fmt.Errorf("redis: asking the replicas: %w", err) // never NotSent: the lease was granted
	}
	d.askAnew(ctx, j)
	d.report(j, func(_ int, answer driver.Renewal) { err = answer.Err })
	if errors.Is(err, driver.ErrNotHeld) {
		err = &ReplicasError{Want: d.renew.Replicas(), Gone: true}
	}
	if err != nil {
		return res, err
	}
	return granted, nil
}
