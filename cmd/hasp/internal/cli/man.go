// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newMan writes the manual pages, for packagers. Cobra's own generator would
// bring three modules with it, for pages without our sections.
func newMan(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages into a directory",
		Hidden: true,
		Args:   base.Exactly(1, "DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
				if cmd.Hidden || cmd.Name() == "help" {
					continue
				}
				name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
				if err := os.WriteFile(filepath.Join(args[0], name+".1"), []byte(page(root, cmd)), 0o644); err != nil {
					return base.Failed("%v", err)
				}
			}
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
	for _, s := range manual {
		section(&b, s.title, s.text)
	}
	section(&b, "SEE ALSO", "hasp(1), hasp-run(1), hasp-elect(1), hasp-acquire(1), hasp-held(1), hasp-release(1), hasp-ls(1), hasp-top(1), hasp-show(1), hasp-break(1), hasp-leaks(1), hasp-doctor(1), hasp-serve(1), hasp-verify(1), flock(1), timeout(1)")
	return b.String()
}

func section(b *strings.Builder, title, text string) {
	if text == "" {
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

// manual are the sections that every manual page ends with.
var manual = []struct{ title, text string }{
	{"EXIT STATUS", `hasp run and hasp elect exit with the status of the command; 128 + n when signal n ended it. Its own codes are these, and the same for every other hasp command, where 0 is success. New ones may be added: treat an unknown one as a failure.

1: hasp leaks found something that it did not remove; hasp verify saw a rule broken; hasp held, hasp release: the shell does not hold the key.

75: busy: the key was not acquired with -n or within -w (run has -E for another code); or what was to be broken is held by another.

124: the lock was lost, or --max-hold was reached, and the command was ended.

125: hasp itself failed.

126, 127: the command cannot be executed; was not found.

64: the command line is wrong.

69: the store cannot be reached, or does not answer, or too few of its servers vote. run and elect wait for it, unless -n or -w says otherwise.

77: the store does not allow it.

78: the configuration is wrong: the store's URL; a store that is full, read-only or cannot carry locks.

129, 130, 131, 143: ended by a signal (HUP, INT, QUIT, TERM) while waiting, or before a hasp verify was over.

As the command's own status may be any of these, hasp says on standard error, in its last line, what happened, unless the command succeeded or -q is given; with -o json that line is an object with the fields code and verdict.`},
	{"ENVIRONMENT", `HASP_STORE: the URL of the store.

HASP_STORE_FILE: a file that holds the URL, for URLs with a password, which do not belong on a command line that ps shows.

HASP_AUDIT: a file, or the word syslog: where --audit records who broke a key or removed a leak, and which were lost.

NO_COLOR: when it is not empty, hasp top uses no colours.

HASP_SERVE_TOKENS: the tokens of hasp serve, a line each, when there is no --tokens.

XDG_STATE_HOME: where the default store is (~/.local/state when unset).

HASP_KEY, HASP_FENCE, HASP_OWNER, HASP_SLOT, HASP_STORE_KIND, HASP_ABANDONED: set for the command of hasp run and of hasp elect; with _1, _2 and so on at the end, for each key.

HASP_HELD: set for the command, too: the owners of the leases under which it runs, its own and those of each hasp around it.`},
	{"FILES", `~/.local/state/hasp/locks.db: the default store.

~/.local/state/hasp/shells/: how hasp held and hasp release find what hasp acquire holds.

~/.local/state/hasp/waits/: how long servers that are held back have been waited for.`},
}
