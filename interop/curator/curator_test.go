// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package curator

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/zkdriver"
)

// soon bounds what must happen, far above what it takes.
const soon = time.Minute

// java is a running Peer.
type java struct {
	testing.TB
	in io.Writer

	mu      sync.Mutex
	answers map[string]chan string
}

// peer starts a Peer against a server.
func peer(t testing.TB, addr string) *java {
	t.Helper()
	classes := filepath.Join("target", "dependency")
	testserver.Require(t, "curator")
	testserver.RequireFile(t, "curator", filepath.Join("target", "Peer.class"))
	cmd := exec.CommandContext(t.Context(), "java", "-Xmx256m", "-cp", "target:"+filepath.Join(classes, "*"), "Peer", addr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j := &java{TB: t, in: in, answers: make(map[string]chan string)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			thread, answer, _ := strings.Cut(lines.Text(), " ")
			j.thread(thread) <- answer
		}
	}()
	t.Cleanup(func() { in.Close(); <-read; _ = cmd.Wait() })
	j.answer("-", "ready")
	return j
}

func (j *java) thread(name string) chan string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.answers[name] == nil {
		j.answers[name] = make(chan string, 100)
	}
	return j.answers[name]
}

// order has a thread do something.
func (j *java) order(thread, format string, args ...any) {
	j.Helper()
	if _, err := fmt.Fprintf(j.in, thread+" "+format+"\n", args...); err != nil {
		j.Fatal(err)
	}
}

// answer waits for the answer to a thread's next order.
func (j *java) answer(thread, want string) {
	j.Helper()
	select {
	case got := <-j.thread(thread):
		if got != want {
			j.Fatalf("Java's thread %s says %q, want %q", thread, got, want)
		}
	case <-time.After(soon):
		j.Fatalf("Java's thread %s does not answer", thread)
	}
}

// quiet fails when a thread has answered.
func (j *java) quiet(thread string) {
	j.Helper()
	select {
	case got := <-j.thread(thread):
		j.Fatalf("Java's thread %s says %q, but has to wait", thread, got)
	default:
	}
}

// does is an order and its answer.
func (j *java) does(thread, want, format string, args ...any) {
	j.Helper()
	j.order(thread, format, args...)
	j.answer(thread, want)
}

// client is hasp over the same server.
func client(t testing.TB, addr string, o *zkdriver.Options) *hasp.Client {
	t.Helper()
	conn := zkdriver.Connect([]string{addr}, nil)
	c, err := hasp.New(zkdriver.New(conn, o), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); _ = conn.Close() })
	return c
}

// must returns what has the lease of a call that must succeed.
func must(t testing.TB) func(*hasp.Lease, error) *hasp.Lease {
	return func(l *hasp.Lease, err error) *hasp.Lease {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

func held(t testing.TB, l *hasp.Lease, err error) {
	t.Helper()
	if !errors.Is(err, hasp.ErrHeld) {
		t.Fatalf("%v, %v, want ErrHeld", l, err)
	}
}

func release(t testing.TB, ls ...*hasp.Lease) {
	t.Helper()
	for _, l := range ls {
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

// A mutex of Java's and one of hasp's exclude each other, and each waits for the other in one queue.
func TestMutex(t *testing.T) {
	addr := testserver.ZooKeeper(t).Addr()
	j, c := peer(t, addr), client(t, addr, &zkdriver.Options{Root: "/locks", Layout: zkdriver.Mutex})
	m := c.Mutex("orders", nil)
	l := must(t)(m.Lock(t.Context()))
	j.does("a", "timeout", "lock mutex /locks/orders 300")
	j.order("a", "lock mutex /locks/orders 60000")
	waiting(t, c, "orders", 1)
	release(t, l)
	j.answer("a", "locked")
	l, err := m.TryLock(t.Context())
	held(t, l, err)
	info, err := c.Operator().Inspect(t.Context(), "orders")
	if err != nil || !info.Held || !info.Holder.Foreign {
		t.Errorf("Java holds it: %+v, %v", info, err)
	}
	j.does("a", "unlocked", "unlock")
	release(t, must(t)(m.TryLock(t.Context())))
}

// Readers of both hold a lock together, and a writer of either waits for all before it.
func TestReadWriteLock(t *testing.T) {
	addr := testserver.ZooKeeper(t).Addr()
	j, c := peer(t, addr), client(t, addr, &zkdriver.Options{Root: "/locks"})
	m := c.RWMutex("orders", nil)
	r := must(t)(m.RLock(t.Context()))
	j.does("a", "locked", "lock read /locks/orders 1000")
	j.order("w", "lock write /locks/orders 60000")
	waiting(t, c, "orders", 1)
	l, err := m.TryRLock(t.Context())
	held(t, l, err)
	j.does("b", "timeout", "lock read /locks/orders 200")
	release(t, r)
	j.quiet("w")
	j.does("a", "unlocked", "unlock")
	j.answer("w", "locked")
	l, err = m.TryRLock(t.Context())
	held(t, l, err)
	j.does("w", "unlocked", "unlock")
	w := must(t)(m.Lock(t.Context()))
	j.does("a", "timeout", "lock read /locks/orders 200")
	j.order("a", "lock read /locks/orders 60000")
	waiting(t, c, "orders", 1)
	j.order("w", "lock write /locks/orders 60000")
	waiting(t, c, "orders", 2)
	if err := w.Downgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	j.answer("a", "locked")
	j.quiet("w")
	release(t, w)
	j.does("a", "unlocked", "unlock")
	j.answer("w", "locked")
	// Java's own downgrade: it has both nodes for a while.
	j.does("w", "locked", "lock read /locks/orders 1000")
	j.does("w", "unlocked", "unlock")
	j.does("w", "unlocked", "unlock")
	release(t, must(t)(m.TryLock(t.Context())))
}

// Leases of both count together, and who has all of them keeps the others out.
func TestSemaphore(t *testing.T) {
	const n = 3
	addr := testserver.ZooKeeper(t).Addr()
	j, c := peer(t, addr), client(t, addr, &zkdriver.Options{Root: "/locks", Layout: zkdriver.Semaphore})
	sem := c.Semaphore("pool", n, nil)
	a, b := must(t)(sem.TryLock(t.Context())), must(t)(sem.TryLock(t.Context()))
	if a.Slot() != 0 || b.Slot() != 1 {
		t.Errorf("slots %d and %d", a.Slot(), b.Slot())
	}
	j.does("a", "locked", "lock sem:3 /locks/pool 1000")
	j.does("b", "timeout", "lock sem:3 /locks/pool 300")
	l, err := sem.TryLock(t.Context())
	held(t, l, err)
	j.order("b", "lock sem:3 /locks/pool 60000") // it waits, and has its node of a lease already
	holds(t, c, "pool", n+1)
	l, err = sem.TryLock(t.Context())
	held(t, l, err)
	release(t, a)
	j.answer("b", "locked")
	got := make(chan *hasp.Lease)
	go func() {
		l, err := sem.Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	waiting(t, c, "pool", 1)
	j.does("c", "timeout", "lock sem:3 /locks/pool 300") // behind ours
	j.does("a", "unlocked", "unlock")
	l = <-got
	release(t, l, b)
	j.does("b", "unlocked", "unlock")
	all := must(t)(c.Mutex("pool", nil).Lock(t.Context()))
	j.does("c", "timeout", "lock sem:3 /locks/pool 300")
	release(t, all)
	j.does("c", "locked", "lock sem:3 /locks/pool 60000")
	j.does("c", "unlocked", "unlock")
}

// holds waits until so many hold a key.
func holds(t testing.TB, c *hasp.Client, key string, n int) {
	t.Helper()
	until(t, c, key, func(info hasp.Info) bool { return info.Leases == n })
}

// waiting waits until so many wait for a key.
func waiting(t testing.TB, c *hasp.Client, key string, n int) {
	t.Helper()
	until(t, c, key, func(info hasp.Info) bool { return info.Waiters == n })
}

func until(t testing.TB, c *hasp.Client, key string, ok func(hasp.Info) bool) {
	t.Helper()
	for limit := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) { // no event says so
		info, err := c.Operator().Inspect(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if ok(info) {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("it is %+v", info)
		}
	}
}
