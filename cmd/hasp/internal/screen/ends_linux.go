// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction has room for the kernel's struct sigaction of every architecture. Its zero value is SIG_DFL.
type sigaction [8]uint64

// kernelEnds has the kernel end this process at such a signal, until restore. Go's own handler would do it in several
// steps. A shell sends TERM and CONT together: if the process stops again between those steps, it never ends.
func kernelEnds(ends []os.Signal) (restore func()) {
	old := make(map[os.Signal]*sigaction, len(ends))
	for _, sig := range ends {
		var was sigaction
		if setAction(sig, &sigaction{}, &was) {
			old[sig] = &was
		}
	}
	return func() {
		for sig, was := range old {
			setAction(sig, was, &sigaction{})
		}
	}
}

func setAction(sig os.Signal, action, was *sigaction) bool {
	n, _ := sig.(syscall.Signal)
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(action)), uintptr(unsafe.Pointer(was)), 8, 0, 0)
	return errno == 0
}

// drain waits until a terminal has shown all that was written.
func drain(fd int) error { return unix.IoctlSetInt(fd, unix.TCSBRK, 1) }
