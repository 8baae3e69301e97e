// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import "golang.org/x/sys/unix"

// credentials are those of the process that connected.
func credentials(fd int) (pid, uid int, err error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, 0, err
	}
	return int(c.Pid), int(c.Uid), nil
}
