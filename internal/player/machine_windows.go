// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package player

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// Now reads a clock that all processes of the machine share. It moves in steps
// of some milliseconds: what overlaps for less is not seen, and nothing is seen
// that does not overlap.
func Now() Mono { return Mono(windows.DurationSinceBoot()) }

// attributes are those of a worker: Ctrl-C at the console is not for it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// CanPause says whether processes can be stopped here.
const CanPause = false

func pause(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }
