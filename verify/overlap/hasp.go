// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/etcddriver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/sqldriver"
	"github.com/hasplock/hasp/sqldriver/pgxlisten"
	"github.com/hasplock/hasp/zkdriver"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "github.com/ncruces/go-sqlite3/driver" // SQLite's driver
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

var haspSubjects = []*subject{
	{name: "hasp, SQLite", signal: byErr, exact: true, store: &sqliteFile, open: haspOn(openSQLite)},
	{name: "hasp, Redis", signal: byErr, exact: true, store: &oneRedis, open: haspOn(openRedis)},
	{name: "hasp, Redis, by its context", signal: "`Err` of `Lease.Context`", exact: true, store: &oneRedis, open: byContext(itself)},
	{name: "hasp, Redis, by a derived context", signal: "`Err` of a context made from that, which ends by a timer", store: &oneRedis, open: byContext(derived)},
	{name: "hasp, Redlock over five", signal: byErr + "; three of the clocks are stepped", exact: true, store: &fiveRedis, stepped: 3, open: haspOn(openRedlock)},
	{name: "hasp, Redlock, one clock of five", signal: byErr, exact: true, store: &fiveRedis, stepped: 1, faults: []fault{clockStep}, open: haspOn(openRedlock)},
	{name: "hasp, etcd", signal: byErr, exact: true, store: &oneEtcd, open: haspOn(openEtcd)},
	{name: "hasp, ZooKeeper", signal: byErr, exact: true, store: &zooKeeper, open: haspOn(openZooKeeper)},
	{name: "hasp, PostgreSQL", signal: byErr, exact: true, store: &postgres, open: haspOn(openPostgres)},
	{name: "hasp, MariaDB", signal: byErr, exact: true, store: &mariaDB, open: haspOn(openMariaDB)},
}

const byErr = "`Lease.Err`"

// haspOn is hasp with an engine; its holder asks the lease.
func haspOn(open func(context.Context, job) (*hasp.Client, error)) opener {
	return func(ctx context.Context, j job) (locker, error) {
		c, err := open(ctx, j)
		return func(ctx context.Context) (func() bool, error) {
			lease, err := c.Mutex(key, &hasp.LockOptions{TTL: j.TTL}).Lock(ctx)
			return func() bool { return lease.Err() == nil }, err
		}, err
	}
}

// byContext is hasp on one Redis; its holder asks a context of the lease, or what is made from it.
func byContext(of func(context.Context) context.Context) opener {
	return func(ctx context.Context, j job) (locker, error) {
		c, err := openRedis(ctx, j)
		return func(ctx context.Context) (func() bool, error) {
			lease, err := c.Mutex(key, &hasp.LockOptions{TTL: j.TTL}).Lock(ctx)
			if err != nil {
				return nil, err
			}
			during := of(lease.Context(ctx))
			return func() bool { return during.Err() == nil }, nil
		}, err
	}
}

func itself(ctx context.Context) context.Context { return ctx }

func derived(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func with(d driver.Driver) (*hasp.Client, error) { return hasp.New(d, nil) }

func openRedis(_ context.Context, j job) (*hasp.Client, error) {
	return with(redisdriver.New(redis.NewClient(&redis.Options{Addr: j.Addrs[0]}), nil))
}

func openRedlock(ctx context.Context, j job) (*hasp.Client, error) {
	var nodes []driver.Node
	for _, addr := range j.Addrs {
		nodes = append(nodes, redisdriver.NewNode(redis.NewClient(&redis.Options{Addr: addr}), j.TTL, nil))
	}
	c, err := with(quorum.New(nodes, &quorum.Options{Names: j.Addrs}))
	if err != nil {
		return nil, err
	}
	return c, c.Admit(ctx) // the servers are new
}

// newEtcd is a client of etcd as etcd's and hasp's documentation set one up.
func newEtcd(j job) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: j.Addrs, DialTimeout: 10 * time.Second,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second, Logger: zap.NewNop(),
	})
}

func openEtcd(_ context.Context, j job) (*hasp.Client, error) {
	c, err := newEtcd(j)
	if err != nil {
		return nil, err
	}
	return with(etcddriver.New(c, nil))
}

func openZooKeeper(_ context.Context, j job) (*hasp.Client, error) {
	return with(zkdriver.New(zkdriver.Connect(j.Addrs, &zkdriver.ConnOptions{SessionTimeout: j.TTL * 3 / 2}), nil)) // a lease may have two thirds of it
}

func openPostgres(ctx context.Context, j job) (*hasp.Client, error) {
	config, err := pgx.ParseConfig("postgres://postgres@" + j.Addrs[0] + "/postgres?sslmode=disable")
	if err != nil {
		return nil, err
	}
	d := sqldriver.NewPostgres(stdlib.OpenDB(*config), &sqldriver.PostgresOptions{Listener: pgxlisten.New(config)})
	if err := d.Init(ctx); err != nil {
		return nil, err
	}
	return with(d)
}

func openMariaDB(ctx context.Context, j job) (*hasp.Client, error) {
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = "root", "tcp", j.Addrs[0]
	config.DBName = "mysql" // which every server has
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	d := sqldriver.NewMySQL(sql.OpenDB(connector))
	if err := d.Init(ctx); err != nil {
		return nil, err
	}
	return with(d)
}

func openSQLite(_ context.Context, j job) (*hasp.Client, error) {
	db, err := sql.Open("sqlite3", sqldriver.SQLiteDSN(j.Addrs[0]))
	if err != nil {
		return nil, err
	}
	return with(sqldriver.NewSQLite(db))
}
