// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package child

import "syscall"

// adoptOrphans: only Linux lets a process adopt its descendants' orphans.
func adoptOrphans() error { return nil }

// endWithParent: only Linux has the kernel end a child with its parent.
func endWithParent(*syscall.SysProcAttr) {}

type strangers struct{}

func findStrangers() strangers { return strangers{} }

// members returns the group's leader for the whole group while that has a
// live process. What left the group cannot be found.
func (p *process) members() []member {
	if err := syscall.Kill(-p.pid, 0); err == syscall.ESRCH {
		return nil
	}
	return []member{{p.pid, true}}
}
