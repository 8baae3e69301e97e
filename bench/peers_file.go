// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/sqldriver"
	sqlite3 "github.com/ncruces/go-sqlite3/driver"
)

// filePeers exclude the processes of one machine by a file, and have a scenario of their own.
var filePeers = []*peer{
	{
		name:    baseline,
		modules: []string{"github.com/hasplock/hasp", "github.com/ncruces/go-sqlite3"},
		config:  "sqldriver.NewSQLite over one connection for each process; a file in the folder for temporary files, each change synced to the disk",
		waits:   true,
		open: func(_ context.Context, to target) (locker, error) {
			db, err := sqlite3.Open(sqldriver.SQLiteDSN(filepath.Join(to.Dir, "locks.db")))
			if err != nil {
				return nil, err
			}
			db.SetMaxOpenConns(1)
			locks, err := hasp.New(sqldriver.NewSQLite(db), nil)
			if err != nil {
				return nil, errors.Join(err, db.Close())
			}
			return &haspLocker{under: db, locks: locks, options: hasp.LockOptions{TTL: to.TTL}}, nil
		},
	},
	{
		name:   "flock",
		config: "flock(2) in each process, which is all that flock(1) adds a process to (S7): the kernel's lock, for this machine only; no TTL, no fence, no order",
		waits:  true,
		open: func(_ context.Context, to target) (locker, error) {
			f, err := os.OpenFile(filepath.Join(to.Dir, "flock"), os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return nil, err
			}
			return flocker{f}, nil
		},
	},
}

// flocker is a file that is locked as a whole, whatever the key.
type flocker struct{ f *os.File }

// Lock waits without regard for ctx, like the system call.
func (l flocker) Lock(context.Context, string) (func(context.Context) error, error) {
	if err := flock(l.f, true); err != nil {
		return nil, err
	}
	return func(context.Context) error { return flock(l.f, false) }, nil
}

func (l flocker) Close() error { return l.f.Close() }
