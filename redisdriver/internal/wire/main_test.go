// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"os"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

func TestMain(m *testing.M) {
	testserver.SideBySide(4)
	os.Exit(m.Run())
}
