// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	gozk "github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.uber.org/zap"
)

var etcdPeers = []*peer{{
	name: "etcd",
	config: "concurrency.NewMutex over one client with its default options and a session of TTL 30 s; goroutines that want one key at once " +
		"have a session each, since a session excludes others, never itself; one member, on this machine, that syncs each write to the disk",
	on: onEtcd,
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

func (l *etcdLocker) Lock(ctx context.Context, key string) (unlock, error) {
	s, err := l.session(ctx, key)
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(s.Session, "/lock/"+key)
	if err := m.Lock(ctx); err != nil {
		l.give(s, key)
		return nil, err
	}
	release := whileAlive(s.Session, m.Unlock)
	return func(ctx context.Context) error {
		defer l.give(s, key)
		return release(ctx)
	}, nil
}

// whileAlive makes a loss of a release after the end of the session.
func whileAlive(s *concurrency.Session, release unlock) unlock {
	return func(ctx context.Context) error {
		select {
		case <-s.Done():
			return errLost
		default:
			return release(ctx)
		}
	}
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

var etcdRWPeer = &peer{
	name:   "etcd RWMutex",
	config: "NewRWMutex of etcd's experimental/recipes over one client and one session of TTL 30 s",
	on:     onEtcd,
	open: func(_ context.Context, to target) (locker, error) {
		client, err := connectEtcd(to.Etcd)
		if err != nil {
			return nil, err
		}
		session, err := concurrency.NewSession(client, concurrency.WithTTL(max(1, int(to.TTL/time.Second))))
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		return &etcdRW{client, session}, nil
	},
}

// etcdRW is an etcd client with a session.
type etcdRW struct {
	client  *clientv3.Client
	session *concurrency.Session
}

// Lock does not end with its context: the recipe takes none.
func (l *etcdRW) Lock(_ context.Context, key string) (unlock, error) {
	m := recipe.NewRWMutex(l.session, "/rw/"+key)
	return l.held(m.Lock(), m.Unlock)
}

func (l *etcdRW) RLock(_ context.Context, key string) (unlock, error) {
	m := recipe.NewRWMutex(l.session, "/rw/"+key)
	return l.held(m.RLock(), m.RUnlock)
}

func (l *etcdRW) held(err error, release func() error) (unlock, error) {
	if err != nil {
		return nil, err
	}
	return whileAlive(l.session, func(context.Context) error { return release() }), nil
}

func (l *etcdRW) Close() error { return errors.Join(l.session.Close(), l.client.Close()) }

var goZooKeeperPeer = &peer{
	name:   "go-zookeeper",
	config: "zk.NewLock over a connection with a session of 30 s for each client; it never asks whether the session lives",
	on:     onZooKeeper,
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
}

// unheard drops go-zookeeper's messages.
type unheard struct{}

func (unheard) Printf(string, ...any) {}

type goZooKeeperLocker struct{ conn *gozk.Conn }

// Lock ends the connection when ctx ends first: there is no other way to make it return.
func (l goZooKeeperLocker) Lock(ctx context.Context, key string) (unlock, error) {
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

var flockPeer = &peer{
	name:   "flock",
	config: "flock(2) in each process, which is all that flock(1) adds a process to (S7): the kernel's lock, for this machine only; no TTL, no fence, no order",
	on:     onFile,
	open: func(_ context.Context, to target) (locker, error) {
		f, err := os.OpenFile(filepath.Join(to.Dir, "flock"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		return flocker{f}, nil
	},
}

// flocker is a file that is locked as a whole, whatever the key.
type flocker struct{ f *os.File }

// Lock waits without regard for ctx, like the system call.
func (l flocker) Lock(context.Context, string) (unlock, error) {
	if err := flock(l.f, true); err != nil {
		return nil, err
	}
	return func(context.Context) error { return flock(l.f, false) }, nil
}

func (l flocker) Close() error { return l.f.Close() }

// Go's own mutex is the other end of the scale: no store, no crash, no network.
var localPeers = []*peer{{
	name:   "sync.Mutex",
	config: "Go's own, one for each key, in this process; all clients share it",
	on:     inProcess,
	open:   func(context.Context, target) (locker, error) { return localLocker{}, nil },
}}

// localMutexes and localRWs have the mutex of each key.
var localMutexes, localRWs sync.Map

func local[M any](all *sync.Map, key string) *M {
	v, ok := all.Load(key)
	if !ok {
		v, _ = all.LoadOrStore(key, new(M))
	}
	return v.(*M)
}

type localLocker struct{}

func (localLocker) Lock(_ context.Context, key string) (unlock, error) {
	m := local[sync.Mutex](&localMutexes, key)
	m.Lock()
	return func(context.Context) error { m.Unlock(); return nil }, nil
}

func (localLocker) Close() error { return nil }

// localRW is Go's own read-write lock.
type localRW struct{ localLocker }

func (localRW) Lock(_ context.Context, key string) (unlock, error) {
	m := local[sync.RWMutex](&localRWs, key)
	m.Lock()
	return func(context.Context) error { m.Unlock(); return nil }, nil
}

func (localRW) RLock(_ context.Context, key string) (unlock, error) {
	m := local[sync.RWMutex](&localRWs, key)
	m.RLock()
	return func(context.Context) error { m.RUnlock(); return nil }, nil
}
