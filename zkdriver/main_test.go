// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

// TestMain lets more cases run side by side than other packages do: nearly all of
// them mostly wait for leases to end.
func TestMain(m *testing.M) {
	const least = 16
	flag.Parse()
	parallel := flag.Lookup("test.parallel").Value.(flag.Getter)
	if n := parallel.Get().(int); n < least {
		if err := flag.Set("test.parallel", "16"); err != nil {
			panic(err)
		}
	}
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
