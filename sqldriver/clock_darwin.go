// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// system reads the clock as the system's own CLOCK_MONOTONIC does: the wall
// clock less the moment of the boot. A step of the wall clock moves both, so
// the moment of the boot is read before and after.
func system() (reading, error) {
	boot, err := syscall.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return reading{}, fmt.Errorf("cannot tell which boot of the machine this is: %w", err)
	}
	for {
		before, err := bootMoment()
		if err != nil {
			return reading{}, err
		}
		now := time.Now().UnixNano()
		after, err := bootMoment()
		if err != nil {
			return reading{}, err
		}
		if before == after {
			return reading{boot: boot, Now: rules.Now{At: time.Duration(now - before)}}, nil
		}
	}
}

// bootMoment returns kern.boottime, a struct timeval, in nanoseconds.
func bootMoment() (int64, error) {
	s, err := syscall.Sysctl("kern.boottime")
	if err != nil {
		return 0, fmt.Errorf("cannot read when the machine was booted: %w", err)
	}
	raw := make([]byte, 16) // Sysctl takes a trailing zero byte for the end of a text
	if copy(raw, s) < 12 {
		return 0, errors.New("cannot read when the machine was booted: kern.boottime is too short")
	}
	sec, usec := binary.NativeEndian.Uint64(raw), binary.NativeEndian.Uint32(raw[8:])
	return int64(sec)*int64(time.Second) + int64(usec)*int64(time.Microsecond), nil
}
