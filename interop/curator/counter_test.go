// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package curator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/zkdriver"
)

// childEnv has the test binary, run again, be one of the processes that count. Its arguments are those of counts.
const childEnv = "HASP_CURATOR_COUNTS"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*soon)
	defer cancel()
	if err := counts(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// The locks of hasp that a program of Java sees as one of its kinds.
var ways = map[string]struct {
	layout zkdriver.Layout
	lock   func(*hasp.Client) hasp.Locker
}{
	"mutex":     {zkdriver.Mutex, func(c *hasp.Client) hasp.Locker { return c.Mutex("n", nil) }},
	"write":     {zkdriver.ReadWrite, func(c *hasp.Client) hasp.Locker { return c.Mutex("n", nil) }},
	"sem:1":     {zkdriver.Semaphore, func(c *hasp.Client) hasp.Locker { return c.Semaphore("n", 1, nil) }},
	"sem:1 all": {zkdriver.Semaphore, func(c *hasp.Client) hasp.Locker { return c.Mutex("n", nil) }},
}

// counts adds 1 to the number in a file some times, each under the lock: once it is told to begin, and then it says "counted".
func counts(ctx context.Context, addr, way, file, times string) error {
	n, err := strconv.Atoi(times)
	if err != nil {
		return err
	}
	w := ways[way]
	conn := zkdriver.Connect([]string{addr}, nil)
	defer conn.Close()
	c, err := hasp.New(zkdriver.New(conn, &zkdriver.Options{Layout: w.layout}), nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Operator().Inspect(ctx, "n"); err != nil { // it is connected
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	m := w.lock(c)
	for range n {
		if err := add(ctx, m, file); err != nil {
			return err
		}
	}
	fmt.Println("counted")
	return nil
}

// add adds 1 to the number in a file under a lock.
func add(ctx context.Context, m hasp.Locker, file string) error {
	l, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	now, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(file, []byte(strconv.Itoa(now+1)), 0o600), l.Release())
}

// counter is a process that counts.
type counter struct {
	testing.TB
	in    io.Writer
	lines chan string
}

func startCounter(t testing.TB, args ...string) *counter {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), childEnv+"=1")
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
	c := &counter{TB: t, in: in, lines: make(chan string, 10)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(c.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-read
		_ = cmd.Wait()
	})
	return c
}

func (c *counter) says(want string, limit time.Duration) {
	c.Helper()
	select {
	case got := <-c.lines:
		if got != want {
			c.Fatalf("a process of hasp says %q, want %q", got, want)
		}
	case <-time.After(limit):
		c.Fatalf("a process of hasp does not say %q", want)
	}
}

// Threads of Java and processes of hasp add to one number in a file, which they read and write: the sum is exact.
func TestCounter(t *testing.T) {
	const each = 50
	for name, mine := range map[string][]string{
		"mutex": {"mutex", "mutex", "mutex", "mutex"},
		"write": {"write", "write", "write", "write"},
		"sem:1": {"sem:1", "sem:1 all", "sem:1", "sem:1 all"},
	} {
		t.Run(strings.ReplaceAll(name, ":", ""), func(t *testing.T) {
			addr := testserver.ZooKeeper(t).Addr()
			j := peer(t, addr)
			file := filepath.Join(t.TempDir(), "number")
			if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
				t.Fatal(err)
			}
			var all []*counter
			for _, way := range mine {
				all = append(all, startCounter(t, addr, way, file, strconv.Itoa(each)))
			}
			for _, c := range all {
				c.says("ready", soon)
			}
			for i, c := range all {
				j.order(strconv.Itoa(i), "count %s /hasp/n %s %d", name, file, each)
				if _, err := io.WriteString(c.in, "begin\n"); err != nil {
					t.Fatal(err)
				}
			}
			for i, c := range all {
				c.says("counted", 3*soon)
				j.answer(strconv.Itoa(i), "counted")
			}
			want := strconv.Itoa(2 * len(all) * each)
			if got, err := os.ReadFile(file); string(got) != want {
				t.Errorf("the number is %s, want %s: %v", got, want, err)
			}
		})
	}
}
