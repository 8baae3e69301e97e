// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"

	"github.com/hasplock/hasp/cmd/hasp/internal/child"
)

// around are the processes that this one comes from.
func around() []int {
	pids := []int{os.Getppid()}
	for _, p := range child.Around() {
		pids = append(pids, p.PID)
	}
	return pids
}
