// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package late

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/fence"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

var rounds = flag.Int("rounds", 2*keys, "how often a holder wakes up late, for each storage")

const (
	keys = 50 // how many are held by the process that is stopped
	ttl  = 500 * time.Millisecond

	// sleeperEnv carries "KIND STORAGE REDIS" to the process that will be stopped.
	sleeperEnv = "HASP_LATE_SLEEPER"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	if job := os.Getenv(sleeperEnv); job != "" {
		if err := sleeper(job); err != nil {
			fmt.Fprintln(os.Stderr, "the holder:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Rule: a holder that wakes up after its lease ended, and writes, changes nothing that a later
// holder wrote, if a guard compares the fences; and without one it does.
func TestWakesUpLate(t *testing.T) {
	locks := testserver.Redis(t).Addr()
	for kind, place := range storages {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			at := place(t)
			p := start(t, kind, at, locks)
			s, err := open(kind, at)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			c := client(t, locks)
			for n := 0; n < *rounds; n += keys {
				p.round(t, s, c, kind)
			}
			t.Logf("%s: %d rounds: with the guard %d late writes, without it %d", kind, p.rounds, p.guarded, p.plain)
			if p.guarded != 0 || p.plain == 0 || p.rounds < *rounds {
				t.Errorf("of %d late writes the guard let in %d; without it %d changed something", p.rounds, p.guarded, p.plain)
			}
		})
	}
}

// process is the one that is stopped.
type process struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner

	rounds, guarded, plain int
}

func start(t *testing.T, kind, at, locks string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", sleeperEnv, kind, at, locks))
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
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &process{cmd: cmd, in: in, out: bufio.NewScanner(out)}
}

// ask sends a line, and returns the words of the answer.
func (p *process) ask(t *testing.T, what string) []string {
	t.Helper()
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		t.Fatal(err)
	}
	return p.answer(t)
}

func (p *process) answer(t *testing.T) []string {
	t.Helper()
	if !p.out.Scan() {
		t.Fatalf("the holder ended: %v", p.out.Err())
	}
	return strings.Fields(p.out.Text())
}

// round has the process hold all keys, and stops it; writes what they guard as their next holder; and has the
// process go on and write.
func (p *process) round(t *testing.T, s storage, c *hasp.Client, kind string) {
	t.Helper()
	p.ask(t, "lock")
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	fences := each(t, func(i int) (string, error) {
		lease, err := c.Mutex(name(kind, i), &hasp.LockOptions{TTL: 30 * time.Second}).Lock(t.Context())
		if err != nil {
			return "", err
		}
		value := fmt.Sprint("later ", lease.Fence())
		err = errors.Join(s.write(t.Context(), true, name("guarded", i), value, lease.Fence()), s.write(t.Context(), false, name("plain", i), value, lease.Fence()))
		return value, errors.Join(err, lease.Release())
	})
	if _, err := fmt.Fprintln(p.in, "write"); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	refused := p.answer(t)
	for i, want := range fences {
		guarded, err := s.read(t.Context(), name("guarded", i))
		plain, e := s.read(t.Context(), name("plain", i))
		if err := errors.Join(err, e); err != nil {
			t.Fatal(err)
		}
		p.rounds++
		if guarded != want || refused[i] != "refused" {
			p.guarded++
		}
		if plain != want {
			p.plain++
		}
	}
}

func name(kind string, i int) string { return fmt.Sprintf("%s-%d", kind, i) }

// each does something for each key at once.
func each(t testing.TB, do func(i int) (string, error)) []string {
	t.Helper()
	got, errs := all(do)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return got
}

func all(do func(i int) (string, error)) ([]string, []error) {
	got, errs := make([]string, keys), make([]error, keys)
	var wait sync.WaitGroup
	for i := range keys {
		wait.Go(func() { got[i], errs[i] = do(i) })
	}
	wait.Wait()
	return got, errs
}

func client(t testing.TB, addr string) *hasp.Client {
	c, done, err := connect(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return c
}

func connect(addr string) (*hasp.Client, func(), error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: keys, ReadTimeout: 30 * time.Second})
	c, err := hasp.New(redisdriver.New(rdb, nil), nil)
	return c, func() { _ = c.Close(); _ = rdb.Close() }, err
}

// sleeper is the process that is stopped. It locks all keys when it is told to, and says so; and writes,
// when it is told to, as if it had looked at its leases before it was stopped.
func sleeper(job string) error {
	var kind, at, addr string
	if _, err := fmt.Sscan(job, &kind, &at, &addr); err != nil {
		return err
	}
	s, err := open(kind, at)
	if err != nil {
		return err
	}
	defer s.Close()
	c, done, err := connect(addr)
	if err != nil {
		return err
	}
	defer done()
	leases := make([]*hasp.Lease, keys)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words, errs := all(func(i int) (_ string, err error) {
			if in.Text() == "lock" {
				leases[i], err = c.Mutex(name(kind, i), &hasp.LockOptions{TTL: ttl}).Lock(context.Background())
				return "held", err
			}
			defer leases[i].Release()
			n := leases[i].Fence()
			err = s.write(context.Background(), true, name("guarded", i), fmt.Sprint("late ", n), n)
			word := "written"
			if errors.Is(err, fence.ErrStale) {
				word, err = "refused", nil
			}
			return word, errors.Join(err, s.write(context.Background(), false, name("plain", i), fmt.Sprint("late ", n), n))
		})
		if err := errors.Join(errs...); err != nil {
			return err
		}
		fmt.Println(strings.Join(words, " "))
	}
	return nil
}
