// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package sqldriver keeps hasp's locks in a SQL database. Today that is
// SQLite: several processes of one machine share a file, and need no server.
//
//	db, err := sql.Open("sqlite3", sqldriver.SQLiteDSN("/var/lib/app/locks.db"))
//	...
//	locks, err := hasp.New(sqldriver.NewSQLite(db), nil)
//
// The package imports no database driver and takes the *sql.DB that the
// program opened. It never closes it and never changes its settings; the two
// tables it makes are named hasp_lease and hasp_meta, so the database may be
// the program's own. Each kind of database has a constructor of its own, with
// options of its own where it has any; the *sql.DB does not say what it leads
// to.
//
// # Opening the file
//
// SQLite's settings belong to a connection, so they stand in the data source
// name, where they hold for every connection of the pool. [SQLiteDSN] writes
// one for github.com/ncruces/go-sqlite3 and modernc.org/sqlite:
//
//	file:/var/lib/app/locks.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)
//
// For github.com/mattn/go-sqlite3 the same is written
//
//	file:/var/lib/app/locks.db?_busy_timeout=5000&_journal_mode=WAL&_synchronous=FULL
//
// All three pass hasp's suite; ncruces is the one that hasp's command uses and
// that hasp's tests run on. The other two cannot break off SQLite's wait for a
// locked file: a call still ends with its context, but what the wait was for
// holds up the calls after it until busy_timeout is over.
//
// Locks may live in the program's own database, beside its tables, as long as
// its transactions are short: SQLite has one writer at a time, and a lease is
// renewed by writing. A transaction waits five seconds for the file, then it
// fails and says for how long the file was locked.
//
// Every transaction reads back what it runs with, and fails with a clear error
// when synchronous is below FULL, busy_timeout is below a second, the journal
// is kept in memory or off, or the database is not in a file.
//
// Write-ahead logging (WAL) is not required, but right: a commit costs one
// sync of the disk instead of several (8 processes: 540 locks and unlocks a
// second instead of 100 to 170), and a process that was stopped while it reads
// (hasp ls, and Ctrl-Z) holds up nobody. With a rollback journal it would hold
// up every lock on the machine.
//
// # What holds, and under which assumptions
//
// Time is the machine's own: how long it has been up, sleep included, and
// which boot this is. So a step of the wall clock neither ends a lease nor
// prolongs one, and after a reboot every key is free at once, as no holder can
// have survived it (on Linux /proc must be readable). Where it cannot be told
// from something else, since the wall clock went back or the machine is up for
// longer than it was at the last write, each lease first has what was left of it.
//
// Containers of one machine share its clock, and may share the file's folder, also
// when their boot id is their own; an offset of a Linux time namespace is taken
// out. The file alone must not be mounted, nor have a second name: SQLite's -wal
// and -shm belong to a path. Both are refused. Two machines, or a virtual machine
// and its host, must not share it either: their clocks have nothing to do with each
// other. No lease ends early then, and the one whose clock is behind is refused; to
// reset that, end every program that uses the file, and delete it with its -wal and
// -shm. Network file systems are not supported, since their file locks cannot be
// relied on.
//
// Fences are strictly rising, whatever any clock does: each that the engine
// chooses is above all others in the file, one that was proposed to it (see
// driver.Traits) above those of its key. When the file is deleted they start
// again at the wall clock in microseconds, above the earlier ones unless that
// clock is behind. Deleting the file while locks are held gives the next
// process a fresh file, with every key free: the fence then is all that
// protects. A process that had the old file open is told so by an error, as it is
// when the -wal or the -shm is deleted, replaced or cut off.
//
// The tables have a version. A program that knows a newer one changes them when
// it first writes, and what is held stays so; the older programs that use the
// file get an error from then on, and lose their leases: end them first.
//
// A holder that dies is followed when its TTL is over. Nothing looks at
// process ids, which are reused, and mean nothing in another container.
//
// # Waiting
//
// The queue is kept in the table, first come first served, and a release frees
// the key for the first in the queue alone. SQLite cannot notify, so waiters look:
// the first in the queue after a quarter of the time that the key has been held,
// but within 5 to 25 ms; one with n places before it n+1 times as rarely, but
// once a second. Looking takes a read, which no writer waits for. Of a key
// that is held for a moment only, 8 processes make 120 handoffs a second, and
// 64 make 110. 64 that wait for a key that is held for long take an eighth of
// one core together.
package sqldriver
