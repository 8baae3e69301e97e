// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hasplock/hasp"
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
}

// open connects hasp, or the variant that a job names.
func open(with player.Job, observe func(context.Context, *event.Event)) (player.Locks, error) {
	var j job
	if err := json.Unmarshal(with.Extra, &j); err != nil {
		return nil, err
	}
	v, err := named(with.Broken)
	switch {
	case err != nil:
		return nil, err
	case v.redsync:
		return openRedsync(&j, with.TTL), nil
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

// Note adds what the witness knows, and the fence as the nodes know it: a client with a wrong
// clock sees it shifted.
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

// redsyncLocks is redsync on the same nodes, a player.Library.
type redsyncLocks struct {
	player.Locks // nil
	conns        []*redis.Client
	locks        *redsync.Redsync
	ttl          time.Duration
}

func openRedsync(j *job, ttl time.Duration) *redsyncLocks {
	l := &redsyncLocks{conns: dial(j.Addrs, j.Strict), ttl: ttl}
	var pools []redsyncredis.Pool
	for _, c := range l.conns {
		pools = append(pools, goredis.NewPool(c))
	}
	l.locks = redsync.New(pools...)
	return l
}

func (l *redsyncLocks) Acquire(ctx context.Context, o *player.Order) (*player.Holding, error) {
	m := l.locks.NewMutex(o.Wants[0].Key, redsync.WithExpiry(l.ttl))
	acquire := m.LockContext
	if o.Try {
		acquire = m.TryLockContext
	}
	if err := acquire(ctx); err != nil {
		return nil, err
	}
	release := func() error {
		ok, err := m.Unlock()
		if err == nil && !ok {
			err = errors.New("not unlocked")
		}
		return err
	}
	return &player.Holding{Leases: []player.Lease{redsyncLease{m}}, Release: release}, nil
}

func (l *redsyncLocks) Close() error { return closeAll(l.conns) }

// redsyncLease is a mutex that is held. It has no fence, and says nothing of a loss.
type redsyncLease struct{ m *redsync.Mutex }

func (l redsyncLease) Key() string                   { return l.m.Name() }
func (l redsyncLease) Owner() string                 { return l.m.Value() }
func (redsyncLease) Fence() uint64                   { return 0 }
func (redsyncLease) Mode() hasp.Mode                 { return hasp.Exclusive }
func (redsyncLease) Slot() int                       { return 0 }
func (redsyncLease) Abandoned() bool                 { return false }
func (l redsyncLease) Deadline() time.Time           { return l.m.Until() }
func (redsyncLease) Done() <-chan struct{}           { return nil }
func (redsyncLease) Err() error                      { return nil }
func (redsyncLease) Downgrade(context.Context) error { return errors.ErrUnsupported }
