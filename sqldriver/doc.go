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
// A file that another program left in WAL is switched by the first process that opens it
// when no other has it open.
//
// # SQLite: guarantees and assumptions
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
// alone must not be mounted, nor have a second name: SQLite's -journal belongs to a
// path. Both are refused. Two machines, or a virtual machine and its host, must not
// share the file either: their clocks are unrelated. No lease ends early then, and the
// machine whose clock is behind is refused; to reset that, end every program that uses
// the file, and delete it with its -journal. Network file systems are not
// supported, since their file locks are not reliable.
//
// Fences are strictly increasing, whatever any clock does: each that the engine mints
// is above all others in the file, and a fence that is proposed to it (see voting.Node)
// above those of its key. When the file is deleted they start again at the wall clock in
// microseconds, above the earlier ones unless that clock is behind. If the file is
// deleted while locks are held, the next process makes a new one, in which every key is
// free: then only the fence protects. A process that has the old file open gets an
// error, and has lost what it held in it at its next renewal.
//
// The tables have a version, counted from v0.1 on. A program refuses those of another
// version with an error that says what to do.
//
// The key of a holder that dies is free when its TTL is over. Process ids are not used:
// they are reused, and mean nothing in another container.
//
// # SQLite: waiting
//
// The queue is kept in the table, first come, first served, and a release frees the key
// for the first in the queue alone. SQLite cannot notify, so waiters poll: the first in
// the queue after a quarter of the time that the key has been held, but within 5 to 25
// ms; one with n places before it n+1 times less often, but at least once a second. A
// poll is a read, which no writer waits for. With a key that is held only for a moment,
// 8 processes make 120 handoffs a second, and 64 make 110. 64 that wait for a key that is
// held for long use an eighth of one core together.
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
// Each key that is in use has a row in hasp_key, with its holder. The owners that share the key,
// wait for it, or were released a moment ago have rows in hasp_lease, which only a transaction
// touches that has locked the key's row: so keys do not wait for each other. Where no other owner
// stands in the way, a key is granted, renewed and released by one statement each.
// Times are nanoseconds since 2020 on the server's clock. A row stays for a minute after
// its key was held, and is then swept by a driver that makes rows: nothing is permanent.
//
// # Servers: guarantees and assumptions
//
// Leases are measured by the database server's wall clock alone: when that is stepped forward, two may believe
// that they hold a key, and the fence decides. Fences rise for each key whatever the clock does: in
// PostgreSQL they come from a sequence (in steps of 1024, which is how many a grant may
// have), in MariaDB and MySQL from the key's row, or, when that was swept, from a number in
// hasp_meta that is above all that were. Neither is to be set back: tables that are dropped and
// made anew begin at the clock.
//
// A lease stands while the server is killed and comes back, provided a commit is written
// before it is answered: a database with synchronous_commit = off, or
// innodb_flush_log_at_trx_commit = 0, is refused. Where an asynchronous standby takes over, the last
// commits are lost, and with them leases and fences: use a synchronous one.
//
// A process that stops within a transaction keeps others from that one key: in PostgreSQL for five seconds
// (idle_in_transaction_session_timeout, set for these transactions alone), in MariaDB and MySQL
// until the server finds the connection dead. Leases of other keys are renewed meanwhile. A sweep holds no lock
// from one statement to the next. A request is asked again by the driver only where the
// server said that it was rolled back (a deadlock, a serialization failure), five times at most; when the answer to a commit
// is lost, its outcome is unknown.
//
// Transactions that wait for the row of a key get it in the order in which they came: in PostgreSQL by way of an advisory lock
// of the transaction, whose first number is 1751217008 ("hasp"), since its row locks are granted in any order.
//
// Poolers of connections do no harm, whatever they pool: there are no session locks, and no settings of a
// session. Behind PgBouncer pgx must not prepare statements (default_query_exec_mode=exec).
//
// Where the password is rotated, have it asked for at each connection: stdlib.OptionBeforeConnect of pgx (and pgxlisten.New takes the
// same function), mysql.BeforeConnect of go-sql-driver.
//
// While a lease is held, one connection of a pool whose SetMaxOpenConns is 4 or more is kept for renewals and releases,
// which so do not wait for the caller's own queries.
//
// A Server is not a voting.Node: a quorum of databases is not offered.
//
// # Servers: waiting
//
// The queue is in the table, first come, first served, and waiters poll as with SQLite:
// the first every 5 to 25 ms. Of one client's waiters that want a key alone only the first polls, and wakes the next at its
// end. In PostgreSQL, with PostgresOptions.Listener, they get hints instead:
// a release, and only of a key that has waiters, notifies the process of the next one. (A commit with a
// notification takes a lock of the whole server, which is why there are no others.)
//
// # Servers: what it costs
//
// A free key costs two requests and two durable commits, which is the least that a lease can: a grant that the server
// could forget when it is killed would be given to another. Where each commit is synced to a disk that is nearly all
// of it. What has to look at a queue is a read, and a transaction in one request: a handoff takes 5 requests, in MariaDB, and in
// PostgreSQL where the Listener is a [Pipeliner], as that of package sqldriver/pgxlisten is. Without, and in MySQL, it takes 25, of which
// some keep the key locked for a round trip: use it where many wait over a slow link.
package sqldriver
