// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"fmt"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/spf13/cobra"
)

func newInit() *cobra.Command {
	store := &base.StoreFlag{}
	var show bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the tables that locks need in a database",
		Long: `hasp init makes the tables of the locks in a PostgreSQL, MariaDB or MySQL database,
where they are missing. It needs the right to create tables, which other commands
do not. With --show it prints the statements instead, for you to run by hand.
Other stores need no preparation.`,
		Example: `  hasp init --store postgres://admin@db.internal/locks
  hasp init --store postgres://admin@db.internal/locks --show | less`,
		Args: base.Exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := store.Open(cmd, nil)
			if err != nil {
				return err
			}
			defer l.Close()
			switch tables := l.Store.Tables; {
			case tables == nil:
				base.Note("the store %s needs no preparation", l.URL)
				return nil
			case show:
				_, err := fmt.Fprint(base.Stdout, tables.Schema)
				return err
			default:
				ctx, cancel := base.Asking()
				defer cancel()
				if err := tables.Make(ctx); err != nil {
					return base.Trouble(l.URL, &hasp.Error{Op: "init", Engine: l.Traits().Engine, Class: l.Store.Classify(err), Err: err})
				}
				base.Note("the tables are in %s", l.URL)
				return nil
			}
		},
	}
	cmd.Flags().BoolVar(&show, "show", false, "print the statements, and change nothing")
	store.Add(cmd)
	return cmd
}
