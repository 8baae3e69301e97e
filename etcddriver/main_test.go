// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"os"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

func TestMain(m *testing.M) {
	testserver.SideBySide(24) // leases of etcd last for whole seconds
	os.Exit(m.Run())
}
