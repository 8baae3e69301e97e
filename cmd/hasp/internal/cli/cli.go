// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli puts the command hasp together: the packages run, look and operate have its commands.
package cli

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/hasplock/hasp/cmd/hasp/internal/agent"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/cmd/hasp/internal/look"
	"github.com/hasplock/hasp/cmd/hasp/internal/operate"
	"github.com/hasplock/hasp/cmd/hasp/internal/run"
	"github.com/hasplock/hasp/cmd/hasp/internal/top"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

// Main runs the command line of this process and returns its exit code.
func Main() int {
	seen := child.IsTerminal(os.Stdout) || child.IsTerminal(os.Stderr)
	plain.ASCII = seen && runtime.GOOS != "windows" && !plain.UTF8(os.Getenv)
	if plain.ASCII {
		top.Ellipsis = "~"
	}
	err := newRoot(os.Args[1:]).Execute()
	end := base.Stdout.Failed()
	switch {
	case end != nil:
	case err == nil:
		return 0
	case !errors.As(err, &end): // from cobra: an unknown command, a wrong count of arguments
		end = base.Usage("%v", err)
	}
	if end.Message != "" {
		base.Note("%s", end.Message)
	}
	if end.Interrupted && child.Interactive() {
		child.Die(end.Group)
	}
	return end.Code
}

// newRoot returns the command tree. args are the words after "hasp".
func newRoot(args []string) *cobra.Command {
	version := false
	root := &cobra.Command{
		Use:   "hasp",
		Short: "Run a command under a distributed lock; show and break locks",
		Long: `hasp holds a lock while a command runs: one holder at a time, or several that
share it. Waiters are served in order, a timeout frees the key when its holder
crashes, and each holder has a number that storage can check (a fence).

The store of the locks is named by --store or HASP_STORE, or for a whole machine by
the file /etc/hasp/store. Without it each user of each machine has their own, a SQLite
file in the state directory: jobs of other users and machines are not excluded.`,
		Example: `  hasp run nightly -- ./report.sh --full       wait for the key, hold it while the command runs
  hasp run -nq -E 0 nightly -- ./report.sh     from cron: skip it when another program holds the key
  hasp acquire nightly || exit                 in a script: hold the key until the script ends
  hasp elect worker -- ./worker                run it on one of several hosts, again and again`,
		SuggestionsMinimumDistance: 2,
		SilenceErrors:              true,
		SilenceUsage:               true,
		Args:                       cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, rest []string) error {
			if version {
				_, err := fmt.Fprintln(base.Stdout, readBuild())
				return err
			}
			if len(rest) > 0 {
				return base.Usage("there is no command %q%s; see: hasp --help", rest[0], meant(cmd, rest[0]))
			}
			fmt.Fprint(os.Stderr, cmd.UsageString())
			return &base.Exit{Code: base.ExitUsage}
		},
	}
	root.SetOut(base.Stdout)
	root.Flags().BoolVarP(&version, "version", "v", false, "version for hasp") // cobra's own links text/template: see dashboard/fill.go
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if strings.HasSuffix(err.Error(), ": --help-all") {
			return base.Usage("%v; a command has it: hasp run --help-all", err)
		}
		if cmd == root {
			return base.Usage("%v; flags go after the command: hasp run --store URL KEY -- COMMAND", err)
		}
		return base.Usage("%v%s; see: %s --help", err, base.MeantFlag(cmd, err), cmd.CommandPath())
	})
	root.AddCommand(newVersion(), newStores(), newMan(root))
	root.AddCommand(run.Commands(args)...)
	root.AddCommand(look.Commands(operate.Diagnose)...)
	root.AddCommand(operate.Commands()...)
	root.AddCommand(agent.Commands(readBuild().Version)...)
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, words []string) error {
		if found, _, _ := root.Find(words); found == root && len(words) > 0 {
			return base.Usage("there is no command or topic %q%s; see: hasp --help", words[0], meant(root, words[0]))
		}
		return nil
	}
	return root
}
