// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// While the process stands still, the kernel itself ends it at TERM; Go's handler would be stopped half-way.
func TestKernelEnds(t *testing.T) {
	if !caught(t, syscall.SIGTERM) {
		t.Fatal("Go does not catch SIGTERM")
	}
	restore := kernelEnds([]os.Signal{syscall.SIGTERM})
	during := caught(t, syscall.SIGTERM)
	restore()
	if after := caught(t, syscall.SIGTERM); during || !after {
		t.Errorf("caught meanwhile: %v, afterwards: %v; want false, true", during, after)
	}
}

// caught says whether this process has a handler of its own for the signal.
func caught(t *testing.T, sig syscall.Signal) bool {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "SigCgt:\t")
	mask, _, _ := strings.Cut(rest, "\n")
	bits, err := strconv.ParseUint(mask, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return bits>>(sig-1)&1 == 1
}
