// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// now reads a clock that all processes of the machine share. It moves in steps
// of some milliseconds: what overlaps for less is not seen, and nothing is seen
// that does not overlap.
func now() Mono { return Mono(windows.DurationSinceBoot()) }

// attributes are those of a worker: Ctrl-C at the console is not for it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// canStop says whether processes can be stopped here.
const canStop = false

func stop(*os.Process) error { return errors.ErrUnsupported }

func goOn(*os.Process) error { return errors.ErrUnsupported }
