// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/etcddriver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/redisdriver/redisson"
	"github.com/hasplock/hasp/sqldriver"
	"github.com/hasplock/hasp/zkdriver"
	"github.com/redis/go-redis/v9"
)

// Options are those of [URL.Open]. The zero value, and nil, mean the defaults.
type Options struct {
	// Latest is asked at each login for the URL as it is by then, since a password may have been changed: only the user, the password
	// and certificates are taken from it. One of another store changes nothing. nil: the URL stays as it is.
	Latest func() *URL
	// Sparing takes as few connections as waiting needs, for programs that many run side by side.
	Sparing bool

	// StateDir, StateFailed and NodeTimeout are those of quorum.Options, for redlock:.
	StateDir    string
	StateFailed func(error)
	NodeTimeout time.Duration
}

// Store is an open store.
type Store struct {
	// Driver is its engine. Close closes the connections, too.
	driver.Driver
	// Servers are those of Redis, one by one: of which a majority votes, or the master.
	Servers []Server
	// Cluster, Sentinels and DB are what else is connected, for questions besides.
	Cluster   *redis.ClusterClient
	Sentinels []SentinelServer
	DB        *sql.DB
	// Dial connects to another server of the same Redis, which one of these names: over TLS, where the store's URL has it.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Server is one server of Redis, named by its address, as in errors.
type Server struct {
	Name   string
	Driver driver.Driver // the engine of this server alone
	Client *redis.Client
}

// SentinelServer is one of the Sentinels.
type SentinelServer struct {
	Addr   string
	Client *redis.SentinelClient
}

// opening is how a store is opened.
type opening struct {
	Options
	latest func() place // what the URL says by now
}

// Open opens the store. It reads the files of TLS, and does no other I/O: connections are made when they are needed.
func (u *URL) Open(o *Options) (*Store, error) {
	how := &opening{latest: func() place { return u.place }}
	if o != nil {
		how.Options = *o
	}
	if how.Latest != nil {
		how.latest = func() place {
			if l := how.Latest(); l.String() == u.String() {
				return l.place
			}
			return u.place
		}
	}
	return u.place.open(how)
}

// owning is an engine that owns its connections: Close closes it, and then them, once. It has all methods of the engine.
func owning(d driver.Driver, disconnect ...func() error) driver.Driver {
	end := sync.OnceValue(func() error {
		err := d.Close()
		for _, disconnect := range disconnect {
			err = errors.Join(err, disconnect())
		}
		return err
	})
	switch d := d.(type) {
	case *redisdriver.Driver:
		return &owningRedis{d, end}
	case *redisdriver.Node:
		return &owningNode{d, end}
	case *redisson.Driver:
		return &owningRedisson{d, end}
	case *quorum.Driver:
		return &owningQuorum{d, end}
	case *etcddriver.Driver:
		return &owningEtcd{d, end}
	case *zkdriver.Driver:
		return &owningZK{d, end}
	case *sqldriver.Driver:
		return &owningSQLite{d, end}
	case *sqldriver.Server:
		return &owningDatabase{d, end}
	}
	panic("dial: no engine is left")
}

// Each embeds its engine, so that none of its optional interfaces is lost.
type (
	owningRedis struct {
		*redisdriver.Driver
		end func() error
	}
	owningNode struct {
		*redisdriver.Node
		end func() error
	}
	owningRedisson struct {
		*redisson.Driver
		end func() error
	}
	owningQuorum struct {
		*quorum.Driver
		end func() error
	}
	owningEtcd struct {
		*etcddriver.Driver
		end func() error
	}
	owningZK struct {
		*zkdriver.Driver
		end func() error
	}
	owningSQLite struct {
		*sqldriver.Driver
		end func() error
	}
	owningDatabase struct {
		*sqldriver.Server
		end func() error
	}
)

func (o *owningRedis) Close() error    { return o.end() }
func (o *owningNode) Close() error     { return o.end() }
func (o *owningRedisson) Close() error { return o.end() }
func (o *owningQuorum) Close() error   { return o.end() }
func (o *owningEtcd) Close() error     { return o.end() }
func (o *owningZK) Close() error       { return o.end() }
func (o *owningSQLite) Close() error   { return o.end() }
func (o *owningDatabase) Close() error { return o.end() }
