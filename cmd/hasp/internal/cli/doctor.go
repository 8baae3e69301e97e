// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"

	"github.com/hasplock/hasp/cmd/hasp/internal/doctor"
	"github.com/hasplock/hasp/cmd/hasp/internal/plain"
	"github.com/spf13/cobra"
)

func newDoctor() *cobra.Command {
	store := &storeFlag{}
	output := &choice{"text", []string{"text", "json"}}
	var admit bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine a store: does it work, and what does it promise",
		Long:  doctorLong,
		Example: `  hasp doctor
  hasp doctor --store redlock://a,b,c -o json | jq '.findings[] | select(.level != "ok")'
  hasp doctor --admit                          a new deployment, whose servers nobody used before`,
		Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return examine(cmd, store, admit, output.word == "json")
		},
	}
	cmd.Flags().BoolVar(&admit, "admit", false, "declare that nobody holds a lock in this store: servers that are held back vote now")
	cmd.Flags().VarP(output, "output", "o", "lines, or an object")
	complete(cmd, "output", output.among)
	store.add(cmd)
	return cmd
}

// diagnosis is all that was found, for programs. More fields may come.
type diagnosis struct {
	Store    string           `json:"store"`
	Kind     string           `json:"kind"`
	Promise  []string         `json:"promise"`
	Findings []doctor.Finding `json:"findings"`
	Verdict  string           `json:"verdict"` // ok, or the word of the exit code
	Code     int              `json:"code"`
}

func examine(cmd *cobra.Command, store *storeFlag, admit, asJSON bool) error {
	l, err := store.open(cmd, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	x := &examination{l: l}
	if admit {
		if err := x.admit(); err != nil {
			return err
		}
	}
	end := x.all()
	d := diagnosis{Store: l.url.String(), Kind: l.Traits().Engine, Findings: x.found, Verdict: "ok",
		Promise: l.store.Promise()}
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

// print writes a diagnosis for people.
func (d *diagnosis) print(w io.Writer) {
	fmt.Fprintf(w, "store     %s\n", plain.Line(d.Store))
	for i, line := range d.Promise {
		name := ""
		if i == 0 {
			name = "promise"
		}
		fmt.Fprintf(w, "%-8s  %s\n", name, line)
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
}
