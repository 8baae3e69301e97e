// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

func TestMain(m *testing.M) {
	testserver.SideBySide(16)
	code, err := testserver.Perform(context.Background(), func(p *testserver.Program) int {
		program = p
		return m.Run()
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
