// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package rueidis

import (
	"os"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

func TestMain(m *testing.M) {
	testserver.SideBySide(16) // each has its own server
	os.Exit(m.Run())
}
