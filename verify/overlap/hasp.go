// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/verify/engines"
)

var haspSubjects = []*subject{
	{name: "hasp, SQLite", signal: byErr, exact: true, store: engines.SQLite, open: haspOn(engines.SQLite, itself)},
	{name: "hasp, Redis", signal: byErr, exact: true, store: engines.Redis, open: haspOn(engines.Redis, itself)},
	{name: "hasp, Redis, by its context", signal: "`Err` of `Lease.Context`", exact: true, store: engines.Redis, open: haspOn(engines.Redis, during)},
	{name: "hasp, Redis, by a derived context", signal: "`Err` of a context made from that, which ends by a timer", store: engines.Redis, open: haspOn(engines.Redis, derived)},
	{name: "hasp, Redlock over five", signal: byErr + "; three of the clocks are stepped", exact: true, store: engines.Redlock, stepped: 3, open: haspOn(engines.Redlock, itself)},
	{name: "hasp, Redlock, one clock of five", signal: byErr, exact: true, store: engines.Redlock, stepped: 1, faults: []fault{clockStep}, open: haspOn(engines.Redlock, itself)},
	{name: "hasp, etcd", signal: byErr, exact: true, store: engines.Etcd, open: haspOn(engines.Etcd, itself)},
	{name: "hasp, ZooKeeper", signal: byErr, exact: true, store: engines.ZooKeeper, open: haspOn(engines.ZooKeeper, itself)},
	{name: "hasp, PostgreSQL", signal: byErr, exact: true, store: engines.Postgres, open: haspOn(engines.Postgres, itself)},
	{name: "hasp, MariaDB", signal: byErr, exact: true, store: engines.MariaDB, open: haspOn(engines.MariaDB, itself)},
}

const byErr = "`Lease.Err`"

// asked is what a holder asks.
type asked interface{ Err() error }

func itself(l *hasp.Lease) asked { return l }

func during(l *hasp.Lease) asked { return l.Context(context.Background()) }

func derived(l *hasp.Lease) asked {
	ctx, cancel := context.WithCancel(l.Context(context.Background()))
	context.AfterFunc(ctx, cancel)
	return ctx
}

// haspOn is hasp with an engine; its holder asks what is made of its lease.
func haspOn(k engines.Kind, of func(*hasp.Lease) asked) opener {
	return func(ctx context.Context, j job) (locker, error) {
		conn, err := engines.OpenFor(k, j.Addrs, j.TTL)
		if err != nil {
			return nil, err
		}
		c, err := hasp.New(conn.Driver, nil)
		if err == nil && k == engines.Redlock {
			err = c.Admit(ctx) // the servers are new
		}
		return func(ctx context.Context) (func() bool, error) {
			lease, err := c.Mutex(key, &hasp.LockOptions{TTL: j.TTL}).Lock(ctx)
			if err != nil {
				return nil, err
			}
			a := of(lease)
			return func() bool { return a.Err() == nil }, nil
		}, err
	}
}
