// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	gozk "github.com/go-zookeeper/zk"
	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/zkdriver"
)

const goZooKeeper = "github.com/go-zookeeper/zk"

// zookeeperPeers have a scenario of their own.
var zookeeperPeers = []*peer{
	{
		name:      baseline,
		modules:   []string{"github.com/hasplock/hasp"},
		config:    "zkdriver with its defaults (the read-write lock's layout, a session of 45 s) for each client; one server, on this machine, that syncs each write to the disk",
		waits:     true,
		zookeeper: true,
		open: func(_ context.Context, to target) (locker, error) {
			conn := zkdriver.Connect([]string{to.ZooKeeper}, nil)
			locks, err := hasp.New(zkdriver.New(conn, nil), nil)
			if err != nil {
				return nil, errors.Join(err, conn.Close())
			}
			return &haspLocker{under: conn, locks: locks, options: hasp.LockOptions{TTL: to.TTL}}, nil
		},
	},
	{
		name:      "go-zookeeper",
		modules:   []string{goZooKeeper},
		config:    "zk.NewLock over a connection with a session of 30 s for each client; it never asks whether the session lives",
		waits:     true,
		zookeeper: true,
		open: func(ctx context.Context, to target) (locker, error) {
			conn, events, err := gozk.Connect([]string{to.ZooKeeper}, to.TTL, gozk.WithLogger(unheard{}))
			if err != nil {
				return nil, err
			}
			for {
				select {
				case ev := <-events:
					if ev.State == gozk.StateHasSession {
						return goZooKeeperLocker{conn}, nil
					}
				case <-ctx.Done():
					conn.Close()
					return nil, ctx.Err()
				}
			}
		},
	},
}

// unheard drops go-zookeeper's messages.
type unheard struct{}

func (unheard) Printf(string, ...any) {}

type goZooKeeperLocker struct{ conn *gozk.Conn }

// Lock ends the connection when ctx ends first: there is no other way to make it return.
func (l goZooKeeperLocker) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	stop := context.AfterFunc(ctx, l.conn.Close)
	lock := gozk.NewLock(l.conn, "/lock/"+key, gozk.WorldACL(gozk.PermAll))
	err := lock.Lock()
	if !stop() { // the lock ends with the connection, even if it was granted just now
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return lock.Unlock() }, nil
}

func (l goZooKeeperLocker) Close() error {
	closed := make(chan struct{})
	go func() {
		l.conn.Close()
		close(closed)
	}()
	select {
	case <-closed:
		return nil
	case <-time.After(patience): // some of its calls hang
		return errors.New("the connection does not close")
	}
}
