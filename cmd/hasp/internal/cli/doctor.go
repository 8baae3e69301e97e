// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/hasplock/hasp/cmd/hasp/internal/doctor"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

func newDoctor() *cobra.Command {
	store := &storeFlag{}
	output := &choice{"text", []string{"text", "json"}}
	require := &choice{"", []string{string(doctor.ForEfficiency), string(doctor.ForFences), string(doctor.ForCorrectness)}}
	var admit bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine a store: does it work, and what does it promise",
		Long:  doctorLong,
		Example: `  hasp doctor
  hasp doctor --store redlock://a,b,c -o json | jq '.findings[] | select(.level != "ok")'
  hasp doctor --require fences                 in a deployment's pipeline: fails with 78 when it has less
  hasp doctor --admit                          a new deployment, whose servers nobody used before`,
		Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return examine(cmd, store, admit, doctor.Use(require.word), output.word == "json")
		},
	}
	cmd.Flags().BoolVar(&admit, "admit", false, "declare that nobody holds a lock in this store: servers that are held back vote now")
	cmd.Flags().VarP(output, "output", "o", "lines, or an object")
	complete(cmd, "output", output.among)
	cmd.Flags().Var(require, "require", "exit with 78 when the store may be used for less")
	complete(cmd, "require", require.among)
	store.add(cmd)
	return cmd
}

// diagnosis is all that was found, for programs. More fields may come.
type diagnosis struct {
	Store     string           `json:"store"`
	Kind      string           `json:"kind"`
	Promise   []string         `json:"promise"`
	Findings  []doctor.Finding `json:"findings"`
	UsableFor doctor.Use       `json:"usable_for"`
	Uses      []doctor.Fitness `json:"uses"` // each of them, with the reasons
	Required  doctor.Use       `json:"required,omitempty"`
	Verdict   string           `json:"verdict"` // ok, or the word of the exit code
	Code      int              `json:"code"`
}

func examine(cmd *cobra.Command, store *storeFlag, admit bool, required doctor.Use, asJSON bool) error {
	store.warn = func(string) {} // x.state says it
	l, err := store.open(cmd, nil)
	if err != nil {
		return err
	}
	defer l.leave(true)
	ctx, stop := untilSignal()
	defer stop()
	x := &examination{ctx: ctx, l: l, second: l.url.Open}
	if admit {
		if err := x.admit(); err != nil {
			return err
		}
	}
	end := x.all()
	d := diagnosis{Store: l.url.String(), Kind: l.Traits().Engine, Promise: l.store.Promise(), Findings: x.found, Required: required, Verdict: "ok"}
	d.UsableFor, d.Uses = l.store.Fit(x.found, end == nil)
	if early := interruption(ctx); early != nil {
		end = early
	} else if lacks := doctor.Lacks(d.Uses, required); end == nil && lacks != "" {
		end = &exit{code: exitConfig, verdict: "insufficient", message: fmt.Sprintf("the store %s is usable for %s, %s", l.url, d.UsableFor.Words(), lacks)}
	}
	if end != nil {
		d.Verdict, d.Code = end.verdict, end.code
	}
	if asJSON {
		if err := plain.WriteJSON(stdout, d); err != nil {
			return err
		}
	} else {
		d.print(stdout)
	}
	if end != nil {
		return end
	}
	return nil
}

// untilSignal returns a context that a signal ends, and is the cause of. A second one ends the process.
func untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(sig) { // nohup
			signal.Notify(signals, sig)
		}
	}
	go func() {
		select {
		case sig := <-signals:
			n, _ := sig.(syscall.Signal)
			cancel(signaled{n})
			signal.Stop(signals)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}

// interruption is the end of an examination that a signal ended; nil otherwise.
func interruption(ctx context.Context) *exit {
	var s signaled
	if !errors.As(context.Cause(ctx), &s) {
		return nil
	}
	return &exit{code: 128 + int(s.sig), verdict: "interrupted", interrupted: s.sig == syscall.SIGINT,
		message: fmt.Sprintf("ended early by a %v: what is not above was not looked at", s)}
}

// print writes a diagnosis for people.
func (d *diagnosis) print(w io.Writer) {
	fmt.Fprintf(w, "store     %s\n", plain.Line(d.Store))
	for i, line := range d.Promise {
		fmt.Fprintf(w, "%-8s  %s\n", once(i, "promise"), line)
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
		fmt.Fprintf(w, "%s%-*s  %s\n", indent, 8-len(indent), f.Level, plain.Line(f.Text))
	}
	for i, u := range d.Uses {
		sign := "not for"
		if u.Met {
			sign = "for"
		}
		fmt.Fprintf(w, "%-8s  %s %s: %s\n", once(i, "usable"), sign, u.Use.Words(), plain.Line(u.Why))
	}
}

// once is the name of a field in the first of its lines.
func once(i int, name string) string {
	if i > 0 {
		return ""
	}
	return name
}
