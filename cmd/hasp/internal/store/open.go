// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/hasplock/hasp/cmd/hasp/internal/doctor"
	"github.com/hasplock/hasp/driver"
)

// Store is an open store.
type Store struct {
	driver.Driver
	// Servers are its servers; none for a file.
	Servers []Server
	// Masters finds the servers of a store that consists of what it says itself; nil otherwise.
	Masters func(ctx context.Context) ([]Server, error)
	// Replicas is how many replicas must confirm a lock.
	Replicas int
	// Examine looks at what the engine cannot know of its own store; nil where there is nothing.
	Examine func(ctx context.Context) []driver.Finding
	// NoMessages says why no message may come that a key is free: the end of a sentence.
	NoMessages string
	// Redisson: the locks are in the layout of Redisson, which has other clients.
	Redisson bool
	// StateFailed is told why the wait for servers that are held back is not remembered; nil: nothing is. It is set before the first use.
	StateFailed func(error)
	// Searches: a list may find nothing for long, since keys of others are searched, too;
	// each answer has a limit of its own.
	Searches bool

	// Tables are those that have to be made before the first use; nil where nothing has.
	Tables *Tables

	kind       doctor.Kind
	disconnect func() error
}

// Tables are those of a database.
type Tables struct {
	Schema string                          // the statements that make them
	Make   func(ctx context.Context) error // makes those that are missing
}

// Server is one server, named by its address, as in errors.
type Server struct {
	Name   string
	Driver driver.Driver // the engine of this server alone
	// Look asks the server about itself, and changes nothing.
	Look func(ctx context.Context) doctor.Facts
	// ByHand is as [URL.ByHand], of a server that Masters found.
	ByHand func(statement string) string

	disconnect func() error
}

// Name returns a name for a key of hasp's own. Where a counter of each key stays for ever it is one of a few, so that another hasp may
// use it, too; else it is nobody else's.
func (s *Store) Name() string {
	if s.Redisson && s.Traits().Fencing {
		return rand.Text()[:1]
	}
	return rand.Text()
}

// Fit judges what the store may be used for, by what was found. usable: it was examined, and grants locks.
func (s *Store) Fit(found []doctor.Finding, usable bool) (doctor.Use, []doctor.Fitness) {
	return doctor.Fit(s.Traits(), s.kind, found, usable)
}

// Promise describes what the store promises.
func (s *Store) Promise() []string { return doctor.Promise(s.Traits(), s.kind) }

// Disconnect closes the connections, after the driver was closed.
func (s *Store) Disconnect() error {
	var errs []error
	for _, server := range s.Servers {
		errs = append(errs, server.disconnect())
	}
	if s.disconnect != nil {
		errs = append(errs, s.disconnect())
	}
	return errors.Join(errs...)
}
