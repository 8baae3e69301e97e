// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

// TestSuiteOnAnEnsemble has each client at one of three servers.
func TestSuiteOnAnEnsemble(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, s := range testserver.ZooKeepers(t, 3) {
		addrs = append(addrs, s.Addr())
	}
	suite(t, Options{}, addrs...)
}
