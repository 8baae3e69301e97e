// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

var etcdPeers = []*peer{{
	name:    "etcd",
	modules: []string{"go.etcd.io/etcd/client/v3"},
	config: "concurrency.NewMutex over one client with its default options and a session of TTL 30 s; goroutines that want one key at once " +
		"have a session each, since a session excludes others, never itself; one member, on this machine, that syncs each write to the disk",
	waits: true,
	etcd:  true,
	open: func(ctx context.Context, to target) (locker, error) {
		client, err := connectEtcd(to.Etcd)
		if err != nil {
			return nil, err
		}
		l := &etcdLocker{client: client, ttl: max(1, int(to.TTL/time.Second))}
		// A session in advance, as a program would open it at its start.
		s, err := l.session(ctx, "")
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.give(s, "")
		return l, nil
	},
}}

// connectEtcd connects with etcd's own client, with its default options.
func connectEtcd(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
}

// etcdLocker is an etcd client with as many sessions as goroutines contended for one
// key at once.
type etcdLocker struct {
	client *clientv3.Client
	ttl    int // seconds

	mu       sync.Mutex
	sessions []*etcdSession
}

type etcdSession struct {
	*concurrency.Session
	busy map[string]bool // the keys it holds or waits for
}

// session returns a session that neither holds nor waits for the key.
func (l *etcdLocker) session(ctx context.Context, key string) (*etcdSession, error) {
	l.mu.Lock()
	for _, s := range l.sessions {
		if !s.busy[key] {
			s.busy[key] = true
			l.mu.Unlock()
			return s, nil
		}
	}
	l.mu.Unlock()
	// With the caller's context the session would end with it.
	lease, err := l.client.Grant(ctx, int64(l.ttl))
	if err != nil {
		return nil, err
	}
	made, err := concurrency.NewSession(l.client, concurrency.WithLease(lease.ID), concurrency.WithTTL(l.ttl))
	if err != nil {
		return nil, err
	}
	s := &etcdSession{made, map[string]bool{key: true}}
	l.mu.Lock()
	l.sessions = append(l.sessions, s)
	l.mu.Unlock()
	return s, nil
}

func (l *etcdLocker) give(s *etcdSession, key string) {
	l.mu.Lock()
	delete(s.busy, key)
	l.mu.Unlock()
}

func (l *etcdLocker) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	s, err := l.session(ctx, key)
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(s.Session, "/lock/"+key)
	if err := m.Lock(ctx); err != nil {
		l.give(s, key)
		return nil, err
	}
	return func(ctx context.Context) error {
		defer l.give(s, key)
		select {
		case <-s.Done():
			return errLost
		default:
			return m.Unlock(ctx)
		}
	}, nil
}

// Close ends the sessions with the connection; their leases expire.
func (l *etcdLocker) Close() error {
	l.mu.Lock()
	sessions := l.sessions
	l.mu.Unlock()
	for _, s := range sessions {
		s.Orphan()
	}
	return l.client.Close()
}
