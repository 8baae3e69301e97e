// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// fails is the class of a Try's error.
func fails(t *testing.T, d *Driver, r driver.TryRequest) driver.Class {
	t.Helper()
	return failsWithin(t.Context(), t, d, r)
}

// unanswered is the class of the error of a Try that nothing answers.
func unanswered(t *testing.T, d *Driver) driver.Class {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	return failsWithin(ctx, t, d, ask(claim("k"), time.Minute))
}

func failsWithin(ctx context.Context, t *testing.T, d *Driver, r driver.TryRequest) driver.Class {
	t.Helper()
	res, err := d.Try(ctx, r)
	if err == nil {
		t.Fatalf("no error: %+v", res)
	}
	t.Logf("class %d: %v", d.Classify(err), err)
	return d.Classify(err)
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	if c := unanswered(t, open(t, faultproxy.Nobody(t))); c != driver.ClassUnreachable {
		t.Errorf("no server is there: class %d", c)
	}
}

func TestFull(t *testing.T) {
	t.Parallel()
	for name, start := range versions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, append([]string{"--quota-backend-bytes=2000000"}, quick...)...)
			d, other := open(t, s.Addr()), open(t, s.Addr()) // of one client they would share a lease, and one of them had to leave it
			a := ask(claim("k"), time.Minute)
			grant(t, d, a)
			big := string(bytes.Repeat([]byte("x"), 500_000))
			for range 20 {
				if _, err := d.client.Put(t.Context(), "big", big); err != nil {
					break
				}
			}
			if c := fails(t, other, ask(claim("other"), time.Minute)); c != driver.ClassFull {
				t.Errorf("a full etcd: class %d", c)
			}
			if got := renew(t, d, a)[0]; got.Err != nil {
				t.Errorf("a full etcd renews nothing: %v", got.Err)
			}
			if err := d.Release(t.Context(), driver.ReleaseRequest{Claim: a.Claim, TTL: a.TTL, Settled: true}); err != nil {
				t.Errorf("a full etcd releases nothing: %v", err)
			}
		})
	}
}

func TestDenied(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		ctx := t.Context()
		withUsers(t, s, "hasp/mine/")
		user := func(name, password string) *Driver {
			c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Username: name, Password: password, Logger: zap.NewNop(), DialTimeout: limit})
			must(t, err)
			t.Cleanup(func() { _ = c.Close() })
			return opened(t, c)
		}
		d := user("user", "word")
		a := ask(claim("mine/k"), time.Minute)
		grant(t, d, a)
		renewed(t, d, a)
		refuse(t, d, ask(claim("mine/k"), time.Minute))
		give(t, d, a, driver.EndFinished)
		if c := fails(t, d, ask(claim("theirs/k"), time.Minute)); c != driver.ClassDenied {
			t.Errorf("no permission: class %d", c)
		}
		if c := fails(t, open(t, s.Addr()), ask(claim("k"), time.Minute)); c != driver.ClassLogin {
			t.Errorf("no user: class %d", c)
		}
		if c := fails(t, opened(t, as(t, "us\xe9r", "word", s.Addr())), ask(claim("k"), time.Minute)); c != driver.ClassMisconfigured {
			t.Errorf("a user that is no UTF-8: class %d", c)
		}
		for _, err := range d.ListLeftovers(ctx, "mine/", nil) {
			t.Errorf("with the permission: %v", err)
		}
		for _, err := range d.ListLeftovers(ctx, "theirs/", nil) {
			if d.Classify(err) != driver.ClassDenied || !strings.Contains(err.Error(), `read the keys from "hasp/theirs/`) {
				t.Errorf("leftovers without a permission: %v", err)
			}
		}
		theirs := operator.Leftover{Key: "theirs/k", Name: "hasp/theirs/k|w|x", Kind: operator.LeftLease, State: "1"}
		if _, err := d.RemoveLeftover(ctx, theirs); d.Classify(err) != driver.ClassDenied || !strings.Contains(err.Error(), theirs.Name) {
			t.Errorf("a leftover without a permission: %v", err)
		}
		if _, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Username: "user", Password: "no", Logger: zap.NewNop(), DialTimeout: limit}); err == nil || d.Classify(err) != driver.ClassLogin {
			t.Errorf("a wrong password: %v, class %d", err, d.Classify(err))
		}
	})
}

// withUsers makes a server ask for passwords. Its users are root, and user, which has the password word and may read and
// write below a prefix.
func withUsers(t testing.TB, s *testserver.Server, prefix string) (root *clientv3.Client) {
	t.Helper()
	admin, ctx := connect(t, s.Addr()), t.Context()
	must := func(_ any, err error) {
		t.Helper()
		must(t, err)
	}
	must(admin.RoleAdd(ctx, "locks"))
	must(admin.RoleGrantPermission(ctx, "locks", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite)))
	must(admin.UserAdd(ctx, "root", "secret"))
	must(admin.UserGrantRole(ctx, "root", "root"))
	must(admin.UserAdd(ctx, "user", "word"))
	must(admin.UserGrantRole(ctx, "user", "locks"))
	must(admin.AuthEnable(ctx))
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Username: "root", Password: "secret", Logger: zap.NewNop(), DialTimeout: limit})
	must(nil, err)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func TestMisconfigured(t *testing.T) {
	t.Parallel()
	for _, d := range []*Driver{New(nil, nil), New(connect(t, faultproxy.Nobody(t)), &Options{ElectionTimeout: -1})} {
		if err := d.Check(); err == nil || d.Classify(err) != driver.ClassMisconfigured {
			t.Errorf("Check: %v", err)
		}
		if c := fails(t, d, ask(claim("k"), time.Minute)); c != driver.ClassMisconfigured {
			t.Errorf("class %d", c)
		}
		if _, err := hasp.New(d, nil); err == nil {
			t.Error("hasp.New takes it")
		}
	}
	s := testserver.Etcd36(t, "--max-txn-ops=2")
	if c := fails(t, open(t, s.Addr()), ask(claim("k"), time.Minute)); c != driver.ClassMisconfigured {
		t.Errorf("too few operations for each transaction: class %d", c)
	}
}

// TestMinTTL: the shortest TTL that the traits promise is what etcd grants.
func TestMinTTL(t *testing.T) {
	t.Parallel()
	for name, start := range versions {
		for args, election := range map[[2]string]time.Duration{
			{}: 0,
			{"--heartbeat-interval=50", "--election-timeout=500"}:   500 * time.Millisecond,
			{"--heartbeat-interval=300", "--election-timeout=3000"}: 3 * time.Second,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var more []string
				if args[0] != "" {
					more = args[:]
				}
				c := connect(t, start(t, more...).Addr())
				d := New(c, &Options{ElectionTimeout: election})
				got, err := c.Grant(t.Context(), 1)
				must(t, err)
				if least := time.Duration(got.TTL) * time.Second; d.Traits().MinTTL != least {
					t.Errorf("with an election time-out of %v the least TTL is %v, the traits say %v", election, least, d.Traits().MinTTL)
				}
			})
		}
	}
}
