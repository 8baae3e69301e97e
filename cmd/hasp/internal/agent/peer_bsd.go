// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || freebsd

package agent

import "golang.org/x/sys/unix"

// credentials are those of the process that connected.
func credentials(fd int) (pid, uid int, err error) {
	c, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, 0, err
	}
	return 0, int(c.Uid), nil
}
