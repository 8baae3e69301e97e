// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/verify/broken"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// clientEnv marks a client process.
const clientEnv = "HASP_CAMPAIGN_CLIENT"

// ClientMain turns this process into a client when it was started as one, and
// does not return then. Programs that call Run call it first.
func ClientMain() {
	player.Main(clientEnv, func(in io.Reader, out io.Writer) error {
		logging.Disable()
		return player.Work(in, out, open)
	})
}

// job is what a client process needs to know besides player.Job.
type job struct {
	Store  Store
	Addrs  []string
	Skew   time.Duration
	State  string // the directory for waits, or empty
	Strict bool   // go-redis never sends a command twice, and obeys contexts; otherwise its defaults
	Agent  *agentJob
}

// of is the whole job of a client.
func (j job) of(ttl time.Duration, broken string) player.Job {
	extra, err := json.Marshal(j)
	if err != nil {
		panic(err) // it is plain data
	}
	return player.Job{TTL: ttl, Broken: broken, Extra: extra}
}

// open connects hasp, or the variant that a job names.
func open(with player.Job, observe func(context.Context, *event.Event)) (player.Locks, error) {
	var j job
	if err := json.Unmarshal(with.Extra, &j); err != nil {
		return nil, err
	}
	v, ok := variants[with.Broken]
	switch {
	case !ok:
		return nil, fmt.Errorf("no variant is called %q", with.Broken)
	case j.Agent != nil:
		if j.Agent.Heir = cmp.Or(v.heir, j.Agent.Heir); v.hasty {
			j.Agent.Linger = 0
		}
		return &agentLocks{job: *j.Agent, ttl: with.TTL, broken: v.lease, stood: stall.Watch(untilExit{})}, nil
	case v.library != nil:
		return v.library(dial(j.Addrs, j.Strict), with.TTL), nil
	}
	return openHasp(with, &j, v, observe)
}

// untilExit stands in for a test that never runs its cleanups.
type untilExit struct{}

func (untilExit) Cleanup(func()) {}

// haspLocks is hasp on one server, or on a quorum of the nodes.
type haspLocks struct {
	*engines.Client
	skew  time.Duration
	seen  *witness
	stood func() time.Duration
}

func openHasp(with player.Job, j *job, v *variant, observe func(context.Context, *event.Event)) (*haspLocks, error) {
	l := &haspLocks{skew: j.Skew, seen: newWitness(), stood: stall.Watch(untilExit{})}
	o := &hasp.Options{Observe: observe}
	conn, err := l.connect(j, with.TTL, v, o)
	if err == nil {
		l.Client, err = conn.Client(o)
	}
	return l, err
}

// connect makes the driver that a job names, with a safeguard removed.
func (l *haspLocks) connect(j *job, ttl time.Duration, v *variant, o *hasp.Options) (*engines.Conn, error) {
	switch j.Store {
	case Redlock, Redis, RedisNode:
	default:
		c, err := engines.Open(cmp.Or(v.opens, j.Store), j.Addrs)
		if err != nil {
			return nil, err
		}
		if n, ok := c.Driver.(member); ok {
			c.Driver = v.alone(n, l.seen)
		} else {
			c.Driver = v.over(c.Driver, l.seen)
		}
		return c, nil
	}
	conns := dial(j.Addrs, j.Strict)
	c := &engines.Conn{Disconnect: func() error { return closeAll(conns) }}
	switch j.Store {
	case Redlock:
		c.Driver = v.compose(nodesOf(conns, ttl), j.Skew, &quorum.Options{Names: j.Addrs, StateDir: j.State}, l.seen)
	case RedisNode:
		o.StateDir = j.State
		c.Driver = v.alone(nodesOf(conns, ttl)[0], l.seen)
	default:
		c.Driver = v.alone(redisdriver.New(conns[0], nil), l.seen)
	}
	return c, nil
}

// Attend has the witness report.
func (l *haspLocks) Attend(report func(player.Event)) { l.seen.report = report }

// Note adds what the witness knows, and the fence as the nodes know it: a client with a wrong clock sees it shifted.
func (l *haspLocks) Note(e *player.Event) {
	if e.What == player.Asked {
		l.seen.takes(e.N)
	}
	e.Most = l.seen.of(e.Owner).most
	e.Fence = broken.Shift(e.Fence, l.skew)
	e.Stood, e.Slow = l.stood(), time.Duration(l.seen.slow.Load())
}

// dial makes a client for each address. With strict it never sends a command twice,
// and obeys contexts; otherwise it has go-redis's defaults.
func dial(addrs []string, strict bool) (all []*redis.Client) {
	for _, addr := range addrs {
		o := &redis.Options{Addr: addr}
		if strict {
			o.MaxRetries, o.ContextTimeoutEnabled = -1, true
		}
		all = append(all, redis.NewClient(o))
	}
	return all
}

func closeAll[C io.Closer](all []C) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// nodesOf makes a driver for each server, with a node record.
func nodesOf(conns []*redis.Client, maxTTL time.Duration) (all []member) {
	for _, c := range conns {
		all = append(all, redisdriver.NewNode(c, maxTTL, nil))
	}
	return all
}

// variant is hasp with a safeguard removed, around a server or around the whole; or another library in its place. The zero value is
// hasp as it is.
type variant struct {
	node, whole broken.Fault
	opens       engines.Kind // instead of the engine that the schedule names
	library     func(conns []*redis.Client, ttl time.Duration) player.Locks
	lease       func(agentLease) player.Lease // what a client of an agent makes of its lease
	heir        time.Duration                 // for how long a child outlives such a client
	hasty       bool                          // nothing lingers
}

// variants are known by name. The tests have more than hasp as it is.
var variants = map[string]*variant{"": {}}

// alone makes the driver of one server.
func (v *variant) alone(d driver.Driver, seen *witness) driver.Driver {
	n := broken.New(d, v.node)
	return broken.Around(witnessed{seen.around(n), n}, v.whole)
}

// over makes the driver of another engine, or of a quorum.
func (v *variant) over(d driver.Driver, seen *witness) driver.Driver {
	return broken.Around(seen.around(d), v.whole)
}

// compose makes a quorum of nodes, for a client with a clock that is ahead.
func (v *variant) compose(all []member, skew time.Duration, o *quorum.Options, seen *witness) driver.Driver {
	var ds []voting.Node
	for _, n := range all {
		ds = append(ds, broken.New(n, v.node, broken.Ahead(func() time.Duration { return skew })))
	}
	return v.over(quorum.New(ds, o), seen)
}
