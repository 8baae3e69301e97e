// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"fmt"
	"os"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/audit"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

func newBreak() *cobra.Command {
	store, record := &base.StoreFlag{}, &base.AuditFlag{}
	var owner, reason string
	var yes bool
	cmd := &cobra.Command{
		Use:   "break KEY --owner OWNER",
		Short: "Take a key away from its holder",
		Long:  breakLong,
		Args:  base.Exactly(1, "KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !driver.ValidOwner(owner) {
				return base.Usage("--owner takes the %d characters that this shows: %s", driver.OwnerLen, store.Again("show", args[0]))
			}
			log, err := record.Open()
			if err != nil {
				return err
			}
			return breakKey(cmd, store, log, args[0], owner, reason, yes)
		},
	}
	cmd.ValidArgsFunction = store.CompleteKeys
	cmd.Flags().StringVar(&owner, "owner", "", "whom to take it from: the `OWNER` that hasp show names")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` that says why, for the audit record")
	record.Add(cmd, "record who broke what")
	store.Add(cmd)
	return cmd
}

func breakKey(cmd *cobra.Command, store *base.StoreFlag, log *audit.Log, key, owner, reason string, yes bool) error {
	if err := base.CheckKey(key); err != nil {
		return err
	}
	if !yes && !child.IsTerminal(os.Stdin) {
		return base.Usage("standard input is no terminal, so the key cannot be typed: give --yes to break %s without a question", base.Quote(key))
	}
	l, err := store.Open(cmd, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := base.Asking()
	defer cancel()
	info, err := l.Inspect(ctx, key)
	if err != nil {
		return err
	}
	v, ok := base.WithOwner(info, owner)
	if !ok {
		return base.NotThatOwner(info, key, owner)
	}
	base.Note("%s", base.Plan(info, key, v))
	if !yes {
		shown := driver.Printable(key) // as a key is typed that cannot be typed
		question := fmt.Sprintf("To do it, type the key (%s): ", plain.Line(shown))
		if err := base.Ask(question, "the key", key, shown, plain.Line(shown)); err != nil {
			return err
		}
	}
	ctx, cancelBreak := base.Asking() // the question may have taken its time
	defer cancelBreak()
	if end := l.TakeAway(ctx, log, "hasp break", key, v, reason); end != nil {
		return end
	}
	base.Note("broke %s: taken from %s", base.Quote(key), people.Name(v.Holder))
	return nil
}
