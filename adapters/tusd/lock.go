// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package tusdlock has several servers of tusd take turns on an upload. A server that holds one is asked to let go when another wants it,
// as when a client reconnects to another server: tusd's requestUnlock.
//
//	composer.UseLocker(tusdlock.New(locks, nil))
//
// tusd's interface carries no fence; of a loss it is told as of another server that wants the upload, by requestUnlock, and writes what it has
// read: LockOptions.Lead gives it time for that. The TTL is 10 s if none is given: less than tusd's AcquireLockTimeout, in which a request waits
// for the upload of a server that died; and on etcd, ZooKeeper and databases a server learns at a renewal, each third of it, that it is asked.
package tusdlock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/tus/tusd/v2/pkg/handler"
)

// Prefix is before the id of an upload in its key.
const Prefix = "tusd/"

// Locker is tusd's handler.Locker.
type Locker struct {
	locks *hasp.Client
	o     *hasp.LockOptions
}

// New returns a locker. nil options mean the defaults; without Cohort and NoRenew, with which no server is asked to let go.
func New(locks *hasp.Client, o *hasp.LockOptions) *Locker {
	own := hasp.LockOptions{}
	if o != nil {
		own = *o
	}
	own.Cohort, own.NoRenew, own.TTL = 0, false, cmp.Or(own.TTL, 10*time.Second)
	return &Locker{locks, &own}
}

// NewLock returns the lock of an upload, free.
func (l *Locker) NewLock(id string) (handler.Lock, error) {
	if len(Prefix+id) > driver.MaxKey { // it is what a client has asked for
		return nil, handler.ErrNotFound
	}
	return &lock{m: l.locks.Mutex(Prefix+id, l.o)}, nil
}

type lock struct {
	m     *hasp.Mutex
	lease *hasp.Lease
	free  context.CancelFunc
}

// Lock waits until ctx ends: handler.ErrLockTimeout. requestUnlock is called once, when another server waits or the lock is lost.
func (l *lock) Lock(ctx context.Context, requestUnlock func()) error {
	lease, err := l.m.Lock(ctx)
	if ctx.Err() != nil && err != nil {
		return handler.ErrLockTimeout
	}
	if err != nil {
		return err
	}
	freed, free := context.WithCancel(context.Background()) // Unlock ends it: the lock outlives the request's wait
	l.lease, l.free = lease, free
	wanted := lease.Wanted()
	go func() {
		select {
		case <-freed.Done():
		case <-wanted:
		case <-lease.Done():
		}
		if freed.Err() == nil {
			requestUnlock()
		}
	}()
	return nil
}

// Unlock gives the upload back. hasp.ErrLost says that it was lost before.
func (l *lock) Unlock() error {
	if l.lease == nil {
		return errors.New("this lock is not held: call Lock before Unlock")
	}
	l.free()
	lease := l.lease
	l.lease = nil
	return lease.Release()
}
