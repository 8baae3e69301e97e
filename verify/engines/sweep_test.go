// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"testing"
	"time"
)

// Rule: wherever a connection breaks, what was answered is so, what was not sent left nothing, and asking again puts it right.
// The whole sweep, over three members too, is in make verify.
func TestSweep(t *testing.T) {
	for _, k := range []Kind{Etcd, ZooKeeper, Postgres, MariaDB} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			store := Start(t, k)
			for _, o := range []Sweeping{
				{Cuts: []Cut{Lost}},
				{Cuts: []Cut{Late}, Ops: []string{"Try", "Release"}},
			} {
				began := time.Now()
				got := Sweep(t, store, o)
				t.Logf("%v in %v", got.Steps, time.Since(began))
				for _, f := range got.Found {
					t.Error(f)
				}
			}
		})
	}
}
