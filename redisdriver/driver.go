// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

// DefaultPrefix is prepended to every key unless Options say otherwise.
const DefaultPrefix = "lock:"

// minTTL is the shortest useful TTL: Redis counts milliseconds, and a round trip has
// to fit in.
const minTTL = 10 * time.Millisecond

// longestTTL is what can be added to a node's clock, with the time that it is held back.
const longestTTL = 10 * 365 * 24 * time.Hour

// Options set how keys are named in Redis. A nil *Options, like the zero value, means
// the defaults.
type Options struct {
	// Prefix is prepended to every key in Redis; "" means [DefaultPrefix].
	// Programs exclude each other only if prefix and key together are equal.
	Prefix string
	// NoPrefix: the Redis key is the key itself, without a prefix. Prefix must be "".
	NoPrefix bool
	// Replicas is how many replicas of the key's master must have confirmed a lease (Redis's
	// WAIT) before it is granted, and each renewal before it counts; 0: none. If fewer do so
	// within a second, or half of the client's ReadTimeout, the error is a [*ReplicasError],
	// and Lock tries again. Each grant takes another round trip, to the replicas and back.
	//
	// A failover then loses no lease if Replicas is the number of all replicas that may be
	// promoted, each keeps its memory, and their clocks are not ahead of the master's. The
	// client must be a *redis.Client, a *redis.ClusterClient or one of rueidis, without a proxy in between. With
	// fewer it may: Sentinel and Cluster may promote a replica that did not confirm. [NewNode]
	// takes no Replicas: it treats a promotion as a restart.
	Replicas int
}

// Driver keeps locks in Redis. Create one with [New]. All methods may be called
// concurrently.
type Driver struct {
	client wire.Client
	keyspace
	maxTTL  time.Duration // of a Node; else 0
	scripts *scripts
	id      string
	bad     error // the configuration cannot work

	send  *wire.Sender
	renew *wire.Sender // of renewals: send, unless replicas confirm them
	delay roundTrip
	muted atomic.Bool // the server does not let us PUBLISH

	leases leases

	life    context.Context // ends with Close
	end     context.CancelFunc
	running sync.WaitGroup
	giving  chan struct{} // bounds the releases that answer hints without a waiter
	boxes   *boxes
}

var (
	_ driver.Driver = (*Driver)(nil)
	_ driver.Teller = (*Driver)(nil)
)

// New returns a Driver that uses the caller's client, and never closes or changes it.
// Any *redis.Client (single server, Sentinel, unix socket, TLS) or *redis.ClusterClient
// works, with any options.
//
// New does no I/O. A client that cannot be used for locks (nil, or a *redis.Ring, which
// moves keys to other servers when one fails) is reported by Check, by hasp.New, and by
// every method.
func New(rdb redis.UniversalClient, o *Options) *Driver { return Over(wire.GoRedis(rdb), o) }

// Over is [New] over another client, which only the packages below this one can have: see package rueidis there.
func Over(c wire.Client, o *Options) *Driver {
	if o == nil {
		o = &Options{}
	}
	t := c.Traits()
	d := &Driver{
		client: c, keyspace: keyspace{prefix: o.Prefix}, scripts: &plain,
		id: rand.Text(), bad: unusable(t, o), giving: make(chan struct{}, 16), leases: leases{all: map[driver.ID]lease{}, askers: map[string][]asker{}},
	}
	if d.prefix == "" && !o.NoPrefix {
		d.prefix = DefaultPrefix
	}
	d.cluster = t.Cluster
	d.life, d.end = context.WithCancel(context.Background())
	d.send = wire.NewSender(c, 0, d.life.Done())
	if d.renew = d.send; o.Replicas > 0 {
		d.renew = wire.NewSender(c, o.Replicas, d.life.Done())
	}
	d.boxes = &boxes{
		options: wire.InboxOptions{Client: c, Muted: d.muted.Store, Classify: classify}, id: d.id, keys: &d.keyspace, leases: &d.leases,
		life: d.life, unclaimed: d.giveBack,
	}
	d.boxes.Boxes = wire.Boxes[*inbox]{New: d.boxes.inbox, Running: &d.running, Open: map[int]*inbox{}}
	return d
}

// unusable says why a configuration cannot work.
func unusable(t wire.Traits, o *Options) error {
	if t.Unusable != nil {
		return t.Unusable
	}
	if o.NoPrefix && o.Prefix != "" {
		return &wire.ConfigError{Why: fmt.Sprintf("Options have the prefix %q, and NoPrefix: choose one of them", o.Prefix)}
	}
	if o.Replicas > 0 && !t.Waits { // WAIT is about its own connection, to the key's master
		return &wire.ConfigError{Why: "Replicas needs a *redis.Client or a *redis.ClusterClient, and the client is a " + t.Kind}
	}
	if o.Replicas < 0 {
		return &wire.ConfigError{Why: fmt.Sprintf("Options have %d Replicas: use 0 or more", o.Replicas)}
	}
	if strings.HasPrefix(o.Prefix, wire.Sidecars) {
		return &wire.ConfigError{Why: fmt.Sprintf("the prefix %q begins with %q, which is reserved for what hasp stores beside its locks: choose another prefix", o.Prefix, wire.Sidecars)}
	}
	return nil
}

// unusableNode says why a client cannot be a node's.
func unusableNode(t wire.Traits, maxTTL time.Duration, o *Options) error {
	if t.Cluster {
		return &wire.ConfigError{Why: "a node is a single server, but the client is a " + t.Kind}
	}
	if o != nil && o.Replicas != 0 {
		return &wire.ConfigError{Why: "a node waits for no Replicas: it grants nothing for a while after a promotion"}
	}
	if maxTTL < minTTL || maxTTL > longestTTL {
		return &wire.ConfigError{Why: fmt.Sprintf("the largest TTL of a node is %v: it must be at least %v, and at most %v, which is ten years", maxTTL, minTTL, longestTTL)}
	}
	return nil
}

// Check returns nil, or an error that says why this configuration cannot work. It
// does no I/O.
func (d *Driver) Check() error { return d.bad }

// Traits returns what this engine promises; see [driver.Traits].
func (d *Driver) Traits() driver.Traits {
	t := driver.Traits{
		Engine:         "redis",
		Queue:          driver.QueueHandoff,
		Tells:          driver.TellsFree | driver.TellsWanted,
		Fencing:        true,
		Shared:         true,
		Slots:          true,
		MarksAbandoned: true,
		MinTTL:         minTTL,
		MaxTTL:         d.maxTTL,
	}
	if d.enters() {
		t.Tells |= driver.TellsHandover
	}
	if d.maxTTL > 0 {
		t.Survives = driver.StoreRestart | driver.StoreLoss
	}
	return t
}

// grantState is the state of our grants, see queue.lua.
func (d *Driver) grantState() string {
	if d.muted.Load() {
		return "m"
	}
	return "h"
}

// enters says whether a waiter that is handed a key may enter on the message: not before replicas have confirmed it.
func (d *Driver) enters() bool { return d.renew.Replicas() == 0 && d.maxTTL == 0 }

// Classify returns the class of an error; see [driver.Driver].
func (d *Driver) Classify(err error) driver.Class { return classify(err) }

// Watch returns the channel of hints for c.Owner; see [driver.Driver]. It is nil if the
// server does not allow this client to subscribe.
//
// The first Watch opens one connection for subscriptions beside the client's
// pool; it stays until Close.
func (d *Driver) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	if err := d.check(c); err != nil {
		return nil, err
	}
	return d.boxes.watch(ctx, c)
}

// Tell has lost called for each lease that this driver was granted, or renewed, and
// that another client released; see [driver.Teller]. The news comes over the connection
// for waiters' hints, which the first Renew of a lease opens, and waits for, where no wait
// did. Nothing is told while that connection does not stand, nor without the right
// to subscribe here, or to publish there.
func (d *Driver) Tell(lost func(id driver.ID, fence uint64)) {
	d.leases.mu.Lock()
	defer d.leases.mu.Unlock()
	d.leases.lost = lost
}

// Close ends the driver's subscriptions and goroutines. The client stays open. An
// attempt to connect to a server that hangs cannot be interrupted: Close waits for it
// for a second at most, and the client's own timeouts end it later.
func (d *Driver) Close() error {
	d.end()
	d.boxes.Close()
	return nil
}

// check returns what is wrong with a claim, which needs no round trip.
func (d *Driver) check(c driver.Claim) error { return d.valid(c.Key, c.Check()) }
func (d *Driver) checkKey(key string) error  { return d.valid(key, driver.CheckKey(key)) }

// valid returns what is wrong with a request about a key, err among it, as this
// engine's error.
func (d *Driver) valid(key string, err error) error {
	switch {
	case d.bad != nil:
		return d.bad
	case err != nil:
		return fmt.Errorf("redis: %w", err)
	case strings.HasPrefix(d.prefix+key, wire.Sidecars):
		return &wire.ConfigError{Why: fmt.Sprintf("the key %q, prefix included, begins with %q, which is reserved for what hasp stores "+
			"beside its locks: choose another prefix", d.prefix+key, wire.Sidecars)}
	}
	return nil
}

// roundTrip is how long calls take: the longest of late, forgotten slowly.
type roundTrip struct {
	ns   atomic.Int64
	most time.Duration // for a claim; 0: maxClaim
}

func (t *roundTrip) sample(took time.Duration) {
	for {
		old := t.ns.Load()
		if t.ns.CompareAndSwap(old, max(int64(took), old-old/8)) {
			return
		}
	}
}

// The time that a waiter gets to claim a key that was handed to it. Short, as no
// owner works meanwhile; but never less than three round trips.
const (
	claimTime = 500 * time.Millisecond
	maxClaim  = 10 * time.Second
)

func (t *roundTrip) claim(ttl time.Duration) time.Duration {
	return min(max(3*time.Duration(t.ns.Load()), min(claimTime, ttl)), t.longest())
}

func (t *roundTrip) longest() time.Duration { return cmp.Or(t.most, maxClaim) }
