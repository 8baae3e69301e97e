// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"path/filepath"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

// redlockNodes is how many nodes a quorum has.
const redlockNodes = 5

// store is what a lock is kept in.
type store struct {
	// start starts its servers, stepped of which have the clock, and returns their addresses; without
	// a clock all have the machine's. A file has its path.
	start func(t testing.TB, clock *testserver.Clock, stepped int) []string
	// linked: it is reached by TCP, and so can be cut off.
	linked bool
	// clocked: its clock can be stepped.
	clocked bool
}

var (
	oneRedis = store{linked: true, clocked: true, start: func(t testing.TB, clock *testserver.Clock, stepped int) []string {
		return redisServers(t, 1, clock, stepped)
	}}
	fiveRedis = store{linked: true, clocked: true, start: func(t testing.TB, clock *testserver.Clock, stepped int) []string {
		return redisServers(t, redlockNodes, clock, stepped)
	}}
	// An etcd is a program in Go, whose clock cannot be stepped for it alone.
	oneEtcd = store{linked: true, start: func(t testing.TB, _ *testserver.Clock, _ int) []string {
		return []string{testserver.Etcd(t).Addr()}
	}}
	zooKeeper = store{linked: true, clocked: true, start: func(t testing.TB, clock *testserver.Clock, _ int) []string {
		return []string{testserver.ZooKeeperIn(t, env(clock)).Addr()}
	}}
	postgres = store{linked: true, clocked: true, start: func(t testing.TB, clock *testserver.Clock, _ int) []string {
		return []string{testserver.PostgresIn(t, env(clock)).Addr()}
	}}
	mariaDB = store{linked: true, clocked: true, start: func(t testing.TB, clock *testserver.Clock, _ int) []string {
		return []string{testserver.MariaDBIn(t, env(clock)).Addr()}
	}}
	// A file is on the machine of its clients, whose monotonic clock decides.
	sqliteFile = store{start: func(t testing.TB, _ *testserver.Clock, _ int) []string {
		return []string{filepath.Join(folder(t), "locks.db")}
	}}
)

func redisServers(t testing.TB, n int, clock *testserver.Clock, stepped int) (addrs []string) {
	for i := range n {
		c := clock
		if i < n-stepped {
			c = nil
		}
		addrs = append(addrs, testserver.RedisIn(t, env(c)).Addr())
	}
	return addrs
}

func env(c *testserver.Clock) []string {
	if c == nil {
		return nil
	}
	return c.Env()
}
