// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Command hasp runs a command under a distributed lock, and shows and breaks
// such locks.
package main

import (
	"os"

	"github.com/hasplock/hasp/cmd/hasp/internal/cli"
)

func main() { os.Exit(cli.Main()) }
