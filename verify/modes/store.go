// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"errors"
	"strings"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/redis/go-redis/v9/logging"
)

// client is a hasp.Client with its connection.
type client struct {
	*hasp.Client
	conn *engines.Conn
}

// job is what a client is told.
func (o *Options) job() player.Job {
	return player.Job{Store: string(o.Store.Kind) + "=" + strings.Join(o.Store.Addrs(), ","), TTL: o.TTL, Broken: o.broken}
}

// open connects a client, with a fault of its driver when the job names one.
func open(j player.Job, observe func(hasp.Event)) (*client, error) {
	logging.Disable()
	kind, addrs, _ := strings.Cut(j.Store, "=")
	conn, err := engines.OpenFor(engines.Kind(kind), strings.Split(addrs, ","), j.TTL)
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn}
	d, err := faulty(conn.Driver, j.Broken)
	if err == nil {
		c.Client, err = hasp.New(d, &hasp.Options{Observe: observe})
	}
	if err != nil {
		return nil, errors.Join(err, conn.Disconnect())
	}
	return c, nil
}

func (c *client) Close() error { return errors.Join(c.Client.Close(), c.conn.Disconnect()) }
