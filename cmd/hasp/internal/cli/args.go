// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// exactly wants n arguments, named so.
func exactly(n int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < n:
			return usage("%s is missing: %s", names, cmd.UseLine())
		case len(args) > n:
			return usage("there is an argument too many, %q: %s", args[n], cmd.UseLine())
		}
		return nil
	}
}

// atMost wants up to n arguments.
func atMost(n int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return exactly(n, names)(cmd, args)
		}
		return nil
	}
}
