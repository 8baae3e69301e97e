// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/hasplock/hasp/verify/modes"
)

func init() {
	modes.WorkerMain() // returns at once unless this process was started as one
	shows = append(shows, show{"modes", "semaphores, LockAll, elections and read-write locks by many processes; some are killed or stopped", modesShow})
}

func modesShow(flags *flag.FlagSet) func(*testserver.Program) []row {
	lasting := flags.Duration("for", time.Minute, "how long processes are killed and stopped, of each kind on each store")
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()), "of what is drawn")
	return func(t *testserver.Program) []row {
		var rows []row
		for _, kind := range []engines.Kind{engines.SQLite, engines.Redis} {
			store := engines.Start(t, kind)
			for _, o := range []modes.Options{
				{Kind: modes.Semaphore, Processes: 64, Kill: true},
				{Kind: modes.LockAll, Processes: 32, Kill: true},
				{Kind: modes.Election, Processes: 8, Kill: true, Stop: true},
				{Kind: modes.ReadWrite, Processes: 32, Kill: true, Stop: true},
			} {
				o.Store, o.For, o.Seed = store, *lasting, *seed
				out, err := modes.Run(t, o)
				t.Must(err)
				t.Logf("%s, %s, seed %d: %v", kind, o.Kind, *seed, out)
				for _, f := range out.Found {
					t.Logf("  FOUND: %s", f)
				}
				rows = append(rows, judged(len(out.Found) == 0, fmt.Sprintf("%s: %s, %d processes, some killed: rules broken", kind, o.Kind, o.Processes),
					"0", "%d; %d turns in %v, %d killed, %d of them holders, %d stopped",
					len(out.Found), out.Granted, out.Tried.Round(time.Second), out.Killed, out.Holding, out.Stopped))
			}
		}
		return rows
	}
}
