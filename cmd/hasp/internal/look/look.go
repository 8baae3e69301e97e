// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package look has the commands that show locks: hasp ls, top, show, leaks and serve.
package look

import "github.com/spf13/cobra"

// Commands are those that show locks. diagnose is hasp doctor, for the page of hasp serve.
func Commands(diagnose Diagnose) []*cobra.Command {
	return []*cobra.Command{newLs(), newTop(), newShow(), newLeaks(), newServe(diagnose)}
}
