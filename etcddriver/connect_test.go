// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// patient leaves Connect's connections alone when they are silent: a server on a busy machine is silent for seconds.
var patient = grpc.WithContextDialer(dialNet)

// as is a client of Connect's.
func as(t testing.TB, user, password, addr string, o ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	c, err := Connect(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop(), Username: user, Password: password, DialKeepAliveTime: time.Hour, DialOptions: o}, nil)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// connected is a driver on such a client, which is patient.
func connected(t testing.TB, addr string) *Driver {
	return opened(t, as(t, "user", "word", addr, patient))
}

// linked is a driver on a client of which nothing is changed: its requests may have to be sent again.
func linked(t testing.TB, addr string) *Driver { return opened(t, as(t, "user", "word", addr)) }

// ordinary is connected with a client of etcd's own.
func ordinary(t testing.TB, addr string) *Driver {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop(), Username: "user", Password: "word"})
	must(t, err)
	c.Watcher = watcher{c.Watcher}
	t.Cleanup(func() { _ = c.Close() })
	return opened(t, c)
}

// logins is how many a server has had since it started.
func logins(t testing.TB, s *testserver.Server) (n int) {
	t.Helper()
	res, err := http.Get("http://" + s.Addr() + "/metrics")
	must(t, err)
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), "} "); ok && strings.HasPrefix(name, "grpc_server_started_total") && strings.Contains(name, `"Authenticate"`) {
			if n, err = strconv.Atoi(value); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}

// TestLogins: a client logs in once, however many leases it renews, and however many wait. A client of etcd's own
// does so for each stream: one of keep-alives, and one of watches.
func TestLogins(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		withUsers(t, s, "hasp/")
		for _, c := range []struct {
			what string
			open func() *Driver
			most int
		}{
			{"Connect's", func() *Driver { return connected(t, s.Addr()) }, 1},
			{"etcd's own", func() *Driver { return ordinary(t, s.Addr()) }, 3},
		} {
			before := logins(t, s)
			d := c.open()
			var all []driver.TryRequest
			for i := range 100 {
				r := ask(claim(c.what+strconv.Itoa(i)), time.Hour)
				r.Queue = false
				all = append(all, r)
			}
			var running sync.WaitGroup
			for _, r := range all { // all at once
				running.Go(func() {
					if res, err := d.Try(t.Context(), r); err != nil || !res.Granted {
						t.Errorf("Try: %+v, %v", res, err)
					}
				})
			}
			running.Wait()
			for range 3 {
				age(d, time.Hour/3)
				for i, got := range renew(t, d, all...) {
					if got.Err != nil {
						t.Fatalf("renewal %d: %v", i, got.Err)
					}
				}
			}
			b := ask(all[0].Claim, time.Hour)
			b.Owner = claim("").Owner
			hints, err := d.Watch(t.Context(), b.Claim)
			must(t, err)
			refuse(t, d, b)
			give(t, d, all[0], driver.EndFinished)
			comes(t, hints, "the hint")
			grant(t, d, b)
			if n := logins(t, s) - before; n > c.most {
				t.Errorf("a client of %s logged in %d times, want %d at most", c.what, n, c.most)
			}
		}
	})
}

// insist asks, as a waiter does, until the key is granted.
func insist(t testing.TB, d *Driver, r driver.TryRequest) {
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the limit of an attempt
		res, err := d.Try(ctx, r)
		cancel()
		if res.Granted {
			return
		}
		if d.Classify(err) != driver.ClassUnreachable {
			t.Errorf("Try: %+v, %v", res, err)
			return
		}
	}
}

// TestSlowLogin: a server that is so busy that it answers nothing, no question of gRPC's either, is not sent a second login.
func TestSlowLogin(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		withUsers(t, s, "hasp/")
		p := faultproxy.New(t, s.Addr())
		var asked atomic.Bool
		var once sync.Once
		p.Hook(func(c faultproxy.Chunk) bool {
			if c.Dir == faultproxy.Up && strings.Contains(string(c.Data), "word") {
				asked.Store(true)
			}
			if c.Dir == faultproxy.Down && asked.Load() {
				once.Do(func() { time.Sleep(10*time.Second + connectLimit + time.Second) }) // the fault, not a wait
			}
			return false
		})
		c, err := Connect(clientv3.Config{Endpoints: []string{p.Addr()}, Logger: zap.NewNop(), Username: "user", Password: "word"}, nil)
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		before := logins(t, s)
		insist(t, opened(t, c), ask(claim("k"), time.Minute))
		if n := logins(t, s) - before; n != 1 {
			t.Errorf("it logged in %d times", n)
		}
	})
}

// hold has a client of package hasp hold a key.
func hold(t testing.TB, d *Driver, key string, ttl time.Duration) *hasp.Lease {
	t.Helper()
	c, err := hasp.New(d, nil)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	lease, err := c.Mutex(key, &hasp.LockOptions{TTL: ttl}).Lock(t.Context())
	must(t, err)
	return lease
}

// forget restarts a server, which forgets all tokens.
func forget(t testing.TB, s *testserver.Server, root *clientv3.Client) {
	t.Helper()
	// etcd carries out again, at its start, what it did since it last put a change on the disk: logins, too.
	if _, err := root.Put(t.Context(), "change", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := root.Defragment(t.Context(), s.Addr()); err != nil {
		t.Fatal(err)
	}
	s.Restart()
}

// TestLogInAfterRestart: a client that keeps a lease alive logs in as soon as a restarted server is there, and not when the next
// renewal is due.
func TestLogInAfterRestart(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		withUsers(t, s, "hasp/")
		root := as(t, "root", "secret", s.Addr(), patient)
		d := connected(t, s.Addr())
		r := ask(claim("k"), time.Minute)
		grant(t, d, r)
		age(d, 20*time.Second)
		renewed(t, d, r)
		forget(t, s, root)
		soon := inTime(t, s, 30*time.Second)
		for logins(t, s) == 0 && soon("the login") {
			time.Sleep(10 * time.Millisecond) // no event says so
		}
	})
}

// stalls measures for how long the machine runs this process or a server too late.
func stalls(t testing.TB, s *testserver.Server) func() time.Duration {
	return stall.Of(t, func() {
		if res, err := http.Get("http://" + s.Addr() + "/version"); err == nil {
			_ = res.Body.Close()
		}
	})
}

// inTime returns a function which fails the test if that event comes later than after a time, and what the machine lost meanwhile.
func inTime(t testing.TB, s *testserver.Server, most time.Duration) func(event string) bool {
	start, lost := time.Now(), stalls(t, s)
	return func(event string) bool {
		t.Helper()
		took := time.Since(start)
		if took > most+lost() {
			t.Errorf("%s took %v, and the machine lost %v of that", event, took, lost())
			return false
		}
		return true
	}
}

// TestRestartsWithUsers: leases survive restarts of an etcd with users, which forgets all tokens, also a lease of eight seconds that
// is renewed by itself. After each, a client that renews logs in once.
func TestRestartsWithUsers(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		withUsers(t, s, "hasp/")
		root := as(t, "root", "secret", s.Addr(), patient)
		var all []*hasp.Lease
		for i := range 20 {
			all = append(all, hold(t, linked(t, s.Addr()), strconv.Itoa(i), time.Hour))
		}
		const ttl = 8 * time.Second
		d, lost := linked(t, s.Addr()), stalls(t, s)
		brief := hold(t, d, "brief", ttl)
		for i := range 10 {
			start, before := time.Now(), lost()
			forget(t, s, root)
			away, restarted := time.Since(start), brief.Deadline().Add(ttl/8)
			var running sync.WaitGroup
			for _, l := range all {
				running.Go(func() {
					for err := l.Extend(t.Context(), time.Hour); err != nil; err = l.Extend(t.Context(), time.Hour) {
						if lost := l.Err(); lost != nil || t.Context().Err() != nil {
							t.Errorf("Extend: %v; the lease: %v", err, lost)
							return
						}
					}
				})
			}
			running.Wait()
			for brief.Err() == nil && !brief.Deadline().After(restarted) {
				time.Sleep(10 * time.Millisecond) // no event says so
			}
			if err := brief.Err(); err != nil {
				if stalled := max(away, lost()-before); stalled <= ttl/4 {
					t.Errorf("after restart %d, which took %v, while the machine lost %v: %v", i, away, lost()-before, err)
				}
				brief = hold(t, d, "brief", ttl)
			}
			if n := logins(t, s); n != len(all)+1 {
				t.Errorf("%d clients logged in %d times after restart %d", len(all)+1, n, i)
			}
		}
		for _, l := range all {
			if err := l.Release(); err != nil {
				t.Errorf("Release: %v", err)
			}
		}
	})
}

// TestConnectBeforeTheServer: with a password, too, Connect waits for nothing, and the first request for the server.
func TestConnectBeforeTheServer(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		withUsers(t, s, "hasp/")
		s.Kill()
		d := connected(t, s.Addr())
		if c := unanswered(t, d); c != driver.ClassUnreachable {
			t.Errorf("a server that is away: class %d", c)
		}
		s.Restart()
		grant(t, d, ask(claim("k"), time.Minute))
	})
}

// TestRotatedPassword: each login asks for the password, and a refused one is of class Login.
func TestRotatedPassword(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		root := withUsers(t, s, "hasp/")
		var mu sync.Mutex
		password := "word"
		c, err := Connect(clientv3.Config{Endpoints: []string{s.Addr()}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{patient}}, &ConnectOptions{Login: func() (string, string, error) {
			mu.Lock()
			defer mu.Unlock()
			return "user", password, nil
		}})
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		d := opened(t, c)
		r := ask(claim("k"), time.Minute)
		grant(t, d, r)
		if _, err := root.UserChangePassword(t.Context(), "user", "other"); err != nil {
			t.Fatal(err)
		}
		if got := renew(t, d, r)[0]; d.Classify(got.Err) != driver.ClassLogin {
			t.Errorf("with the old password: %+v, class %d", got, d.Classify(got.Err))
		}
		mu.Lock()
		password = "other"
		mu.Unlock()
		renewed(t, d, r)
		give(t, d, r, driver.EndFinished)
	})
}

// shortTokens are arguments for tokens that are over after three seconds, whether they are used or not.
func shortTokens(t *testing.T) []string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(t, err)
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"private": {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}, "public": {Type: "PUBLIC KEY", Bytes: public},
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	return append([]string{"--auth-token=jwt,pub-key=" + filepath.Join(dir, "public") + ",priv-key=" + filepath.Join(dir, "private") + ",sign-method=RS256,ttl=3s"}, quick...)
}

// outlive returns once every token that the server has given so far is over: it asks with another one until that is refused.
func outlive(t testing.TB, s *testserver.Server) {
	t.Helper()
	cc, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer cc.Close()
	got, err := pb.NewAuthClient(cc).Authenticate(t.Context(), &pb.AuthenticateRequest{Name: "user", Password: "word"})
	must(t, err)
	ctx := (&token{text: got.GetToken()}).on(t.Context())
	for err == nil || status.Code(err) == codes.Unavailable {
		_, err = pb.NewKVClient(cc).Range(ctx, &pb.RangeRequest{Key: []byte("hasp/k")})
	}
	if !stale(err) {
		t.Fatal(err)
	}
}

// TestTokensEnd: a client whose token is over gets another one, for requests, for keep-alives, and for watches on a
// stream that was opened with the old one.
func TestTokensEnd(t *testing.T) {
	t.Parallel()
	for name, start := range versions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, shortTokens(t)...)
			withUsers(t, s, "hasp/")
			drivers := map[string]*Driver{"Connect's": connected(t, s.Addr())}
			if name != "3.4" { // which refuses a login with an old token, and etcd's client sends that along
				drivers["etcd's own"] = ordinary(t, s.Addr())
			}
			for what, d := range drivers {
				held, first := ask(claim(what+"held"), time.Minute), ask(claim(what+"k"), time.Minute)
				grant(t, d, held)
				grant(t, d, first)
				waits := func() (driver.TryRequest, <-chan driver.Hint) {
					r := ask(claim(what+"k"), time.Minute)
					hints, err := d.Watch(t.Context(), r.Claim)
					must(t, err)
					refuse(t, d, r)
					return r, hints
				}
				renewed(t, d, held)
				second, _ := waits() // its watch keeps the stream open
				outlive(t, s)
				age(d, 30*time.Second)
				renewed(t, d, held)
				third, hints := waits()
				must(t, d.Release(t.Context(), driver.ReleaseRequest{Claim: second.Claim, TTL: second.TTL, Settled: true}))
				comes(t, hints, "the hint on the stream with the old token, of a client of "+what)
				give(t, d, first, driver.EndFinished)
				grant(t, d, third)
			}
		})
	}
}

// hole is a proxy which loses all that is sent on the connections that it has, and takes new ones.
func hole(t *testing.T, s *testserver.Server) (p *faultproxy.Proxy, open func()) {
	t.Helper()
	p = faultproxy.New(t, s.Addr())
	var mu sync.Mutex
	last, dead := 0, 0
	p.Hook(func(c faultproxy.Chunk) bool {
		mu.Lock()
		defer mu.Unlock()
		last = max(last, c.Conn)
		return c.Conn <= dead
	})
	return p, func() {
		mu.Lock()
		defer mu.Unlock()
		dead = last
	}
}

// again asks until the store has answered, as hasp does: soon, and for a few times.
func again(t *testing.T, s *testserver.Server, d *Driver, ask func() error) {
	t.Helper()
	for range 3 {
		soon := inTime(t, s, 2*silence+connectLimit)
		err := ask()
		soon("an answer")
		if d.Classify(err) != driver.ClassUnreachable {
			must(t, err)
			return
		}
		t.Log(err)
	}
	t.Error("the store has not answered")
}

// TestHalfOpen: a connection on which all is acknowledged, and nothing answered, costs no lease, and no release.
func TestHalfOpen(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		withUsers(t, s, "hasp/")
		p, swallow := hole(t, s)
		d, r := linked(t, p.Addr()), ask(claim("k"), time.Hour)
		insist(t, d, r)
		swallow()
		age(d, 30*time.Minute) // or it is not renewed
		again(t, s, d, func() error { return renew(t, d, r)[0].Err })
		swallow()
		again(t, s, d, func() error { return d.Release(t.Context(), driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL}) })
		grant(t, connected(t, s.Addr()), ask(claim("k"), time.Minute))
	})
}

// TestHalfOpenWatch: a waiter on such a connection gets its hint.
func TestHalfOpenWatch(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		withUsers(t, s, "hasp/")
		p, swallow := hole(t, s)
		d, other := linked(t, p.Addr()), connected(t, s.Addr())
		a, b, hints := behind(t, other, d)
		watches(t, d, b)
		swallow()
		give(t, other, a, driver.EndFinished)
		soon := inTime(t, s, proveEvery+proveLimit)
		comes(t, hints, "the hint")
		soon("the hint")
		var res driver.Result
		again(t, s, d, func() (err error) {
			res, err = d.Try(t.Context(), b)
			return err
		})
		if !res.Granted {
			t.Errorf("at its turn: %+v", res)
		}
	})
}

// watches waits until etcd has the watch of a waiter.
func watches(t testing.TB, d *Driver, r driver.TryRequest) {
	t.Helper()
	d.mu.Lock()
	key, c := d.waiters[r.ID()].key, d.open(0)
	d.mu.Unlock()
	events, end := c.events(t.Context(), d.client, key, []clientv3.OpOption{clientv3.WithCreatedNotify()}) // they begin one after another
	defer end()
	comes(t, events, "the watch")
}

// TestSlowIsNotDead: a server that takes longer for each answer than a connection may be silent is asked until it has
// answered, and few connections to it are closed.
func TestSlowIsNotDead(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		withUsers(t, s, "hasp/")
		p := faultproxy.New(t, s.Addr())
		d := linked(t, p.Addr())
		insist(t, d, ask(claim("k"), time.Minute))
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		p.Hook(func(c faultproxy.Chunk) bool {
			if c.Conn > 8 {
				cancel(errors.New("the client makes one connection after the other"))
			}
			if c.Dir == faultproxy.Up && strings.Contains(string(c.Data), "hasp/slow") {
				time.Sleep(silence + silence/2) // the fault, not a wait
			}
			return false
		})
		for r := ask(claim("slow"), time.Minute); ; {
			res, err := d.Try(ctx, r)
			switch {
			case err == nil && res.Granted:
				return
			case ctx.Err() != nil || d.Classify(err) != driver.ClassUnreachable:
				t.Fatalf("Try: %+v, %v, %v", res, err, context.Cause(ctx))
			}
			t.Logf("Try: %v", err)
		}
	})
}
