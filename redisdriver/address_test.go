// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/redis/go-redis/v9"
)

// A permanently wrong address is distinguished from an unreachable server, and from a name that may come.
func TestAddressesThatCannotExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	notFound := dial(&net.DNSError{Err: "no such host", Name: "redsi", IsNotFound: true})
	for name, c := range map[string]struct {
		err   error
		class driver.Class
	}{
		"a name that DNS does not know": {notFound, driver.ClassUnreachable},
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
}
