// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/sqldriver"
	_ "github.com/ncruces/go-sqlite3/driver" // registers "sqlite3"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Open returns the engine of a store, and what closes the connections under it
// once the engine is closed. It does no I/O.
func (u *URL) Open() (drv driver.Driver, closeIt func() error, err error) {
	if u.redis == nil {
		db, err := sql.Open("sqlite3", sqldriver.SQLiteDSN(u.path))
		if err != nil {
			return nil, nil, err
		}
		return sqldriver.NewSQLite(db), db.Close, nil
	}
	redis.SetLogger(silent{}) // what matters comes back as an error
	rdb := redis.NewClient(u.options())
	return redisdriver.New(rdb, &redisdriver.Options{Prefix: u.prefix, NoPrefix: u.noPrefix}), rdb.Close, nil
}

// limit bounds a dial, and one answer, so that a server that is gone is known
// to be well before a TTL is over.
const limit = 3 * time.Second

// options are those of a client for locks: it never asks twice by itself, since
// hasp does and knows how, and it keeps to the context.
func (u *URL) options() *redis.Options {
	o := *u.redis
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
