// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"os"
	"syscall"
)

// diesWithParent has the kernel kill the server when the thread that started it
// ends, which is no later than the test binary does.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// stop returns once the whole process stands still: SIGSTOP alone returns
// before. The wait leaves the state as it is (WNOWAIT), so stopping twice works.
func stop(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	const byPID = 1 // P_PID of waitid(2)
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(p.Pid), 0, syscall.WSTOPPED|syscall.WNOWAIT, 0, 0)
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return os.NewSyscallError("waitid", errno)
		}
	}
}

func cont(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
