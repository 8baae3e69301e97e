// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newMan writes the manual pages. Cobra's own generator would bring three modules with it, for pages without our sections.
func newMan(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "man [DIR]",
		Short: "Write the manual pages into DIR, else where man looks for them",
		Long:  "Without DIR, the manual pages go into share/man/man1 beside the folder of this\nprogram: man finds them there if that folder is in PATH.",
		Args:  base.AtMost(1, "DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				self, err := exec.LookPath(os.Args[0]) // as PATH has it, and not where a link leads
				if err != nil {
					self, err = os.Executable()
				}
				if err != nil {
					return base.Failed("%v; or name the directory: hasp man DIR", err)
				}
				args = []string{filepath.Join(filepath.Dir(self), "..", "share", "man", "man1")}
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return base.Failed("%v; or name another directory: hasp man DIR", err)
			}
			for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
				if cmd.Hidden || cmd.Name() == "help" {
					continue
				}
				name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
				if err := os.WriteFile(filepath.Join(args[0], name+".1"), []byte(page(root, cmd)), 0o644); err != nil {
					return base.Failed("%v; or name another directory: hasp man DIR", err)
				}
			}
			fmt.Fprintln(base.Stdout, "the manual pages are in", args[0])
			return nil
		},
	}
}

// page returns the manual page of a command, in the man macros of roff.
func page(root, cmd *cobra.Command) string {
	var b strings.Builder
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	fmt.Fprintf(&b, ".TH %s 1 \"\" hasp \"hasp manual\"\n", strings.ToUpper(name))
	section(&b, "NAME", fmt.Sprintf("%s - %s", name, cmd.Short))
	use := cmd.UseLine()
	if cmd == root {
		use = "hasp COMMAND"
	}
	section(&b, "SYNOPSIS", use)
	section(&b, "DESCRIPTION", cmd.Long)
	if cmd == root {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range root.Commands() {
			if !sub.Hidden {
				fmt.Fprintf(&b, ".TP\n.BR hasp\\-%s (1)\n%s\n", roff(sub.Name()), roff(sub.Short))
			}
		}
	}
	if cmd.HasAvailableLocalFlags() && cmd != root {
		b.WriteString(".SH OPTIONS\n")
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { b.WriteString(option(f)) })
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	for _, s := range strings.Split("\n"+manual, "\n# ")[1:] {
		title, text, _ := strings.Cut(s, "\n\n")
		section(&b, title, text)
	}
	section(&b, "SEE ALSO", "hasp(1), hasp-run(1), hasp-elect(1), hasp-acquire(1), hasp-held(1), hasp-release(1), hasp-ls(1), hasp-top(1), hasp-show(1), hasp-break(1), hasp-leaks(1), hasp-doctor(1), hasp-serve(1), hasp-verify(1), flock(1), timeout(1)")
	return b.String()
}

func section(b *strings.Builder, title, text string) {
	if text = strings.TrimSpace(text); text == "" {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		b.WriteString(roff(paragraph) + "\n")
	}
}

func option(f *pflag.Flag) string {
	name, text := pflag.UnquoteUsage(f)
	head := "--" + f.Name
	if f.Shorthand != "" {
		head = "-" + f.Shorthand + ", " + head
	}
	if name != "" {
		head += " " + name
	}
	return fmt.Sprintf(".TP\n.B %s\n%s\n", roff(head), roff(text))
}

// roff escapes what roff would act on: backslashes, hyphens that are minus
// signs, and lines that begin with a control character.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...").Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

// manual are the sections that every manual page ends with, each after its title.
//
//go:embed manual.txt
var manual string
