// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// DefaultPrefix is prepended to every key unless Options say otherwise.
const DefaultPrefix = "hasp/"

// Options set how keys are named in etcd, and what the servers can do. A nil *Options, like
// the zero value, means the defaults.
type Options struct {
	// Prefix is prepended to every key in etcd; "" means [DefaultPrefix]. Programs
	// exclude each other only if prefix and key together are equal.
	Prefix string
	// ElectionTimeout is that of the servers (--election-timeout); 0 means etcd's default
	// of a second. The shortest TTL of etcd follows from it: one and a half times as long,
	// in whole seconds. Where the servers' is longer than this, leases last longer than
	// they were asked for.
	ElectionTimeout time.Duration
}

// Driver keeps locks in etcd. Create one with [New]. All methods may be called
// concurrently.
type Driver struct {
	client *clientv3.Client
	prefix string
	minTTL time.Duration
	bad    error // the configuration cannot work

	life    context.Context // ends with Close
	end     context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	pool     map[pool]*pooled                // the leases that newcomers share
	leases   map[clientv3.LeaseID]*lease     // those that this driver was granted, and that may stand
	records  map[driver.ID]*record           // what this driver's owners have in the store
	renewing map[driver.ID]chan struct{}     // the owners that a Renew is at work on; closed when it has ended
	waiters  map[driver.ID]*waiter           // the owners that watch
	watched  map[string]int                  // by key: how many of the waiters there are
	refused  map[string]time.Time            // by key: when an owner was refused it last
	lost     func(c driver.ID, fence uint64) // nil: losses are not reported
	guarded  int                             // how many own keys are watched
	pulse    *pulse                          // on which leases are kept alive; nil: none was yet
	channel  *channel                        // on which watches begin; nil: none did yet
	proving  bool                            // it is looked after
}

var (
	_ driver.Driver = (*Driver)(nil)
	_ driver.Teller = (*Driver)(nil)
)

// New returns a Driver that uses the caller's client, and never closes or changes it. It does no
// I/O. A client that is nil, or options that cannot work, are reported by Check, by
// hasp.New, and by every method.
func New(client *clientv3.Client, o *Options) *Driver {
	if o == nil {
		o = &Options{}
	}
	d := &Driver{
		client: client, prefix: o.Prefix, minTTL: minTTL(o.ElectionTimeout), bad: unusable(client, o),
		pool:     make(map[pool]*pooled),
		leases:   make(map[clientv3.LeaseID]*lease),
		records:  make(map[driver.ID]*record),
		renewing: make(map[driver.ID]chan struct{}),
		waiters:  make(map[driver.ID]*waiter),
		watched:  make(map[string]int),
		refused:  make(map[string]time.Time),
	}
	if d.prefix == "" {
		d.prefix = DefaultPrefix
	}
	d.life, d.end = context.WithCancel(context.Background())
	return d
}

// minTTL is the shortest lease that servers with an election time-out grant: three halves
// of it, in whole seconds (etcd's MinLeaseTTL).
func minTTL(election time.Duration) time.Duration {
	if election <= 0 {
		election = time.Second
	}
	return seconds(election + election/2)
}

func unusable(client *clientv3.Client, o *Options) error {
	switch {
	case client == nil:
		return &configError{"the client is nil"}
	case o.ElectionTimeout < 0:
		return &configError{fmt.Sprintf("the election time-out is %v: it must be positive, or 0 for etcd's default", o.ElectionTimeout)}
	}
	return nil
}

// Check returns nil, or an error that says why this configuration cannot work. It
// does no I/O.
func (d *Driver) Check() error { return d.bad }

// Traits returns what this engine promises; see [driver.Traits].
func (d *Driver) Traits() driver.Traits {
	return driver.Traits{
		Engine:         "etcd",
		Queue:          driver.QueueHint,
		Tells:          driver.TellsFree,
		Fencing:        true,
		Shared:         true,
		Slots:          true,
		MarksAbandoned: true,
		MinTTL:         d.minTTL,
		Survives:       driver.StoreRestart | driver.ClockStep | driver.Failover,
	}
}

// Tell has lost called for each lease that this driver was granted, or found held by a Renew, and
// that etcd says is over though this driver did not release it. The keys of a thousand leases
// are watched, each from its first Renew on; of more, renewals tell. lost must not block; it is
// called by any goroutine, and no more once Close has returned.
func (d *Driver) Tell(lost func(c driver.ID, fence uint64)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = lost
}

// closeTime bounds Close.
const closeTime = time.Second

// Close ends the driver's watches and goroutines, and leaves the client open. What the owners
// have in etcd stays until it is released or expires.
func (d *Driver) Close() error {
	d.end()
	ended := make(chan struct{})
	go func() {
		d.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeTime): // the client goes on until its connection ends
	}
	return nil
}

// goes runs f until it ends, or Close waits for it.
func (d *Driver) goes(f func()) {
	if d.life.Err() == nil {
		d.running.Go(f)
	}
}

// valid returns what is wrong with a request, err among it, as this engine's error.
func (d *Driver) valid(err error) error {
	switch {
	case d.bad != nil:
		return d.bad
	case err != nil:
		return fmt.Errorf("etcd: %w", err)
	}
	return nil
}
