// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/conform"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// conformity is the outcome of hasp verify --client, for programs. More fields may come.
type conformity struct {
	Client   string           `json:"client"`
	Tried    people.Seconds   `json:"tried_seconds"`
	Rules    []conform.Result `json:"rules"`
	Findings []string         `json:"findings"` // the rules that were broken
	Verdict  string           `json:"verdict"`
	Code     int              `json:"code"`
}

// tryClient is hasp verify --client.
func (t *trial) tryClient(cmd *cobra.Command) error {
	other := ""
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "client" && f.Name != "output" {
			other = f.Name
		}
	})
	switch {
	case other != "":
		return base.Usage("--client needs no store, and no --%s", other)
	case t.client == "":
		return base.Usage("--client names no command")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	v := &conformity{Client: t.client, Rules: conform.Run(ctx, t.client, os.Stderr), Findings: []string{}, Verdict: "ok"}
	if ctx.Err() != nil {
		return base.Failed("ended early by a signal: nothing is known of the client")
	}
	v.Tried = people.Seconds(time.Since(began))
	for _, r := range v.Rules {
		if r.Broken != "" {
			v.Findings = append(v.Findings, fmt.Sprintf("%s: %s: %s", r.Name, r.Rule, r.Broken))
		}
	}
	var end error
	if len(v.Findings) > 0 {
		v.Verdict, v.Code = "broken", exitBroken
		end = &base.Exit{Code: exitBroken, Verdict: v.Verdict, Message: fmt.Sprintf("the client breaks %s of %d: BROKEN says which",
			people.Count(len(v.Findings), "rule", "rules"), len(conform.Cases))}
	}
	if end == nil && len(v.Rules) < len(conform.Cases) {
		failed := base.Failed("a minute was not enough for all rules: this machine is too busy, or the client too slow")
		v.Verdict, v.Code, end = failed.Verdict, failed.Code, failed
	}
	if !t.output.JSON() {
		v.print()
		return end
	}
	if err := plain.WriteJSON(base.Stdout, v); err != nil {
		return err
	}
	return end
}

// print writes it for people.
func (v *conformity) print() {
	line := func(name, text string) { fmt.Fprintf(base.Stdout, "%-9s  %s\n", name, plain.Line(text)) }
	line("client", v.Client)
	line("tried", fmt.Sprintf("%d of %d rules, in %s", len(v.Rules), len(conform.Cases), people.Short(time.Duration(v.Tried).Round(time.Millisecond))))
	for _, f := range v.Findings {
		line("BROKEN", f)
	}
	if v.Verdict == "ok" {
		line("ok", "the client keeps every rule of the protocol that was tried")
	}
}
