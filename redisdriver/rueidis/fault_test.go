// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package rueidis

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/fence"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/rueidis"
)

func ask(key string) contend.Owner {
	return contend.Owner{Key: key, Owner: rand.Text(), TTL: 30 * time.Minute, Patience: 30 * time.Minute}
}

// over is a driver over a client to an address, and that client.
func over(t testing.TB, addr string, o *redisdriver.Options) (*redisdriver.Driver, rueidis.Client) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true})
	if c == nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	d := New(c, o)
	t.Cleanup(func() { _ = d.Close() })
	return d, c
}

// is fails unless an error is of a class, and leaves open whether the request was sent.
func is(t testing.TB, d *redisdriver.Driver, err error, want driver.Class) {
	t.Helper()
	if d.Classify(err) != want || driver.IsNotSent(err) {
		t.Errorf("%v, of the class %v, and not sent: %v", err, d.Classify(err), driver.IsNotSent(err))
	}
}

// The outcome is unknown where the reply is lost, and the request is not made again; and where no connection is made, since rueidis may
// have sent it over one before.
func TestSent(t *testing.T) {
	d, _ := over(t, faultproxy.Nobody(t), nil)
	_, err := contend.Try(t.Context(), d, ask("k"))
	is(t, d, err, driver.ClassUnreachable)

	server := testserver.Redis(t)
	link := faultproxy.New(t, server.Addr())
	d, _ = over(t, link.Addr(), nil)
	if _, err := contend.Try(t.Context(), d, ask("warm")); err != nil {
		t.Fatal(err)
	}
	link.Hook(func(c faultproxy.Chunk) bool {
		if c.Dir == faultproxy.Down {
			go link.Reset()
		}
		return c.Dir == faultproxy.Down
	})
	r := ask("k")
	_, err = contend.Try(t.Context(), d, r)
	is(t, d, err, driver.ClassUnreachable)
	link.Hook(nil)
	for err != nil { // a connection may be about to end
		var res driver.Result
		if res, err = contend.Try(t.Context(), d, r); err == nil && !res.Granted {
			t.Errorf("asked again it is told %+v", res)
		}
	}
}

// A caller leaves a server that hangs when its context ends, and takes no connection with it; and the driver closes.
func TestCallersLeave(t *testing.T) {
	server := testserver.Redis(t)
	d, c := over(t, server.Addr(), nil)
	if _, err := contend.Try(context.Background(), d, ask("warm")); err != nil {
		t.Fatal(err)
	}
	id := func() int64 {
		n, err := c.Do(context.Background(), c.B().ClientId().Build()).AsInt64() // rueidis begins to pipeline with a context that may end
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := id()
	server.Stop()
	ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer leave()
	r := ask("k")
	if _, err := contend.Try(ctx, d, r); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it leaves with %v", err)
	}
	server.Cont()
	if after := id(); after != before {
		t.Errorf("the connection %d is %d now", before, after)
	}
	if err := contend.Release(t.Context(), d, r); err != nil && !errors.Is(err, driver.ErrNotHeld) {
		t.Error(err)
	}
}

// A program that closes its client is told so.
func TestClientIsClosed(t *testing.T) {
	d, c := over(t, testserver.Redis(t).Addr(), nil)
	if _, err := contend.Try(t.Context(), d, ask("warm")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	_, err := contend.Try(t.Context(), d, ask("k"))
	is(t, d, err, driver.ClassImpossible)
	if d := New(nil, nil); d.Check() == nil {
		t.Error("no client at all will do")
	}
	is(t, d, wrap(c).explain(rueidis.ErrNoSlot), driver.ClassUnreachable) // a Lock waits while a cluster chooses a master
}

// A guard refuses what is stale, and leaves a server that hangs when its context ends.
func TestGuard(t *testing.T) {
	server := testserver.Redis(t)
	g := NewGuard(open(t, at(server)))
	got, err := g.Write(t.Context(), "{k}", 7, []string{"{k}n"}, redisdriver.Command{"INCRBY", "{k}n", 41}, redisdriver.Command{"GET", "{k}m"})
	if err != nil || len(got) != 2 || got[0] != int64(41) || got[1] != nil {
		t.Errorf("%v, %v", got, err)
	}
	if err := g.Set(t.Context(), "{k}", "late", 0, 6); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a stale write says %v", err)
	}
	server.Stop()
	defer server.Cont()
	ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer leave()
	if _, err := g.Get(ctx, "{k}", 8); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it leaves with %v", err)
	}
}

// The event that opens a latch reaches a waiter over rueidis.
func TestLatch(t *testing.T) {
	s := NewSynchronizers(open(t, at(testserver.Redis(t))), nil)
	defer s.Close()
	l, opened := s.CountDownLatch("k"), make(chan error)
	_, err := l.TrySetCount(t.Context(), 1)
	go func() { opened <- l.Wait(t.Context()) }()
	if err := errors.Join(err, l.CountDown(t.Context()), <-opened); err != nil {
		t.Error(err)
	}
}

// What the server refuses is told from the rest; its script is sent whole again once it forgot it; and its subscription ends with Close.
func TestServerSays(t *testing.T) {
	server := testserver.Redis(t)
	d, c := over(t, server.Addr(), nil)
	do := func(args ...string) string {
		t.Helper()
		said, err := c.Do(t.Context(), c.B().Arbitrary(args...).Build()).ToAny()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(said)
	}
	ctx, leave := context.WithCancel(t.Context())
	if hints, err := contend.Watch(ctx, d, ask("k")); err != nil || hints == nil {
		t.Fatal("no hints: ", err)
	}
	listens := func() bool { return strings.Contains(do("CLIENT", "LIST", "TYPE", "pubsub"), "id=") }
	if !listens() {
		t.Error("no connection listens")
	}
	leave()
	do("SCRIPT", "FLUSH")
	if _, err := contend.Try(t.Context(), d, ask("k")); err != nil {
		t.Error(err)
	}
	do("LPUSH", "lock:list", "x")
	if _, err := contend.Try(t.Context(), d, ask("list")); !errors.As(err, new(*redisdriver.TypeError)) {
		t.Errorf("of a list it says %v", err)
	}
	_ = d.Close()
	for listens() {
		time.Sleep(time.Millisecond)
	}

	do("ACL", "SETUSER", "bob", "on", "nopass", "+@all", "~*", "&*", "-subscribe", "-script|load")
	o := at(server)
	o.Username, o.Password = "bob", "x"
	bob := New(open(t, o), nil)
	if hints, err := contend.Watch(t.Context(), bob, ask("k")); hints != nil || err != nil {
		t.Errorf("without the right to subscribe there are hints, or %v", err)
	}
	do("ACL", "SETUSER", "bob", "-eval", "-evalsha")
	_, err := contend.Try(t.Context(), bob, ask("k2"))
	is(t, bob, err, driver.ClassDenied)
	_ = bob.Close()

	waits, _ := over(t, server.Addr(), &redisdriver.Options{Replicas: 1})
	if _, err = contend.Try(t.Context(), waits, ask("r")); !errors.As(err, new(*redisdriver.ReplicasError)) {
		t.Errorf("without replicas it says %v", err)
	}
}

// scripted is a server that answers as a function of its port says, and how often it was sent which command.
func scripted(t *testing.T, answer func(command string, port int) string) (addr *net.TCPAddr, sent func(command string) int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var mu sync.Mutex
	got := map[string]int{}
	serve := func(c net.Conn) {
		for r := bufio.NewReader(c); ; {
			var args, size int
			var command string
			if _, err := fmt.Fscanf(r, "*%d\r\n$%d\r\n%s\r\n", &args, &size, &command); err != nil {
				return
			}
			for range 2 * (args - 1) {
				_, _ = r.ReadString('\n')
			}
			command = strings.ToUpper(command)
			mu.Lock()
			got[command]++
			mu.Unlock()
			_, _ = c.Write([]byte(answer(command, l.Addr().(*net.TCPAddr).Port)))
		}
	}
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go serve(c)
		}
	}()
	return l.Addr().(*net.TCPAddr), func(command string) int {
		mu.Lock()
		defer mu.Unlock()
		return got[command]
	}
}

// What replicas are to confirm goes along with no redirection: WAIT would be answered by the old master.
func TestNoRedirectionBesideWait(t *testing.T) {
	for _, how := range []string{"MOVED", "ASK"} {
		other, sent := scripted(t, func(string, int) string { return "+OK\r\n" })
		addr, _ := scripted(t, func(command string, port int) string {
			switch command {
			case "HELLO":
				return "*2\r\n$5\r\nproto\r\n:2\r\n"
			case "CLUSTER":
				return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$1\r\na\r\n", port)
			case "EVALSHA":
				return fmt.Sprintf("-%s 1 %v\r\n", how, other)
			case "WAIT":
				return ":1\r\n"
			}
			return "+OK\r\n"
		})
		c := wrap(open(t, rueidis.ClientOption{InitAddress: []string{addr.String()}, AlwaysRESP2: true, DisableCache: true}))
		cmds := []wire.Command{wire.Plain("evalsha", "x", 1, "k"), wire.Plain("wait", 1, int64(1000))}
		_ = c.Run(t.Context(), cmds)
		if !wire.Says(cmds[0].Err, how) || sent("EVALSHA") > 0 {
			t.Errorf("%s: %v, %v, and the other server was sent %d", how, cmds[0].Reply, cmds[0].Err, sent("EVALSHA"))
		}
	}
}

// However often it is tried, a subscription that the program's blocking pool has no connection for costs a bounded number of goroutines.
func TestPoolIsExhausted(t *testing.T) {
	o := at(testserver.Redis(t))
	o.ForceSingleClient, o.BlockingPoolSize = true, 1
	c := wrap(open(t, o))
	mine, giveBack := c.Dedicate()
	if err := mine.Do(t.Context(), mine.B().Ping().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, wire.MaxBoxes+1)
	for range cap(got) {
		s := c.Subscription(t.Context())
		defer s.Close()
		if err := s.Send(t.Context(), "subscribe", "a"); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := s.Receive(t.Context(), time.Minute)
			got <- err
		}()
	}
	if err := <-got; !errors.Is(err, wire.ErrPoolTimeout) {
		t.Errorf("one more than may wait says %v", err)
	}
	giveBack()
}
