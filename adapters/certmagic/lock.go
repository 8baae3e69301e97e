// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package certmagiclock gives certmagic hasp's locks over any storage of certificates: of several servers one obtains a certificate, and when
// it dies the next one does.
//
//	certmagic.Default.Storage = certmagiclock.New(&certmagic.FileStorage{Path: "/shared"}, locks, nil)
//
// Servers that share the locks are meant to share the storage. certmagic hears of a loss at its next attempt, by RenewLockLease, or from
// Unlock; a fence does not reach the storage.
package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/hasplock/hasp"
)

// Prefix is before the name of a lock in its key.
const Prefix = "certmagic/"

// Storage is a certmagic.Storage whose locks are hasp's. Several goroutines may use one.
type Storage struct {
	certmagic.Storage
	locks *hasp.Client
	o     *hasp.LockOptions

	mu   sync.Mutex
	held map[string][]*hasp.Lease // of several the first are lost
}

var _ interface {
	certmagic.TryLocker
	certmagic.LockLeaseRenewer
} = (*Storage)(nil)

// New returns a storage with hasp's locks. nil options mean the defaults.
func New(s certmagic.Storage, locks *hasp.Client, o *hasp.LockOptions) *Storage {
	return &Storage{Storage: s, locks: locks, o: o, held: map[string][]*hasp.Lease{}}
}

// Lock waits for the lock of a name.
func (s *Storage) Lock(ctx context.Context, name string) error {
	lease, err := s.locks.Mutex(Prefix+name, s.o).Lock(ctx)
	return s.took(name, lease, err)
}

// TryLock asks once.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	lease, err := s.locks.Mutex(Prefix+name, s.o).TryLock(ctx)
	if errors.Is(err, hasp.ErrHeld) {
		return false, nil
	}
	return err == nil, s.took(name, lease, err)
}

func (s *Storage) took(name string, lease *hasp.Lease, err error) error {
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held[name] = append(s.held[name], lease)
	}
	return err
}

// Unlock gives a lock back. hasp.ErrLost says that it was lost before.
func (s *Storage) Unlock(_ context.Context, name string) error {
	s.mu.Lock()
	all := s.held[name]
	if len(all) == 0 {
		s.mu.Unlock()
		return fmt.Errorf("the lock %q is not held: call Lock before Unlock", name)
	}
	s.held[name] = all[1:]
	s.mu.Unlock()
	return all[0].Release()
}

// RenewLockLease is asked before each attempt. hasp renews by itself; what it lost is locked again: certmagic looks then whether the work is done.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	all := s.held[name]
	s.mu.Unlock()
	if len(all) == 0 {
		return fmt.Errorf("the lock %q is not held", name)
	}
	if all[0].Err() == nil {
		return nil
	}
	if err := s.Lock(ctx, name); err != nil {
		return err
	}
	_ = s.Unlock(ctx, name) // the lost one
	return nil
}
