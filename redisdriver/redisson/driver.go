// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

// Kind is which of Redisson's locks a name is. A name has one kind, on both sides.
type Kind uint8

// The kinds. The zero value is Lock.
const (
	Lock      Kind = iota // getLock, getNonReentrantLock, getSpinLock
	Fair                  // getFairLock, getNonReentrantFairLock
	Fenced                // getFencedLock
	ReadWrite             // getReadWriteLock
)

var kinds = []string{"lock", "fair", "fenced", "readwrite"}

func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("kind %d", k)
}

// ParseKind returns the kind that String names so.
func ParseKind(s string) (Kind, error) {
	for k, name := range kinds {
		if s == name {
			return Kind(k), nil
		}
	}
	return 0, fmt.Errorf("the kind %q is none of Redisson's: use %s", s, strings.Join(kinds, ", "))
}

// DefaultLockWatchdogTimeout is Redisson's default of its setting lockWatchdogTimeout.
const DefaultLockWatchdogTimeout = 30 * time.Second

// Options say which locks a Driver keeps. A nil *Options, like the zero value, means those of getLock.
type Options struct {
	Kind Kind
	// LockWatchdogTimeout is Redisson's setting of that name, the smallest among the programs in Java that use these locks; 0 is Redisson's
	// default, 30 s. It is for ReadWrite only, and the longest TTL there (Traits.MaxTTL): when Redisson renews a reader of Java's, the lock of
	// all readers ends so long after that, and a writer would be let in under a longer lease of hasp's.
	LockWatchdogTimeout time.Duration
	// Prefix is prepended to every key; "" is none. Redisson's names have none, unless its
	// configuration has a NameMapper.
	Prefix string
}

// Driver keeps locks in Redis as Redisson does. Create one with [New]. All methods may be called
// concurrently.
type Driver struct {
	*store
	kind   Kind
	maxTTL time.Duration // of ReadWrite; else 0
}

var _ driver.Driver = (*Driver)(nil)

// New returns a Driver that uses the caller's client, and never closes or changes it: a *redis.Client, also of Sentinels, or a
// *redis.ClusterClient.
//
// New does no I/O. A client that cannot be used for locks is reported by Check, by hasp.New, and by every method.
func New(rdb redis.UniversalClient, o *Options) *Driver { return Over(wire.GoRedis(rdb), o) }

// Over is [New] over another client: see package rueidis beside this one.
func Over(c wire.Client, o *Options) *Driver {
	if o == nil {
		o = &Options{}
	}
	d := &Driver{store: newStore(c, o.Prefix, wakeLock, "0"), kind: o.Kind}
	if d.kind == ReadWrite {
		d.maxTTL = cmp.Or(o.LockWatchdogTimeout, DefaultLockWatchdogTimeout)
	}
	if d.bad == nil {
		d.bad = o.check()
	}
	return d
}

// check returns what is wrong with the options.
func (o *Options) check() error {
	var why string
	switch {
	case int(o.Kind) >= len(kinds):
		why = fmt.Sprintf("Options have %v, which is none of Redisson's", o.Kind)
	case o.Kind != ReadWrite && o.LockWatchdogTimeout != 0:
		why = fmt.Sprintf("Options have a LockWatchdogTimeout, and the kind %v: it is for %v only", o.Kind, ReadWrite)
	case o.LockWatchdogTimeout != 0 && o.LockWatchdogTimeout < minTTL:
		why = fmt.Sprintf("Options have a LockWatchdogTimeout of %v: it must be at least %v, or 0 for %v", o.LockWatchdogTimeout, minTTL, DefaultLockWatchdogTimeout)
	default:
		return nil
	}
	return &wire.ConfigError{Why: why}
}

// Check returns nil, or an error that says why this configuration cannot work. It
// does no I/O.
func (d *Driver) Check() error { return d.bad }

// minTTL is the shortest useful TTL: Redis counts milliseconds, and a round trip has
// to fit in.
const minTTL = 10 * time.Millisecond

// tooLong: Redisson may end a lock before a lease of this TTL does.
func (d *Driver) tooLong(ttl time.Duration) bool { return d.maxTTL > 0 && ttl > d.maxTTL }

// Traits returns what this engine promises; see [driver.Traits].
func (d *Driver) Traits() driver.Traits {
	t := driver.Traits{Engine: "redisson", Tells: driver.TellsFree, MinTTL: minTTL, Fencing: d.kind == Fenced, Shared: d.kind == ReadWrite, MaxTTL: d.maxTTL}
	if d.kind == Fair {
		t.Queue = driver.QueueHint
	}
	return t
}

// Classify returns the class of an error; see [driver.Driver].
func (d *Driver) Classify(err error) driver.Class { return wire.Classify(err) }

// Close ends the driver's subscriptions and goroutines. The client stays open. An
// attempt to connect to a server that hangs cannot be interrupted: Close waits for it
// for a second at most, and the client's own timeouts end it later.
func (d *Driver) Close() error {
	d.close()
	return nil
}

// valid returns what is wrong with a request about a key, err among it.
func (d *Driver) valid(key string, err error) error {
	switch {
	case d.bad != nil:
		return d.bad
	case err != nil:
		return fmt.Errorf("redisson: %w", err)
	case d.reserved(key) != nil:
		return d.reserved(key)
	case d.cluster:
		return d.names(key).oneSlot()
	}
	return nil
}

// check returns what is wrong with a claim: this kind may not have its mode.
func (d *Driver) check(c driver.Claim, err error) error {
	switch {
	case err != nil:
	case c.Mode == driver.Shared && d.kind != ReadWrite:
		err = fmt.Errorf("a %v lock of Redisson's cannot be shared: use the kind %v: %w", d.kind, ReadWrite, driver.ErrUnsupported)
	case c.Limit > 0:
		err = fmt.Errorf("locks of Redisson's have no number of holders: use Synchronizers for its semaphores: %w", driver.ErrUnsupported)
	}
	return d.valid(c.Key, err)
}
