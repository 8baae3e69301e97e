// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"io"
	"os"
	"strconv"
	"syscall"

	"github.com/hasplock/hasp/cmd/hasp/internal/starter"
	"github.com/hasplock/hasp/internal/clock"
	"golang.org/x/sys/unix"
)

// Between the last look at a lease and the first instruction of a command this
// process can be stopped for longer than the lease lasts. So what is forked is
// this program once more, which looks at the clock itself and then becomes the
// command: the same process, with all that it was given.

var self = "/proc/self/exe" // another program in a test

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
	answer := os.NewFile(uintptr(ends[0]), "answer of the starter")
	// It keeps its number, as descriptors that we were started with keep theirs.
	_, err = unix.FcntlInt(uintptr(ends[1]), unix.F_SETFD, 0)
	if err == nil {
		pid, err = syscall.ForkExec(self, starter.Argv(ends[1], now, left, s.Path, s.Argv), attr)
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

// failure reads why the command did not begin.
func failure(answer io.Reader) error {
	text, _ := io.ReadAll(answer) // what was read is what was written
	switch n, err := strconv.Atoi(string(text)); {
	case string(text) == starter.Begins:
		return nil
	case string(text) == starter.Late:
		return ErrLate
	case err != nil:
		return ErrNotBegun
	default:
		return syscall.Errno(n)
	}
}
