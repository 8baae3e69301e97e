// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package sqldriver keeps hasp's locks in a SQL database: in a SQLite file, which several
// processes of one machine share without a server, or on a server: PostgreSQL, MariaDB, MySQL.
//
//	import _ "github.com/ncruces/go-sqlite3/driver" // registers "sqlite3"
//	...
//	db, err := sql.Open("sqlite3", sqldriver.SQLiteDSN("/var/lib/app/locks.db"))
//	...
//	locks, err := hasp.New(sqldriver.NewSQLite(db), nil)
//
// The package imports no database driver and takes the *sql.DB that the
// program opened. It never closes it and never changes its settings; the
// tables are named hasp_lease, hasp_key and hasp_meta, so the database may be
// the program's own. Each kind of database has a constructor of its own, with
// options of its own where it has any; the *sql.DB does not say what it leads
// to. [LockRow] locks a row of the program's own in its own transaction, which needs
// none of this. [NewPostgres] and [NewMySQL] return a [Server], which the last sections
// are about; the next ones are about SQLite.
//
// # SQLite: opening the file
//
// SQLite's settings belong to a connection, so they are part of the data source name,
// where they apply to every connection of the pool. [SQLiteDSN] returns one for
// github.com/ncruces/go-sqlite3 and modernc.org/sqlite:
//
//	file:/var/lib/app/locks.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(persist)&_pragma=synchronous(full)
//
// For github.com/mattn/go-sqlite3 the same is written:
//
//	file:/var/lib/app/locks.db?_busy_timeout=5000&_journal_mode=PERSIST&_synchronous=FULL
//
// All three pass hasp's suite; hasp's command and tests use ncruces.
// The other two cannot interrupt SQLite's wait for a locked file: a call still ends
// with its context, but the wait goes on until busy_timeout, and delays later calls.
//
// Locks may be in the program's own database, beside its tables, provided that it is
// not in WAL and its transactions are short, also those that only read: SQLite has one
// writer at a time, which waits for readers, and a lease is renewed by writing. A
// transaction waits five seconds for the file, then it fails and says for how long the
// file was locked.
//
// Every transaction checks its settings, and fails with a clear error when
// synchronous is below FULL, busy_timeout is below a second, journal_mode is not
// persist, or the database is not in a file.
//
// journal_mode is PERSIST so that the one file says what is held: in WAL a clean-up that
// takes the -wal gives every key away. A process that was stopped in the middle of a read
// or a transaction (some milliseconds) keeps all others from writing until it goes on.
//
// # SQLite: guarantees and assumptions
//
// Leases are measured by the machine's uptime, sleep included, and by which boot this
// is. So a step of the wall clock neither ends a lease nor prolongs one, and after a
// reboot every key is free at once (on Linux /proc must be readable). Where a reboot is not
// certain, each lease lasts for what was left of it at the latest write.
//
// Containers of one machine may share the file's folder; the file alone must not be
// mounted, nor have a second name. Two machines, or a virtual machine and its host, must
// not share it: the one whose clock is behind is refused. Network file systems are not
// supported, since their file locks are not reliable.
//
// Fences are strictly increasing, whatever any clock does. When the file is deleted they
// start again at the wall clock in microseconds. A process that has the old file open has
// lost what it held in it at its next renewal.
//
// The queue is in the table, first come, first served. SQLite cannot notify, so waiters
// poll, the first every 5 to 25 ms. docs/stores/sqlite.md has each fault.
//
// # Servers: the tables
//
// A server's tables are made by [Server.Init], or by hand with [PostgresSchema] or
// [MySQLSchema], never silently; without them every call is an error that says so. Where
// they are is what the connections say: their search_path, or their database. The
// driver's user needs no more than
//
//	GRANT SELECT, INSERT, UPDATE, DELETE ON hasp_key, hasp_lease TO app;
//	GRANT SELECT ON hasp_meta TO app;           -- MariaDB and MySQL: SELECT, UPDATE
//	GRANT USAGE ON SEQUENCE hasp_fence TO app;  -- PostgreSQL
//
// Times are nanoseconds since 2020 on the server's clock. A row stays for a minute after
// its key was held, and is then swept by a driver that makes rows: nothing is permanent.
//
// # Servers: guarantees and assumptions
//
// Leases are measured by the database server's wall clock alone: when that is stepped forward, two may believe
// that they hold a key, and the fence decides. Fences rise for each key whatever the clock does: in
// PostgreSQL they come from a sequence (in steps of 1024, which is how many a grant may
// have), in MariaDB and MySQL from the key's row, or, when that was swept, from a number in
// hasp_meta that is above all that were. Tables that are dropped and made anew begin at the clock.
//
// A lease stands while the server is killed and comes back: a database with synchronous_commit = off, or
// innodb_flush_log_at_trx_commit = 0, is refused. Where an asynchronous standby takes over, the last
// commits are lost, and with them leases and fences: use a synchronous one.
//
// A process that stops within a transaction keeps others from that one key: in PostgreSQL for five seconds
// (idle_in_transaction_session_timeout, set for these transactions alone), in MariaDB and MySQL
// until the server finds the connection dead. When the answer to a commit is lost, its outcome is unknown.
//
// Transactions that wait for the row of a key get it in the order in which they came: in PostgreSQL by way of an advisory lock
// of the transaction, whose first number is 1751217008 ("hasp"), since its row locks are granted in any order.
//
// Poolers of connections do no harm: there are no session locks, and no settings of a
// session. Behind PgBouncer pgx must not prepare statements (default_query_exec_mode=exec).
//
// Where the password is rotated, have it asked for at each connection: stdlib.OptionBeforeConnect of pgx, mysql.BeforeConnect.
//
// While a lease is held, one connection of a pool whose SetMaxOpenConns is 4 or more is kept for renewals and releases,
// which so do not wait for the caller's own queries.
//
// The queue is in the table, first come, first served, and waiters poll, the first every 5 to 25 ms. In PostgreSQL, with
// PostgresOptions.Listener, a release notifies the process of the next one instead. A free key costs two requests and two
// durable commits. docs/stores/sql.md has each fault.
package sqldriver
