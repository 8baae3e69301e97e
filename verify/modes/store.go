// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/sqldriver"
	_ "github.com/ncruces/go-sqlite3/driver" // registers "sqlite3"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// client is a hasp.Client with its connection.
type client struct {
	*hasp.Client
	disconnect func() error
}

// open connects a client, with a fault of its driver when broken names one.
func open(store, broken string, observe func(hasp.Event)) (*client, error) {
	var d driver.Driver
	c := &client{}
	kind, rest, _ := strings.Cut(store, ":")
	switch kind {
	case "sqlite":
		db, err := sql.Open("sqlite3", sqldriver.SQLiteDSN(rest))
		if err != nil {
			return nil, err
		}
		d, c.disconnect = sqldriver.NewSQLite(db), db.Close
	case "redis":
		logging.Disable()
		rdb := redis.NewClient(&redis.Options{Addr: strings.TrimPrefix(rest, "//")})
		d, c.disconnect = redisdriver.New(rdb, nil), rdb.Close
	default:
		return nil, fmt.Errorf("no store is called %q", store)
	}
	d, err := faulty(d, broken)
	if err == nil {
		c.Client, err = hasp.New(d, &hasp.Options{Observe: observe})
	}
	if err != nil {
		return nil, errors.Join(err, c.disconnect())
	}
	return c, nil
}

func (c *client) Close() error { return errors.Join(c.Client.Close(), c.disconnect()) }
