// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package verify

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// holderEnv carries "addr key ttl" to a process that holds a key.
const holderEnv = "HASP_VERIFY_HOLDER"

// HolderMain turns this process into a holder when it was started as one, and
// does not return then. Programs that call StartHolder call it first.
func HolderMain() {
	job := os.Getenv(holderEnv)
	if job == "" {
		return
	}
	if err := hold(job); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hold acquires, prints the fence, and answers each line on its input with the state of
// the lease, until the input ends.
func hold(job string) error {
	var addr, key, ttl string
	if _, err := fmt.Sscan(job, &addr, &key, &ttl); err != nil {
		return err
	}
	d, err := time.ParseDuration(ttl)
	if err != nil {
		return err
	}
	locks, err := hasp.New(redisdriver.New(redis.NewClient(&redis.Options{Addr: addr}), nil), nil)
	if err != nil {
		return err
	}
	lease, err := locks.Mutex(key, &hasp.LockOptions{TTL: d}).Lock(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("held", lease.Fence())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch err := lease.Err(); {
		case err == nil:
			fmt.Println("held", lease.Fence())
		case errors.Is(err, hasp.ErrLost):
			fmt.Println("lost", err)
		default:
			fmt.Println("error", err)
		}
	}
	return nil
}

// Holder is a process of its own that holds a key.
type Holder struct {
	Fence uint64
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
}

// StartHolder starts this program again as a holder of a key without
// spaces, and returns once it holds the key. It is killed when the test ends.
func StartHolder(t testing.TB, addr, key string, ttl time.Duration) (*Holder, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", holderEnv, addr, key, ttl))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h := &Holder{cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(h.Kill)
	word, rest, err := h.answer()
	if err != nil || word != "held" {
		return nil, fmt.Errorf("the holder says %q %q: %w", word, rest, err)
	}
	_, err = fmt.Sscan(rest, &h.Fence)
	return h, err
}

func (h *Holder) answer() (word, rest string, err error) {
	line, err := h.out.ReadString('\n')
	word, rest, _ = strings.Cut(strings.TrimSpace(line), " ")
	return word, rest, err
}

// Kill ends the process with SIGKILL and returns once it is gone. Killing it
// twice is harmless.
func (h *Holder) Kill() {
	_ = h.cmd.Process.Kill() // fails only when it is gone
	_ = h.cmd.Wait()
}

// Freeze stops the process, which may continue to run for a moment.
func (h *Holder) Freeze() error { return h.cmd.Process.Signal(syscall.SIGSTOP) }

// AskOnWaking sends a stopped process the question for the state of its lease, resumes
// it, and returns the answer: "held" or "lost", and the error's text.
func (h *Holder) AskOnWaking() (word, rest string, err error) {
	if _, err := io.WriteString(h.in, "?\n"); err != nil {
		return "", "", err
	}
	if err := h.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return "", "", err
	}
	return h.answer()
}

// Stopped stops a holder process for longer than its TTL, until another client has the
// key, and resumes it: its first check of the lease must find the loss. Lost stays zero,
// because the contexts of a stopped process cannot end.
func Stopped(t testing.TB, addr, key string, ttl time.Duration) (Loss, error) {
	h, err := StartHolder(t, addr, key, ttl)
	if err != nil {
		return Loss{}, err
	}
	defer h.Kill()
	if err := h.Freeze(); err != nil {
		return Loss{}, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*ttl+30*time.Second)
	defer cancel()
	waiter := Locks(t, addr, nil)
	next, err := waiter.Mutex(key, &hasp.LockOptions{TTL: ttl}).Lock(ctx)
	if err != nil {
		return Loss{}, err
	}
	loss := Loss{Got: time.Now(), Before: h.Fence, After: next.Fence()}
	word, rest, err := h.AskOnWaking()
	if err != nil || word != "lost" {
		return loss, fmt.Errorf("the first answer of the lease after the stop: %q %q, %w; want lost", word, rest, err)
	}
	if loss.After <= loss.Before {
		return loss, fmt.Errorf("fence %d after %d", loss.After, loss.Before)
	}
	return loss, errors.Join(next.Extend(ctx, ttl), next.Release())
}
