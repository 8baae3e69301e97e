// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package gooselock has goose, the migration tool, hold a key of hasp while it migrates: in any store of hasp, and through a pooler such as
// PgBouncer in transaction mode, where goose's own advisory locks belong to whichever connection the pooler uses.
//
//	goose.NewProvider(goose.DialectPostgres, db, migrations, goose.WithLocker(gooselock.New(locks, "migrations", nil)))
//
// The locks need connections of their own: goose keeps one of db while it waits, and in SQLite a file of their own, since a migration keeps
// others from writing. goose cannot be told that a lock is lost while it migrates: Unlock says so at the end.
package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/hasplock/hasp"
	"github.com/pressly/goose/v3/lock"
)

// Locker is goose's lock.Locker. Several goroutines may use one: they wait for each other.
type Locker struct {
	m *hasp.Mutex

	mu     sync.Mutex
	leases []*hasp.Lease // of several the first are lost
}

var _ lock.Locker = (*Locker)(nil)

// New returns the locker of a key. nil options mean the defaults.
func New(locks *hasp.Client, key string, o *hasp.LockOptions) *Locker {
	return &Locker{m: locks.Mutex(key, o)}
}

// Lock waits for the key until ctx ends. The database is not used.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	lease, err := l.m.Lock(ctx)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.leases = append(l.leases, lease)
	}
	return err
}

// Unlock gives the key back. hasp.ErrLost says that it was lost before: another process may have migrated at the same time.
func (l *Locker) Unlock(context.Context, *sql.DB) error {
	l.mu.Lock()
	if len(l.leases) == 0 {
		l.mu.Unlock()
		return errors.New("this locker holds nothing: call Lock before Unlock")
	}
	lease := l.leases[0]
	l.leases = l.leases[1:]
	l.mu.Unlock()
	return lease.Release()
}
