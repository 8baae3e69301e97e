// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"os"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
	"go.uber.org/goleak"
)

// Some tests need processes of their own: the test binary, run again with the
// name of a part in childEnv.
func TestMain(m *testing.M) {
	if part := os.Getenv(childEnv); part != "" {
		os.Exit(child(part, os.Args[1:]))
	}
	testserver.SideBySide(6)
	goleak.VerifyTestMain(m)
}
