// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package open opens a client of any store by its URL, as the command hasp takes it:
//
//	locks, err := open.Client(ctx, "redis://localhost", nil)
//
// The URLs are those of "hasp help store": sqlite:, redis:, rediss:, unix:, redis+sentinel:, redis+cluster:, redlock:, etcd:, zk:, postgres:,
// mysql: and their forms with TLS, with the same parameters. What a URL leaves out of TLS the environment says, as for the command:
// HASP_TLS_CA, HASP_TLS_CERT, HASP_TLS_KEY and HASP_TLS_SERVER_NAME; PostgreSQL has its own variables, such as PGPASSFILE.
// ttl= is for hasp run: here the TTL is that of hasp.LockOptions.
//
// # Which to use
//
// This module brings every engine and its client library along: 95 modules, and a program of 39 MB. A program that
// knows its store, or has a connection to it already, rather takes the engine's own module: redisdriver, etcddriver,
// zkdriver, sqldriver.
//
// # What is closed, and when
//
// What is opened here owns its connections: Close of the client, or of the driver, closes them. No connection is made before it is
// needed, and the context of what needs it bounds the dialling: so a store that is away fails the first lock, or has it wait, as
// when it goes away later. The context of Driver and Client bounds the reading of the files that a URL names.
//
// go-redis writes failed connections to standard error, until a program calls its redis.SetLogger.
//
// A password in a URL is in no error. A program with a changing password opens its own connection, and gives that to the engine.
//
// # Tables
//
// PostgreSQL, MariaDB and MySQL need tables: "hasp init" makes them, or the driver's method Init(context.Context) error.
package open
