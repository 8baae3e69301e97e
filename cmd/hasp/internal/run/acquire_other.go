// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package run

import "github.com/spf13/cobra"

// Only Linux can tell a process from a later one with its number, and watch it.

func forShells([]string) []*cobra.Command {
	return nil
}

func heldAround() []string { return nil }
