// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

const childEnv = "HASP_SQLDRIVER_CHILD"

// parts are what a child process may do with the file at args[0]. Each
// prints a line when it got somewhere.
var parts = map[string]func(db *sql.DB, args []string) error{
	"hold":  holdPart,
	"first": firstPart,
	"once":  oncePart,
	"write": writePart,
	"work":  workPart,
	"bid":   bidPart,
	"mix":   mixPart,
}

func child(part string, args []string) int {
	db, err := sql.Open("sqlite3", patientDSN(args[0]))
	if err == nil {
		err = parts[part](db, args[1:])
	}
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

// toBegin says that the process is ready, waits until it is to begin, and returns how many rounds it has.
func toBegin(rounds string) (int, error) {
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return 0, err
	}
	return strconv.Atoi(rounds)
}

// holdPart locks a key for a TTL, and says when the lease is lost. It does not
// renew, so that whoever stops it does so outside of a transaction.
func holdPart(db *sql.DB, args []string) error {
	locks, err := hasp.New(waiting(db), nil)
	if err != nil {
		return err
	}
	ttl, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	lease, err := locks.Mutex(args[0], &hasp.LockOptions{TTL: ttl, NoRenew: true}).Lock(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("held", lease.Fence())
	<-lease.Done()
	fmt.Println("lost", lease.Err())
	return nil
}

// firstPart waits for a line on its standard input and then uses the file.
func firstPart(db *sql.DB, args []string) error {
	if _, err := toBegin("1"); err != nil {
		return err
	}
	d := NewSQLite(db)
	began := time.Now()
	res, err := contend.Try(context.Background(), d, request(args[0]))
	for d.Classify(err) == driver.ClassUnreachable && time.Since(began) >= fileWait { // a busy machine: it did wait
		began = time.Now()
		res, err = contend.Try(context.Background(), d, request(args[0]))
	}
	if err != nil {
		return err
	}
	fmt.Println("granted", res.Granted, res.Fence)
	return db.Close()
}

// oncePart tries to acquire a key and prints the class of the error.
func oncePart(db *sql.DB, args []string) error {
	d := NewSQLite(db)
	res, err := contend.Try(context.Background(), d, request(args[0]))
	fmt.Println("answer", res.Granted, int(d.Classify(err)), err)
	return nil
}

// writePart stays in the middle of a transaction that has changed something.
func writePart(db *sql.DB, args []string) error {
	c, err := db.Conn(context.Background())
	if err != nil {
		return err
	}
	if _, err := c.ExecContext(context.Background(), "BEGIN IMMEDIATE; "+args[0]); err != nil {
		return err
	}
	fmt.Println("writing")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// workPart locks a key again and again, and each time appends a line to a file
// by reading it and writing it anew: its number and the fence.
func workPart(db *sql.DB, args []string) error {
	locks, err := hasp.New(waiting(db), nil)
	if err != nil {
		return err
	}
	rounds, err := toBegin(args[2])
	if err != nil {
		return err
	}
	var worst time.Duration
	for range rounds {
		start := time.Now()
		err := locks.Mutex(args[0], nil).Do(context.Background(), func(_ context.Context, l *hasp.Lease) error {
			worst = max(worst, time.Since(start))
			return appendLine(args[1], l.Fence())
		})
		if err != nil {
			return err
		}
	}
	fmt.Println("worst", worst)
	if err := locks.Close(); err != nil {
		return err
	}
	return db.Close()
}

// bidPart does as workPart, with fences that it proposes.
func bidPart(db *sql.DB, args []string) error {
	rounds, err := toBegin(args[2])
	if err != nil {
		return err
	}
	d := waiting(db)
	var node string
	for round := range rounds {
		r := queued(proposal(args[0], uint64(time.Now().UnixMicro())))
		res, err := contend.Try(context.Background(), d, r)
		for ; err == nil && !res.Granted; res, err = contend.Try(context.Background(), d, r) {
			r.Fence = max(res.Fence+1, uint64(time.Now().UnixMicro()))
			time.Sleep(res.RetryIn)
		}
		if err != nil {
			return err
		}
		if r.Raise = round%2 == 0; r.Raise {
			r.Fence++
			if res, err = contend.Try(context.Background(), d, r); err != nil || !res.Granted {
				return fmt.Errorf("raised to %d: %+v, %w", r.Fence, res, err)
			}
		}
		node = res.Run
		if err := appendLine(args[1], res.Fence); err != nil {
			return err
		}
		if err := contend.Release(context.Background(), d, r); err != nil {
			return err
		}
	}
	fmt.Println("node", node)
	return errors.Join(d.Close(), db.Close())
}

// appendLine reads a file and writes it anew.
func appendLine(path string, fence uint64) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text = fmt.Appendf(text, "%d %d\n", strings.Count(string(text), "\n"), fence)
	return os.WriteFile(path, text, 0o600)
}

// process is a child under way.
type process struct {
	*exec.Cmd
	t     testing.TB
	name  string
	stdin io.WriteCloser
	lines chan string
}

// start runs a part in a child process, which ends with the test.
func start(t testing.TB, part string, args ...string) *process {
	t.Helper()
	return startAs(t, part, exec.Command(os.Args[0], args...))
}

func startAs(t testing.TB, part string, cmd *exec.Cmd) *process {
	t.Helper()
	cmd.Env = append(os.Environ(), childEnv+"="+part)
	cmd.Stderr = os.Stderr
	p := &process{Cmd: cmd, t: t, name: part, lines: make(chan string, 16)}
	var err error
	p.stdin, err = cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return p
}

// says waits for a line that begins with word, and returns the rest of it.
func (p *process) says(word string) string {
	p.t.Helper()
	limit := time.After(5 * time.Minute)
	for {
		select {
		case line, ok := <-p.lines:
			if rest, found := strings.CutPrefix(line, word); found {
				return strings.TrimSpace(rest)
			}
			if !ok || strings.HasPrefix(line, "error:") {
				p.t.Fatalf("the process %q did not say %q: %s", p.name, word, line)
			}
		case <-limit:
			p.t.Fatalf("the process %q does not say %q", p.name, word)
		}
	}
}

// ready starts processes that wait until they are to begin.
func ready(t testing.TB, n int, start func(i int) *process) (all []*process) {
	t.Helper()
	for i := range n {
		all = append(all, start(i))
	}
	for _, p := range all {
		p.says("ready")
	}
	return all
}

func beginAll(all []*process) {
	for _, p := range all {
		p.begin()
	}
}

// begin lets a process that is ready continue.
func (p *process) begin() {
	p.t.Helper()
	_, err := io.WriteString(p.stdin, "\n")
	must(p.t, err)
}
