// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/hasplock/hasp"
	"github.com/spf13/cobra"
)

func newInit() *cobra.Command {
	store := &storeFlag{}
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
		Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := store.open(cmd, nil)
			if err != nil {
				return err
			}
			defer l.Close()
			switch tables := l.store.Tables; {
			case tables == nil:
				note("the store %s needs no preparation", l.url)
				return nil
			case show:
				_, err := fmt.Fprint(stdout, tables.Schema)
				return err
			default:
				return l.makeTables(tables.Make)
			}
		},
	}
	cmd.Flags().BoolVar(&show, "show", false, "print the statements, and change nothing")
	store.add(cmd)
	return cmd
}

// makeTables makes what is missing, and says how it ended.
func (l *locks) makeTables(makes func(context.Context) error) error {
	ctx, cancel := asking()
	defer cancel()
	if err := makes(ctx); err != nil {
		return trouble(l.url, &hasp.Error{Op: "init", Engine: l.Traits().Engine, Class: l.store.Classify(err), Err: err})
	}
	note("the tables are in %s", l.url)
	return nil
}
