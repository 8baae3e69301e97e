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
// SQLite's settings belong to a connection, so they are part of the data source name,
// where they apply to every connection of the pool. [SQLiteDSN] returns one for
// github.com/ncruces/go-sqlite3 and modernc.org/sqlite:
//
//	file:/var/lib/app/locks.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)
//
// For github.com/mattn/go-sqlite3 the same is written:
//
//	file:/var/lib/app/locks.db?_busy_timeout=5000&_journal_mode=WAL&_synchronous=FULL
//
// All three pass hasp's suite; ncruces is the one that hasp's command and tests use.
// The other two cannot interrupt SQLite's wait for a locked file: a call still ends
// with its context, but the wait goes on until busy_timeout, and delays later calls.
//
// Locks may be in the program's own database, beside its tables, provided its
// transactions are short: SQLite has one writer at a time, and a lease is renewed by
// writing. A transaction waits five seconds for the file, then it fails and says for
// how long the file was locked.
//
// Every transaction checks its settings, and fails with a clear error when
// synchronous is below FULL, busy_timeout is below a second, the journal is in memory
// or off, or the database is not in a file.
//
// Write-ahead logging (WAL) is not required, but recommended: a commit costs one sync
// of the disk instead of several (8 processes: 540 locks and releases a second instead
// of 100 to 170), and a process that was stopped while it reads (hasp ls, and Ctrl-Z)
// delays nobody. With a rollback journal it would block every lock on the machine.
//
// # Guarantees and assumptions
//
// Leases are measured by the machine's uptime, sleep included, and by which boot this
// is. So a step of the wall clock neither ends a lease nor prolongs one, and after a
// reboot every key is free at once, as no holder can have survived it (on Linux /proc
// must be readable). Where a reboot is not certain, because the wall clock went back or
// the machine is up for longer than it was at the last write, each lease lasts for what
// was left of it at that write.
//
// Containers of one machine share its clock, and may share the file's folder, even with
// a boot id of their own; the offset of a Linux time namespace is subtracted. The file
// alone must not be mounted, nor have a second name: SQLite's -wal and -shm belong to a
// path. Both are refused. Two machines, or a virtual machine and its host, must not
// share the file either: their clocks are unrelated. No lease ends early then, and the
// machine whose clock is behind is refused; to reset that, end every program that uses
// the file, and delete it with its -wal and -shm. Network file systems are not
// supported, since their file locks are not reliable.
//
// Fences are strictly increasing, whatever any clock does: each that the engine mints
// is above all others in the file, and one that is proposed to it (see driver.Node)
// above those of its key. When the file is deleted they start again at the wall clock in
// microseconds, above the earlier ones unless that clock is behind. If the file is
// deleted while locks are held, the next process makes a new one, in which every key is
// free: then only the fence protects. A process that has the old file open gets an
// error, as it does when the -wal or the -shm is deleted, replaced or truncated.
//
// The tables have a version. A program with a newer version upgrades them at its first
// write, and leases stand; programs with an older version get an error from then on, and
// lose their leases: end them first.
//
// The key of a holder that dies is free when its TTL is over. Process ids are not used:
// they are reused, and mean nothing in another container.
//
// # Waiting
//
// The queue is kept in the table, first come, first served, and a release frees the key
// for the first in the queue alone. SQLite cannot notify, so waiters poll: the first in
// the queue after a quarter of the time that the key has been held, but within 5 to 25
// ms; one with n places before it n+1 times less often, but at least once a second. A
// poll is a read, which no writer waits for. With a key that is held only for a moment,
// 8 processes make 120 handoffs a second, and 64 make 110. 64 that wait for a key that is
// held for long use an eighth of one core together.
package sqldriver
