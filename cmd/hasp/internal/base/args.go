// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"strings"

	"github.com/spf13/cobra"
)

// Exactly wants n arguments, named so.
func Exactly(n int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < n:
			return Usage("%s is missing: %s", names, cmd.UseLine())
		case len(args) > n:
			return Usage("there is an argument too many, %q: %s", args[n], cmd.UseLine())
		}
		return nil
	}
}

// AtMost wants up to n arguments.
func AtMost(n int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return Exactly(n, names)(cmd, args)
		}
		return nil
	}
}

// MeantFlag is meant for a flag that a command does not have.
func MeantFlag(cmd *cobra.Command, err error) string {
	if strings.HasSuffix(err.Error(), ": --json") && cmd.Flags().Lookup("output") != nil {
		return ": did you mean -o json?"
	}
	if cmd.Name() == "ls" && strings.Contains(err.Error(), "--watch") {
		return ": hasp top shows the keys live"
	}
	return ""
}
