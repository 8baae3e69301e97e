// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

// build says what this program was built from.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func newVersion() *cobra.Command {
	output := base.Outputs()
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of hasp",
		Args:  base.Exactly(0, ""),
		RunE: func(*cobra.Command, []string) error {
			b := readBuild()
			if output.JSON() {
				return plain.WriteJSON(base.Stdout, b)
			}
			_, err := fmt.Fprintln(base.Stdout, b)
			return err
		},
	}
	output.AddOutput(cmd, "lines, or an object")
	return cmd
}

func (b build) String() string {
	revision := ""
	if b.Revision != "" {
		revision = " " + b.Revision
	}
	if b.Modified {
		revision += " (modified)"
	}
	return fmt.Sprintf("hasp %s%s, %s, %s/%s", b.Version, revision, b.Go, b.OS, b.Arch)
}

func readBuild() build {
	b := build{Version: "(unknown)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
