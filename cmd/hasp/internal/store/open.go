// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/sqldriver"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Store is an open store.
type Store struct {
	driver.Driver
	// Servers are its servers; none for SQLite.
	Servers []Server

	db *sql.DB
}

// Server is one Redis server, named by its address, as in errors.
type Server struct {
	Name   string
	Redis  *redis.Client
	Driver driver.Driver // the engine of this server alone
}

// NodeTimeout is how long each server of redlock: may take to answer; 0: as package
// quorum has it. Tests set it, since a machine that is busy with other tests is
// silent for longer than a lock should wait.
var NodeTimeout time.Duration

// Open opens a store. It reads the files of TLS, and does no other I/O.
func (u *URL) Open() (*Store, error) {
	if len(u.nodes) == 0 {
		db, err := openSQLite(u.path)
		if err != nil {
			return nil, err
		}
		return &Store{Driver: sqldriver.NewSQLite(db), db: db}, nil
	}
	redis.SetLogger(silent{}) // what matters comes back as an error
	s := &Store{}
	files := u.tlsFiles()
	if err := files.check(); err != nil {
		return nil, err
	}
	var nodes []driver.Node
	for _, o := range u.nodes {
		node := options(*o)
		if o.TLSConfig != nil {
			config, err := files.configure(o.TLSConfig)
			if err != nil {
				return nil, err
			}
			node.TLSConfig = config
		}
		node.Dialer = dialer(node.TLSConfig)
		rdb := redis.NewClient(node)
		var drv driver.Driver
		if names := (&redisdriver.Options{Prefix: u.prefix, NoPrefix: u.noPrefix}); u.maxTTL > 0 {
			n := redisdriver.NewNode(rdb, u.maxTTL, names)
			drv, nodes = n, append(nodes, n)
		} else {
			drv = redisdriver.New(rdb, names)
		}
		s.Servers = append(s.Servers, Server{o.Addr, rdb, drv})
	}
	s.Driver = s.Servers[0].Driver
	if u.redlock {
		s.Driver = quorum.New(nodes, &quorum.Options{Names: u.names(), NodeTimeout: NodeTimeout, StateDir: StateDir()})
	}
	return s, nil
}

// Disconnect closes the connections, after the driver was closed.
func (s *Store) Disconnect() error {
	var errs []error
	for _, server := range s.Servers {
		errs = append(errs, server.Redis.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	return errors.Join(errs...)
}

// limit bounds a dial, and one answer, so that a server that is gone is noticed well
// before a TTL is over.
const limit = 3 * time.Second

// options are those of a client for locks: it never asks twice by itself, since
// hasp does and knows how, and it keeps to the context.
func options(o redis.Options) *redis.Options {
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = limit, limit, limit
	o.PoolSize = 8
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	// Not Options.ClientName: it fails where an ACL forbids CLIENT SETNAME, and
	// the name is only for whoever reads CLIENT LIST.
	o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		_ = cn.ClientSetName(ctx, "hasp").Err()
		return nil
	}
	return &o
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
