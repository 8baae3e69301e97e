// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/redis/go-redis/v9"
)

// DefaultPrefix stands before every key unless Options say otherwise.
const DefaultPrefix = "lock:"

// minTTL is the shortest TTL that means something: Redis counts milliseconds,
// and a round trip has to fit in.
const minTTL = 10 * time.Millisecond

// Options change how a Driver names its keys. The zero value is the default.
type Options struct {
	// Prefix stands before every key in Redis; empty means [DefaultPrefix].
	// Programs exclude each other only when prefix and key together are equal.
	Prefix string
	// NoPrefix: the Redis key is the key itself.
	NoPrefix bool
}

// Driver keeps locks in Redis. Make one with New. All methods may be called by
// any number of goroutines at once.
type Driver struct {
	rdb     redis.UniversalClient
	prefix  string
	cluster bool          // keys of one command must share a slot
	maxTTL  time.Duration // of a Node; else 0
	scripts *scripts
	id      string
	bad     error // the configuration cannot work

	send  *sender
	delay roundTrip
	muted atomic.Bool // the server does not let us PUBLISH

	life    context.Context // ends with Close
	end     context.CancelFunc
	running sync.WaitGroup
	giving  chan struct{} // bounds the releases that answer hints for nobody
	boxes   *boxes
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Checker = (*Driver)(nil)
)

// New makes a Driver of a client that the caller made and keeps: it is never
// closed or changed. Any *redis.Client (single server, Sentinel, unix socket,
// TLS) and *redis.ClusterClient will do, with any options.
//
// New does no I/O. A client that cannot carry locks (nil, a *redis.Ring, which
// moves keys to other servers when one fails) is reported by Check, by
// hasp.New, and by every call.
func New(rdb redis.UniversalClient, o *Options) *Driver { return newDriver(rdb, o) }

func newDriver(rdb redis.UniversalClient, o *Options) *Driver {
	if o == nil {
		o = &Options{}
	}
	d := &Driver{
		rdb: rdb, prefix: o.Prefix, scripts: &plain,
		id: rand.Text(), bad: refuse(rdb, o), giving: make(chan struct{}, 16),
	}
	if d.prefix == "" && !o.NoPrefix {
		d.prefix = DefaultPrefix
	}
	_, d.cluster = rdb.(*redis.ClusterClient)
	d.life, d.end = context.WithCancel(context.Background())
	d.send = newSender(rdb, d.cluster, d.life.Done())
	d.boxes = &boxes{d: d, open: map[int]*inbox{}}
	return d
}

// refuse says why a configuration cannot work.
func refuse(rdb redis.UniversalClient, o *Options) error {
	switch c := rdb.(type) {
	case nil:
		return &configError{"the client is nil"}
	case *redis.Client:
		if c == nil {
			return &configError{"the client is nil"}
		}
	case *redis.ClusterClient:
		if c == nil {
			return &configError{"the client is nil"}
		}
	case *redis.Ring:
		return &configError{"a redis.Ring moves keys to another server when one fails, so two clients " +
			"could hold one lock: use a redis.Client, or package quorum over several"}
	}
	if o.NoPrefix && o.Prefix != "" {
		return &configError{fmt.Sprintf("Options ask for the prefix %q and for none", o.Prefix)}
	}
	if strings.HasPrefix(o.Prefix, sidecars) {
		return &configError{fmt.Sprintf("the prefix %q begins with %q, as what hasp keeps beside its locks", o.Prefix, sidecars)}
	}
	return nil
}

// refuseNode says why a client cannot be a node's.
func refuseNode(rdb redis.UniversalClient, maxTTL time.Duration) error {
	if _, cluster := rdb.(*redis.ClusterClient); cluster {
		return &configError{"a node is one server, and this client is of a cluster"}
	}
	if maxTTL < minTTL {
		return &configError{fmt.Sprintf("the largest TTL of a node is %v: at least %v", maxTTL, minTTL)}
	}
	return nil
}

// Check says why this configuration cannot work. It does no I/O.
func (d *Driver) Check() error { return d.bad }

// Traits says what Redis promises.
func (d *Driver) Traits() driver.Traits {
	t := driver.Traits{
		Engine:        "redis",
		Queue:         driver.QueueHandoff,
		Hints:         true,
		Fencing:       true,
		Shared:        true,
		Slots:         true,
		AbandonedOnce: true,
		MinTTL:        minTTL,
		MaxTTL:        d.maxTTL,
	}
	if d.maxTTL > 0 {
		t.Survives = driver.StoreRestart | driver.StoreLoss
	}
	return t
}

// closeTime bounds Close.
const closeTime = time.Second

// Close ends the subscriptions and the goroutines that the driver started.
// The client stays open. An attempt to connect to a server that hangs cannot
// be interrupted: Close leaves it behind after a second, and it ends by the
// client's own time-outs.
func (d *Driver) Close() error {
	d.end()
	ended := make(chan struct{})
	go func() {
		d.boxes.close()
		d.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeTime):
	}
	return nil
}

// check refuses what needs no round trip to be refused.
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
	case strings.HasPrefix(d.prefix+key, sidecars):
		return &configError{fmt.Sprintf("the key %q, prefix included, begins with %q, as what hasp keeps beside its locks: "+
			"choose another prefix", d.prefix+key, sidecars)}
	}
	return nil
}

// roundTrip is how long calls take: the longest of late, forgotten slowly.
type roundTrip struct{ ns atomic.Int64 }

func (t *roundTrip) sample(took time.Duration) {
	for {
		old := t.ns.Load()
		if t.ns.CompareAndSwap(old, max(int64(took), old-old/8)) {
			return
		}
	}
}

// The time that a waiter gets to claim a key that was handed to it. Short, as
// nobody works meanwhile; but never less than three round trips.
const (
	claimTime = 500 * time.Millisecond
	maxClaim  = 10 * time.Second
)

func (t *roundTrip) claim(ttl time.Duration) time.Duration {
	return min(max(3*time.Duration(t.ns.Load()), min(claimTime, ttl)), maxClaim)
}

// configError is a configuration that cannot work.
type configError struct{ Why string }

func (e *configError) Error() string { return "redis: " + e.Why }

// TypeError is a lock key that holds something which is no lock. It is never
// changed.
type TypeError struct{ Key, Type string }

func (e *TypeError) Error() string {
	return fmt.Sprintf("redis: key %q holds a %s, not a lock: choose another key or prefix", e.Key, e.Type)
}

var errReply = errors.New("redis: a script gave an answer that this version does not know")
