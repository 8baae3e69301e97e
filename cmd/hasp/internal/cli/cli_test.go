// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// The help of a command that holds a key fits on a screen.
func TestHelpFitsAScreen(t *testing.T) {
	for _, name := range []string{"run", "elect", "acquire"} {
		var help strings.Builder
		root := newRoot(nil)
		root.SetArgs([]string{name, "--help"})
		if cmd, _, err := root.Find([]string{name}); err != nil || cmd.Name() != name {
			continue // acquire needs Linux
		}
		root.SetOut(&help)
		if err := root.Execute(); err != nil {
			t.Error(err)
		}
		lines := strings.Split(strings.TrimSuffix(help.String(), "\n"), "\n")
		if len(lines) < 15 || len(lines) > 24 {
			t.Errorf("hasp %s --help has %d lines", name, len(lines))
		}
		for _, line := range lines {
			if utf8.RuneCountInString(line) > 80 {
				t.Errorf("hasp %s --help has a line of over 80 columns: %s", name, line)
			}
		}
	}
}
