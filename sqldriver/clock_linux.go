// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

const clockBoottime = 7 // CLOCK_BOOTTIME counts suspended time

// system reads the clock. A process that cannot learn which boot it is gets an
// error, not a guess: another process of the same machine that can would take
// its leases for those of an earlier boot.
func system() (reading, error) {
	id, err := identity()
	if err != nil {
		return reading{}, err
	}
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return reading{}, fmt.Errorf("cannot read the clock that counts since boot: %w", errno)
	}
	return reading{boot: id.boot, Now: rules.Now{At: time.Duration(ts.Nano()) - id.shift}}, nil
}

type bootIdentity struct {
	boot  string
	shift time.Duration // what a time namespace adds to the clock
}

var known atomic.Pointer[bootIdentity]

// identity is what stays the same for the life of the process. An error does not: the process may have too many open files.
func identity() (bootIdentity, error) {
	if id := known.Load(); id != nil {
		return *id, nil
	}
	id, err := readIdentity()
	if err == nil {
		known.Store(&id)
	}
	return id, err
}

func readIdentity() (bootIdentity, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return bootIdentity{}, fmt.Errorf("cannot tell which boot of the machine this is%s: %w", unmounted(err), err)
	}
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without time namespaces
		return bootIdentity{}, fmt.Errorf("cannot tell whether a time namespace shifts the clock: %w", err)
	}
	shift, err := offset(string(text))
	return bootIdentity{boot: strings.TrimSpace(string(id)), shift: shift}, err
}

// unmounted asks for /proc where it is missing; other limits say what they are.
func unmounted(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return " (is /proc mounted?)"
	}
	return ""
}
