// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

var must = expect.Need

// soon bounds what must happen, far above what it takes.
const soon = time.Minute

// world is a server and what a test does with it, below a root of its own.
type world struct {
	testing.TB
	ctx    context.Context
	root   string
	server *testserver.Server
	admin  *Conn
}

var (
	program *testserver.Program // of all tests
	once    sync.Once
	common  *testserver.Server
)

// server is one for all tests that leave it as it is.
func server(t testing.TB) *testserver.Server {
	t.Helper()
	testserver.RequireZooKeeper(t)
	once.Do(func() { common = testserver.ZooKeeper(program) })
	if common == nil {
		t.Fatal("the server did not start")
	}
	return common
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return worldOf(t, server(t))
}

func worldOf(t testing.TB, server *testserver.Server) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // for a machine under load
	t.Cleanup(cancel)
	w := &world{TB: t, ctx: ctx, root: fmt.Sprintf("/test/%d", roots.Add(1)), server: server}
	w.admin = w.dialled(w.server.Addr(), time.Hour, patiently)
	return w
}

// over is a driver over a connection.
func (w *world) over(c *Conn) *Driver { return New(c, &Options{Root: w.root}) }

func (w *world) connect(addr string, timeout time.Duration) *Conn {
	return w.dialled(addr, timeout, nil)
}

func (w *world) dialled(addr string, timeout time.Duration, dial func(context.Context, string) (net.Conn, error)) *Conn {
	c := Connect([]string{addr}, &ConnOptions{SessionTimeout: timeout, Dial: dial})
	w.Cleanup(func() { _ = c.Close() })
	return c
}

// patiently dials connections on which every silence is borne: a busy machine is silent for longer than a lease allows.
func patiently(ctx context.Context, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return patient{c}, nil
}

type patient struct{ net.Conn }

func (patient) SetReadDeadline(time.Time) error { return nil }

// stalls measures for how long the machine runs this process or the server too late.
func (w *world) stalls() func() time.Duration {
	return stall.Of(w, func() {
		if s, err := w.admin.session(w.ctx); err == nil {
			_ = s.Do(w.ctx, zk.Exists("/"))
		}
	})
}

// behind is a driver behind a bad network, and that.
func (w *world) behind(timeout time.Duration) (*Driver, *faultproxy.Proxy) {
	w.Helper()
	p := faultproxy.New(w, w.server.Addr())
	return w.over(w.connect(p.Addr(), timeout)), p
}

// driver is one with a session of its own.
func (w *world) driver() *Driver {
	return w.over(w.dialled(w.server.Addr(), time.Hour, patiently))
}

func ask(key string) contend.Owner {
	return contend.Owner{Key: key, Owner: rand.Text(), Label: "a test", TTL: time.Minute, Patience: time.Minute}
}

func queued(r contend.Owner) contend.Owner { r.Queue = true; return r }
func reader(r contend.Owner) contend.Owner { r.Mode = driver.Shared; return r }

// try asks, and asks again as hasp does: a busy machine loses connections.
func (w *world) try(d *Driver, r contend.Owner) (res driver.Result) {
	w.Helper()
	w.answered(d, func() (err error) { res, err = contend.Try(w.ctx, d, r); return err })
	return res
}

// answered does what has an outcome once the server answers.
func (w *world) answered(d *Driver, do func() error) {
	w.Helper()
	var err error
	w.eventually("an answer", func() bool { err = do(); return err == nil || d.Classify(err) != driver.ClassUnreachable })
	must(w, err)
}

func (w *world) grant(d *Driver, r contend.Owner) driver.Result {
	w.Helper()
	res := w.try(d, r)
	if !res.Granted {
		w.Fatalf("Try of %q was refused: %+v", r.Key, res)
	}
	return res
}

func (w *world) refuse(d *Driver, r contend.Owner) driver.Result {
	w.Helper()
	res := w.try(d, r)
	if res.Granted {
		w.Fatalf("Try of %q was granted: %+v", r.Key, res)
	}
	return res
}

func (w *world) release(d *Driver, r contend.Owner) {
	w.Helper()
	if err := contend.Release(w.ctx, d, r); err != nil {
		w.Fatalf("Release of %q: %v", r.Key, err)
	}
}

func (w *world) renew(d *Driver, r contend.Owner) driver.Renewal {
	w.Helper()
	var got driver.Renewal
	contend.Renew(w.ctx, d, []contend.Owner{r}, func(_ int, a driver.Renewal) { got = a })
	return got
}

// passes lets the time be over for which an owner's lease or place, or what may become of its last request, stays: its TTL, for
// which a timer runs.
func (w *world) passes(d *Driver, r contend.Owner) {
	w.Helper()
	d.c.mu.Lock()
	e := d.c.entries[d.place(r.Claim())]
	timed, left := e.timer != nil, time.Until(e.Until)
	d.c.mu.Unlock()
	if !timed || left <= 0 || left > r.TTL {
		w.Fatalf("what is asked for %v stays for %v; a timer runs: %v", r.TTL, left, timed)
	}
	d.c.note(e, func(of *recipe.Record) { of.Until = time.Now() })
}

// queue is what the store has of a key.
func (w *world) queue(key string) recipe.Queue {
	w.Helper()
	s, err := w.admin.session(w.ctx)
	must(w, err)
	dir := w.root + "/" + recipe.EncodeKey(key)
	children := zk.Children(dir, nil)
	must(w, s.Do(w.ctx, zk.Sync(dir), children))
	q, err := queueOf(recipe.Mutex.Folders(), []*zk.Call{children})
	must(w, err)
	return q
}

// eventually calls ok until it is true.
func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	for limit := time.Now().Add(soon); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			w.Fatalf("after %v: not yet: %s", soon, what)
		}
	}
}

// comes waits for an event.
func comes[T any](w *world, ch <-chan T, what string) (got T) {
	w.Helper()
	select {
	case got = <-ch:
	case <-time.After(soon):
		w.Fatalf("after %v: no %s", soon, what)
	}
	return got
}

func (w *world) hints(d *Driver, r contend.Owner) <-chan driver.Hint {
	w.Helper()
	ch, err := contend.Watch(w.ctx, d, r)
	must(w, err)
	return ch
}

// told is what a driver tells.
func told(d *Driver) <-chan driver.ID {
	ch := make(chan driver.ID, 100)
	d.Tell(func(id driver.ID, _ uint64) { ch <- id })
	return ch
}

// do carries out calls over a connection, which must succeed.
func (w *world) do(c *Conn, calls ...*zk.Call) {
	w.Helper()
	s, err := c.session(w.ctx)
	if err == nil {
		err = s.Do(w.ctx, calls...)
	}
	for _, call := range calls {
		err = errors.Join(err, call.Err)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// java makes a node as Curator does, and returns its path.
func (w *world) java(d *Driver, key, marker string) string {
	w.Helper()
	dir := d.dir(key)
	node := zk.Create(dir+"/_c_0a1b2c3d-4e5f-4678-9abc-def012345678-"+marker, []byte("10.0.0.1"), w.admin.acl, zk.EphemeralSequential)
	s, err := w.admin.session(w.ctx)
	must(w, err)
	must(w, d.make(w.ctx, s))
	w.do(w.admin, d.in(dir, node, recipe.LacksAll))
	return node.Path
}

// operations are what messages ask for.
func operations(b []byte) (ops []uint32) {
	for ; len(b) >= 12; b = b[min(len(b), 4+int(binary.BigEndian.Uint32(b))):] {
		ops = append(ops, binary.BigEndian.Uint32(b[8:]))
	}
	return ops
}

// losesReply has the next answer to a request of an operation lost: the connection is reset instead. It reports when.
func losesReply(p *faultproxy.Proxy, op byte) <-chan struct{} {
	var mu sync.Mutex
	lost := make(chan struct{})
	armed, over := false, false
	p.Hook(func(c faultproxy.Chunk) bool {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case over:
			return false
		case c.Dir == faultproxy.Up:
			armed = armed || slices.Contains(operations(c.Data), uint32(op))
			return false
		case !armed:
			return false
		}
		over = true
		close(lost)
		go p.Reset()
		return true
	})
	return lost
}

// answers reports when an answer with an error comes.
func answers(p *faultproxy.Proxy, code zk.Code) <-chan struct{} {
	var once sync.Once
	came := make(chan struct{})
	p.Hook(func(c faultproxy.Chunk) bool {
		if c.Dir == faultproxy.Up {
			return false
		}
		for b := c.Data; len(b) >= 20; b = b[min(len(b), 4+int(binary.BigEndian.Uint32(b))):] {
			if int32(binary.BigEndian.Uint32(b[16:])) == int32(code) {
				once.Do(func() { close(came) })
			}
		}
		return false
	})
	return came
}
