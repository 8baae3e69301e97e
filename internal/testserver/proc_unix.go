// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package testserver

import (
	"os"
	"syscall"
)

// diesWithParent: there is no parent death signal here.
func diesWithParent() *syscall.SysProcAttr { return nil }

// stop sends the signal only; the process stands still moments later.
func stop(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func cont(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
