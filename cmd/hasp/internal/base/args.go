// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Brief has --help show what fits on a screen: the first paragraph, the examples, and these flags with the first clause of what
// they do. --help-all shows everything.
func Brief(cmd *cobra.Command, flags ...string) {
	all, everything := false, cmd.HelpFunc()
	cmd.Flags().BoolFunc("help-all", "show every flag, and how it all works", func(string) error {
		all = true
		return cmd.Flags().Set("help", "true")
	})
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if all {
			everything(cmd, args)
			return
		}
		some := pflag.NewFlagSet("", pflag.ContinueOnError)
		some.SortFlags = false
		for _, name := range append(flags, "help-all") {
			f := *cmd.Flags().Lookup(name)
			f.Usage, _, _ = strings.Cut(f.Usage, "; ")
			f.DefValue = ""
			some.AddFlag(&f)
		}
		what, _, _ := strings.Cut(cmd.Long, "\n\n")
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\nUsage: %s\n\n%s\n\n%s", what, cmd.UseLine(), cmd.Example, some.FlagUsages())
	})
}

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
	unknown := (*pflag.NotExistError)(nil)
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) == 1 {
		return ""
	}
	guess := &cobra.Command{SuggestionsMinimumDistance: 2} // cobra measures words against names of commands alone
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		guess.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	if names := guess.SuggestionsFor(unknown.GetSpecifiedName()); len(names) > 0 {
		return ": did you mean --" + strings.Join(names, ", --") + "?"
	}
	return ""
}
