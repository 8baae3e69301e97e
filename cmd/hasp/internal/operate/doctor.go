// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/doctor"
	"github.com/hasplock/hasp/dashboard"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

func newDoctor() *cobra.Command {
	store := &base.StoreFlag{}
	output := base.Outputs()
	require := base.OneOf("", string(doctor.ForEfficiency), string(doctor.ForFences), string(doctor.ForCorrectness))
	var admit bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine a store: does it work, and what does it promise",
		Long:  doctorLong,
		Example: `  hasp doctor
  hasp doctor --store redlock://a,b,c -o json | jq '.findings[] | select(.level != "ok")'
  hasp doctor --require fences                 in a deployment's pipeline: fails with 78 when it has less
  hasp doctor --admit                          a new deployment, whose servers nobody used before`,
		Args: base.Exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return examine(cmd, store, admit, doctor.Use(require.Word), output.JSON())
		},
	}
	cmd.Flags().BoolVar(&admit, "admit", false, "declare that nobody holds a lock in this store: servers that are held back vote now")
	output.AddOutput(cmd, "lines, or an object")
	require.Add(cmd, "require", "", "exit with 78 when the store may be used for less")
	store.Add(cmd)
	return cmd
}

// diagnosis is all that was found, for programs. More fields may come.
type diagnosis struct {
	Store     string           `json:"store"`
	Source    string           `json:"source"` // where it was found, in words
	Kind      string           `json:"kind"`
	Promise   []string         `json:"promise"`
	Findings  []doctor.Finding `json:"findings"`
	UsableFor doctor.Use       `json:"usable_for"`
	Uses      []doctor.Fitness `json:"uses"` // each of them, with the reasons
	Required  doctor.Use       `json:"required,omitempty"`
	Verdict   string           `json:"verdict"` // ok, or the word of the exit code
	Code      int              `json:"code"`
}

func examine(cmd *cobra.Command, store *base.StoreFlag, admit bool, required doctor.Use, asJSON bool) error {
	store.Warn = func(string) {} // x.state says it
	l, err := store.Open(cmd, nil)
	if err != nil {
		return err
	}
	defer l.Leave(true)
	ctx, stop := base.UntilSignal()
	defer stop()
	x := &examination{ctx: ctx, l: l, second: l.URL.Open}
	if admit {
		if err := x.admit(); err != nil {
			return err
		}
	}
	end := x.all()
	d := diagnosis{Store: l.URL.String(), Source: l.URL.Source, Kind: l.Traits().Engine, Promise: l.Store.Promise(), Findings: x.found, Required: required, Verdict: "ok"}
	d.UsableFor, d.Uses = l.Store.Fit(x.found, end == nil)
	if early := interruption(ctx); early != nil {
		end = early
	} else if lacks := doctor.Lacks(d.Uses, required); end == nil && lacks != "" {
		end = &base.Exit{Code: base.ExitConfig, Verdict: "insufficient", Message: fmt.Sprintf("the store %s is usable for %s, %s", l.URL, d.UsableFor.Words(), lacks)}
	}
	if end != nil {
		d.Verdict, d.Code = end.Verdict, end.Code
	}
	if asJSON {
		if err := plain.WriteJSON(base.Stdout, d); err != nil {
			return err
		}
	} else {
		d.print(base.Stdout)
	}
	if end != nil {
		return end
	}
	return nil
}

// interruption is the end of an examination that a signal ended; nil otherwise.
func interruption(ctx context.Context) *base.Exit {
	var s base.Signaled
	if !errors.As(context.Cause(ctx), &s) {
		return nil
	}
	return &base.Exit{Code: 128 + int(s.Sig), Verdict: "interrupted", Interrupted: s.Sig == syscall.SIGINT,
		Message: fmt.Sprintf("ended early by a %v: what is not above was not looked at", s)}
}

// print writes a diagnosis for people.
func (d *diagnosis) print(w io.Writer) {
	fmt.Fprintf(w, "store     %s\n", plain.Line(d.Store))
	fmt.Fprintf(w, "%-8s  %s\n", "named", plain.Line(d.Source))
	for i, u := range d.Uses {
		sign := "not for"
		if u.Met {
			sign = "for"
		}
		fmt.Fprintf(w, "%-8s  %s %s: %s\n", once(i, "usable"), sign, u.Use.Words(), plain.Line(u.Why))
		if d.UsableFor == doctor.ForNothing {
			break // the others would say the same
		}
	}
	for i, line := range d.Promise {
		if d.UsableFor != doctor.ForNothing { // a store that grants nothing keeps no promise
			fmt.Fprintf(w, "%-8s  %s\n", once(i, "promise"), line)
		}
	}
	node := ""
	for _, f := range d.Findings {
		if f.Node != node {
			node = f.Node
			fmt.Fprintln(w, plain.Line(node))
		}
		indent := ""
		if node != "" {
			indent = "  "
		}
		for i, line := range lines(f.Text) {
			fmt.Fprintf(w, "%s%-*s  %s\n", indent, 8-len(indent), once(i, string(f.Level)), plain.Line(line))
		}
	}
}

var (
	commands     = strings.NewReplacer("Run: ", "Run:\n  ", "run: ", "run:\n  ", ", and: ", "\n  ", " and: ", "\n  ", ". Or, ", "\nOr, ")
	afterCommand = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^(  .+?)[,.] `) })
)

// lines are a finding's, with each command to copy on one of its own.
func lines(text string) []string {
	return strings.Split(afterCommand().ReplaceAllString(commands.Replace(text), "$1\n"), "\n")
}

// once is the name of a field in the first of its lines.
func once(i int, name string) string {
	if i > 0 {
		return ""
	}
	return name
}

// Diagnose is hasp doctor, for the page.
func Diagnose(ctx context.Context, l *base.Locks) ([]dashboard.Finding, error) {
	x := &examination{ctx: ctx, l: l, second: l.URL.Open}
	end := x.all()
	var found []dashboard.Finding
	for _, f := range x.found {
		found = append(found, dashboard.Finding{Level: f.Level, Node: f.Node, Check: f.Check, Text: f.Text})
	}
	if end != nil && end.Message != "" {
		return found, errors.New(end.Message)
	}
	return found, nil
}
