// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/driver"
	"github.com/spf13/cobra"
)

// source is where a job has its keys from: a store, or an agent of one.
type source interface {
	String() string // the store, without its password
	found() string  // where its name was found, for people
	Traits() driver.Traits
	ttl() time.Duration     // of a lease that names none; 0: the library's
	check(o *options) error // refuses what it does not have
	// name says which keys are asked for, and how.
	name(o *options, keys []string, lo *hasp.LockOptions)
	// ask asks for all of them. It waits for so long at most; 0: not at all.
	ask(ctx context.Context, wait time.Duration) (held, error)
	Inspect(ctx context.Context, key string) (hasp.Info, error)
	trouble(err error) *base.Exit
	// inherit returns the variables with which a hasp within the command has the same source, until remove is called.
	inherit() (variables []string, remove func(), err error)
	Close() error
}

// forEver is a wait without a bound.
const forEver time.Duration = -1

// held are the keys that were acquired; see [hasp.Leases].
type held interface {
	keys() []leaseJSON
	Done() <-chan struct{}
	Err() error
	Deadline() time.Time
	Release() error
	// unused releases keys under which no command ran. Keys that were abandoned stay so for the next holder.
	unused() error
}

// open opens the store, or connects to the agent, that the flags or the environment name.
func (j *job) open(cmd *cobra.Command) (source, error) {
	if j.o.agent != "" {
		return dialAgent(j)
	}
	l, err := j.o.store.Open(cmd, j.observe)
	if err != nil {
		return nil, err
	}
	return &storeKeys{Locks: l}, nil
}

// storeKeys are the keys of a store.
type storeKeys struct {
	*base.Locks
	lockers hasp.Locks
	slots   bool
	once    bool // the second locker is that of the work of --once
}

func (s *storeKeys) String() string     { return s.URL.String() }
func (s *storeKeys) found() string      { return s.URL.Source }
func (s *storeKeys) ttl() time.Duration { return s.URL.TTL }

func (s *storeKeys) trouble(err error) *base.Exit { return base.Trouble(s.URL, err) }

// check refuses what Redisson's locks do not have, as the library would, but says which do.
func (s *storeKeys) check(o *options) error {
	switch t := s.Traits(); {
	case !s.Store.Redisson:
	case o.shared && !t.Shared:
		return base.BadConfig(fmt.Errorf("the store %s cannot do this: of Redisson's locks, only those of kind=readwrite can be shared", s.URL))
	case o.slots > 0 && !t.Slots:
		return base.BadConfig(fmt.Errorf("the store %s cannot do this: Redisson's locks have no --slots", s.URL))
	}
	err := s.CheckTTL(o.ttl.D)
	if err != nil && !o.ttl.Given && s.URL.TTL > 0 {
		return base.BadConfig(errors.New(err.Message + " (ttl= in the store's URL)"))
	}
	if err != nil { // a nil *exit is no nil error
		return err
	}
	return nil
}

func (s *storeKeys) name(o *options, keys []string, lo *hasp.LockOptions) {
	s.slots = o.slots > 0
	for _, key := range keys {
		var l hasp.Locker
		switch {
		case o.shared:
			l = s.RWMutex(key, lo).RLocker()
		case o.election:
			l = s.Election(key, lo)
		case o.slots > 0:
			l = s.Semaphore(key, o.slots, lo)
		default:
			l = s.Mutex(key, lo)
		}
		s.lockers = append(s.lockers, l)
	}
}

func (s *storeKeys) ask(ctx context.Context, wait time.Duration) (held, error) {
	take := s.lockers.Lock
	switch {
	case wait == 0:
		take = s.lockers.TryLock
	case wait > 0:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	leases, err := take(ctx)
	if err != nil { // a nil *hasp.Leases is no nil held
		return nil, err
	}
	return &storeLeases{leases, s.slots, s.once}, nil
}

func (s *storeKeys) inherit() ([]string, func(), error) {
	variable, remove, err := s.URL.Inherit()
	return []string{variable}, remove, err
}

// storeLeases are keys that are held in a store.
type storeLeases struct {
	*hasp.Leases
	slots, once bool
}

func (l *storeLeases) keys() (all []leaseJSON) {
	for i, lease := range l.All() {
		if l.once && i > 0 { // the user did not name the key of the work, but a crash under it counts
			all[0].Abandoned = all[0].Abandoned || lease.Abandoned()
			break
		}
		one := leaseJSON{Key: lease.Key(), Fence: lease.Fence(), Owner: lease.Owner(), Abandoned: lease.Abandoned()}
		if n := lease.Slot(); l.slots {
			one.Slot = &n
		}
		all = append(all, one)
	}
	return all
}

func (l *storeLeases) unused() error {
	for _, lease := range l.All() {
		if lease.Abandoned() { // Release would say that it was repaired
			_ = lease.Abandon() // or the lease expires, which leaves the same mark
		}
	}
	return l.Release()
}
