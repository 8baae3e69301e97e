// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/redis/go-redis/v9"
)

// A permanently wrong address is distinguished from an unreachable server.
// A name that led to the server once is no misspelt one.
func TestAddressesThatCannotExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	notFound := dial(&net.DNSError{Err: "no such host", Name: "redsi", IsNotFound: true})
	for name, c := range map[string]struct {
		err   error
		class driver.Class
	}{
		"a name that DNS does not know": {notFound, driver.ClassMisconfigured},
		"DNS is away":                   {dial(&net.DNSError{Err: "server misbehaving", Name: "redis", IsTemporary: true}), driver.ClassUnreachable},
		"DNS is slow":                   {dial(&net.DNSError{Err: "i/o timeout", Name: "redis", IsTimeout: true}), driver.ClassUnreachable},
		"no such port":                  {dial(&net.AddrError{Err: "invalid port", Addr: "99999"}), driver.ClassMisconfigured},
		"no such socket":                {dial(os.NewSyscallError("connect", syscall.ENOENT)), driver.ClassUnreachable},
		"a socket of another's":         {dial(os.NewSyscallError("connect", syscall.EACCES)), driver.ClassDenied},
		"refused":                       {dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), driver.ClassUnreachable},
		"no route":                      {dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), driver.ClassUnreachable},
	} {
		d := w.over(w.client(func(o *redis.Options) {
			o.Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, c.err }
		}), nil)
		if _, err := contend.Try(w.ctx, d, ask("k")); d.Classify(err) != c.class {
			t.Errorf("%s: %v is class %v, want %v", name, err, d.Classify(err), c.class)
		}
	}

	var gone atomic.Bool
	rdb := w.client(func(o *redis.Options) {
		o.PoolSize = 1
		direct := (&net.Dialer{}).DialContext
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if gone.Load() {
				return nil, notFound
			}
			return direct(ctx, network, addr)
		}
	})
	d := w.over(rdb, nil)
	if _, err := contend.Try(w.ctx, d, ask("k")); err != nil {
		t.Fatal(err)
	}
	gone.Store(true)
	w.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	for range 3 { // the first may find out that the connection is gone
		_, err := contend.Try(w.ctx, d, ask("k"))
		if c := d.Classify(err); err == nil || c != driver.ClassUnreachable {
			t.Errorf("the name is gone: %v is class %v, want Unreachable", err, c)
		}
	}
}
