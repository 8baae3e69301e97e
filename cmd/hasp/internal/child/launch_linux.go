// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hasplock/hasp/internal/clock"
	"golang.org/x/sys/unix"
)

// Between the last look at a lease and the first instruction of a command this
// process can be stopped for longer than the lease lasts. So what is forked is
// this program once more, which looks at the clock itself and then becomes the
// command: the same process, with all that it was given.

var self = "/proc/self/exe" // another program in a test

const (
	starter = "hasp-start" // its argv[0]
	fixed   = 6            // its own arguments: starter, pipe, Wall, Boot, left, path
)

// init comes before the packages that take longer to be initialized.
func init() {
	if len(os.Args) > fixed && os.Args[0] == starter {
		become(os.Args)
	}
}

// launch makes the process that becomes the command if its time is not over by
// then. Where that cannot be made (without /proc, or where this program may not
// be executed), it makes the command at once.
func (p *process) launch(s Spec, attr *syscall.ProcAttr) (pid int, err error) {
	if s.Left == nil {
		return p.forkExec(s, attr)
	}
	now := clock.System() // before the question, which errs on the side of too late
	left := s.Left()
	if left <= 0 {
		return 0, ErrLate
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return 0, err
	}
	answer := os.NewFile(uintptr(ends[0]), "answer of "+starter)
	// It keeps its number, as descriptors that we were started with keep theirs.
	_, err = unix.FcntlInt(uintptr(ends[1]), unix.F_SETFD, 0)
	if err == nil {
		argv := append([]string{starter, strconv.Itoa(ends[1]), number(now.Wall), number(now.Boot), number(left), s.Path}, s.Argv...)
		pid, err = syscall.ForkExec(self, argv, attr)
	}
	_ = unix.Close(ends[1]) // nothing was written to it
	if err != nil {
		_ = answer.Close()
		return p.forkExec(s, attr)
	}
	go func() {
		defer answer.Close()
		p.began <- failure(answer)
	}()
	return pid, nil
}

func number(d time.Duration) string { return strconv.FormatInt(int64(d), 10) }

// The answers of the starter: that it is about to become the command, after which the
// number of an error may follow, or that it is too late for that.
const begins, tooLate = "+", "late"

// failure reads why the command did not begin.
func failure(answer io.Reader) error {
	text, _ := io.ReadAll(answer) // what was read is what was written
	switch n, err := strconv.Atoi(string(text)); {
	case string(text) == begins:
		return nil
	case string(text) == tooLate:
		return ErrLate
	case err != nil:
		return ErrNotBegun
	default:
		return syscall.Errno(n)
	}
}

// become makes this process the command, unless its time is over.
func become(args []string) {
	pipe, err := strconv.Atoi(args[1])
	var numbers [3]int64
	for i := range numbers {
		if err == nil {
			numbers[i], err = strconv.ParseInt(args[2+i], 10, 64)
		}
	}
	if err != nil || pipe < 3 {
		fmt.Fprintln(os.Stderr, "hasp:", starter, "is for hasp itself")
		os.Exit(125)
	}
	unix.CloseOnExec(pipe)
	asked := clock.Instant{Wall: time.Duration(numbers[0]), Boot: time.Duration(numbers[1])}
	now := clock.System()
	now.Mono = 0 // it counts from the start of each process
	answer := tooLate
	if now.Sub(asked) < time.Duration(numbers[2]) {
		if _, err := unix.Write(pipe, []byte(begins)); err != nil { // hasp is gone
			os.Exit(125)
		}
		err := syscall.Exec(args[fixed-1], args[fixed:], environ())
		var errno syscall.Errno
		_ = errors.As(err, &errno) // Exec returns no other
		answer = strconv.Itoa(int(errno))
	}
	_, _ = unix.Write(pipe, []byte(answer)) // whoever asked is gone, and so are we
	os.Exit(125)
}

// environ returns the environment, where what systemd said to hasp's process is said to
// the command's: descriptors that were passed, and a watchdog.
func environ() []string {
	env, parent := os.Environ(), strconv.Itoa(os.Getppid())
	for i, v := range env {
		if name, pid, _ := strings.Cut(v, "="); (name == "LISTEN_PID" || name == "WATCHDOG_PID") && pid == parent {
			env[i] = name + "=" + strconv.Itoa(os.Getpid())
		}
	}
	return env
}
