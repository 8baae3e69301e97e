// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"

	"github.com/hasplock/hasp/driver"
)

// A dialect is what differs between kinds of databases: settings, clock,
// transactions, SQL. The rules of the lease table (who is granted a key, who waits,
// what a release leaves behind) are the rest of the package, and the same for all.
type dialect interface {
	traits() driver.Traits

	// text is a statement of the rules in the database's own SQL.
	text(q query) string

	// connect makes sure that the database can be reached, and is the one that it
	// was, before anything is asked of it. Any number of goroutines call it.
	connect(ctx context.Context, d *Driver) error

	// setup checks the settings of the database, and makes the tables where
	// they are missing, any number of processes at once. It is called until it
	// succeeded once, by one goroutine.
	setup(ctx context.Context, d *Driver) error

	// begin opens a transaction beside which nobody writes. ctx bounds the
	// wait for others, and the transaction.
	begin(ctx context.Context, d *Driver) (*tx, error)

	// commit ends a transaction, with the mark of the fences when it rose.
	commit(t *tx) error

	// see reads the clock, for a read outside of transactions.
	see() (reading, error)

	// clockChange says whether the rows' times are of the present clock, where it
	// may differ from that of the last write.
	clockChange(h head, now reading) (clockChange, error)

	// explain adds to an error of the database what kind of trouble it is, and
	// what to do.
	explain(err error) error

	// byHand are statements with which a person can look at a key.
	byHand(key string) []string
}

// A query names a statement of the rules.
type query int

// The arguments of each are in the dialect's text, by number.
const (
	qSettings    query = iota // what a connection runs with
	qLock                     // take the right to write
	qHead                     // the row of hasp_meta
	qBoot                     // what has been in it since version 1: the version and the clock
	qLook                     // what a Try decides upon
	qLookBeside               // what a Try decides upon that would share the key
	qView                     // qLook without the row of hasp_meta
	qViewBeside               // qLookBeside without the row of hasp_meta
	qBeside                   // those who share a key, in the order of their grants
	qGrant                    // make an owner the holder
	qShare                    // make an owner one of those who share the key
	qKeyRow                   // write the key's own row
	qExtend                   // prolong the holder's lease and raise its fence, or prolong the life of a place
	qEndHolders               // delete the rows of holders whose leases have expired
	qEndSharers               // the same for those that share the key and whose end leaves a mark
	qJoin                     // put an owner at the end of the queue
	qRenew                    // prolong a lease by its owner and label
	qRelease                  // turn a lease or a place, expired or not, into a tombstone
	qRefuseLater              // leave a tombstone where there was neither
	qRetire                   // turn an exclusive lease, over or not, into the key's own row
	qLeave                    // take away a place, or the lease of one who shares the key
	qDepart                   // bring the key's own row up to date when one who shared it has gone
	qRemember                 // turn a lease that is over into the key's own row, with a mark
	qSweep                    // delete a few rows that are over
	qMark                     // write the row of hasp_meta
	qKey                      // everybody who has or wants a key
	qOldKey                   // the same before version 3
	qKeys                     // a page of keys
	qOldKeys                  // the same before version 3

	queries
)
