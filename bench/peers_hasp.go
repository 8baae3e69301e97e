// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	hasprueidis "github.com/hasplock/hasp/redisdriver/rueidis"
	"github.com/hasplock/hasp/sqldriver"
	"github.com/hasplock/hasp/zkdriver"
	sqlite3 "github.com/ncruces/go-sqlite3/driver"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// Options of hasp that are off by default, hasp over all five servers, and over another client.
const (
	turns       = baseline + " cohort"
	kept        = baseline + " keep"
	behind      = baseline + " release behind"
	redlock     = baseline + " 5 nodes"
	overRueidis = baseline + " rueidis"
)

var haspPeers = []*peer{
	haspPeer(peer{name: baseline, config: "hasp's defaults: TTL 30 s, renewal, fences and the queue on; the client with ContextTimeoutEnabled, as its documentation has it"},
		hasp.LockOptions{}, nil),
	haspPeer(peer{name: turns, differs: turned, config: "as hasp, with Cohort: 100 ms, so that the goroutines of a client take turns on one grant"},
		hasp.LockOptions{Cohort: 100 * time.Millisecond}, nil),
	haspPeer(peer{name: kept, differs: keeping, config: "as hasp, with Keep: 1 s, so that a client that wants a key again has it without the server"},
		hasp.LockOptions{Keep: time.Second}, nil),
	haspPeer(peer{name: behind, differs: trailing, config: "as hasp, with ReleaseBehind, so that a release is not waited for"},
		hasp.LockOptions{ReleaseBehind: true}, nil),
	{
		name:   overRueidis,
		config: "as hasp, over a rueidis client with its default options",
		open: func(_ context.Context, to target) (locker, error) {
			c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: to.Redis[:1]})
			if err != nil {
				return nil, err
			}
			return newHasp(hasprueidis.New(c, nil), hasp.LockOptions{}, to, closer(c.Close))
		},
	},
}

type closer func()

func (c closer) Close() error { c(); return nil }

// claimsFirst is hasp over an engine with hints that do not say what was handed over.
var claimsFirst = haspPeer(peer{name: baseline + " claims first", config: "as hasp, but a waiter that was handed the key asks for it first"},
	hasp.LockOptions{}, func(d driver.Driver) driver.Driver { return unsaid{d} })

type unsaid struct{ driver.Driver }

func (d unsaid) Traits() driver.Traits {
	t := d.Driver.Traits()
	t.Tells &^= driver.TellsHandover
	return t
}

// haspPeer completes a peer that is hasp on one Redis, with the engine in a wrapper if it has one.
func haspPeer(p peer, o hasp.LockOptions, wrap func(driver.Driver) driver.Driver) *peer {
	p.config += "; redisdriver over a go-redis client with otherwise default options; a Mutex for each acquisition"
	p.open = func(_ context.Context, to target) (locker, error) {
		rdb := haspRedis(to.Redis[0])
		engine := driver.Driver(redisdriver.New(rdb, nil))
		if wrap != nil {
			engine = wrap(engine)
		}
		return newHasp(engine, o, to, rdb)
	}
	return &p
}

func haspRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
}

var redlockPeers = []*peer{{
	name:   redlock,
	config: "hasp's quorum over five Redis, each with a node record; TTL 30 s, renewal, fences and the queue on; a go-redis client with its default options for each Redis; a Mutex for each acquisition",
	open: func(ctx context.Context, to target) (locker, error) {
		var under []io.Closer
		var list []voting.Node
		for _, addr := range to.Redis {
			rdb := haspRedis(addr)
			under = append(under, rdb)
			list = append(list, redisdriver.NewNode(rdb, to.TTL, nil))
		}
		l, err := newHasp(quorum.New(list, &quorum.Options{Names: to.Redis}), hasp.LockOptions{}, to, under...)
		if err != nil {
			return nil, err
		}
		if err := l.(*haspLocker).locks.Operator().Admit(ctx); err != nil { // the servers are new or empty
			return nil, errors.Join(err, l.Close())
		}
		return l, nil
	},
}}

// filePeers exclude the processes of one machine by a file, and have a scenario of their own, as zookeeperPeers do.
var filePeers = []*peer{
	{
		name:   baseline,
		config: "sqldriver.NewSQLite over one connection for each process; a file in the folder for temporary files, each change synced to the disk",
		on:     onFile,
		open: func(_ context.Context, to target) (locker, error) {
			db, err := sqlite3.Open(sqldriver.SQLiteDSN(filepath.Join(to.Dir, "locks.db")))
			if err != nil {
				return nil, err
			}
			db.SetMaxOpenConns(1)
			return newHasp(sqldriver.NewSQLite(db), hasp.LockOptions{}, to, db)
		},
	},
	flockPeer,
}

var zookeeperPeers = []*peer{
	{
		name:   baseline,
		config: "zkdriver with its defaults (the read-write lock's layout, a session of 45 s) for each client; one server, on this machine, that syncs each write to the disk",
		on:     onZooKeeper,
		open: func(_ context.Context, to target) (locker, error) {
			conn := zkdriver.Connect([]string{to.ZooKeeper}, nil)
			return newHasp(zkdriver.New(conn, nil), hasp.LockOptions{}, to, conn)
		},
	},
	goZooKeeperPeer,
}

// haspLocker is a client of hasp.
type haspLocker struct {
	under   []io.Closer // the connections
	locks   *hasp.Client
	options hasp.LockOptions
}

func newHasp(engine driver.Driver, o hasp.LockOptions, to target, under ...io.Closer) (locker, error) {
	locks, err := hasp.New(engine, nil)
	if err != nil {
		return nil, errors.Join(err, closeAll(under))
	}
	o.TTL = to.TTL
	return &haspLocker{under, locks, o}, nil
}

func (l *haspLocker) Lock(ctx context.Context, key string) (unlock, error) {
	return held(l.locks.Mutex(key, &l.options).Lock(ctx))
}

func (l *haspLocker) RLock(ctx context.Context, key string) (unlock, error) {
	return held(l.locks.RWMutex(key, &l.options).RLock(ctx))
}

func (l *haspLocker) Close() error { return errors.Join(l.locks.Close(), closeAll(l.under)) }

// held returns the release of a lease.
func held(lease *hasp.Lease, err error) (unlock, error) {
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return lease.Release() }, nil
}

func closeAll[T io.Closer](all []T) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
