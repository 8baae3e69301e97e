// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/verify/broken"
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

// Rule: what the sweep looks for it finds, when a driver does it.
func TestBrokenDriversAreCaught(t *testing.T) {
	t.Parallel()
	store := Start(t, Etcd)
	for _, c := range []struct {
		name, op, want string
		without        broken.Fault
	}{
		{"every error is one of a request that was not sent", "Try", "not to be sent", broken.NeverSent},
		{"each Try has an owner of its own", "Try", "asked again", broken.NewOwners},
		{"a release has no answer, and is believed", "Release", "it was released, and", broken.TrustRelease},
		{"a renewal without an answer is a loss", "Renew", "it is said not to be held", broken.LossOfSilence},
		{"no hints", "Watch and join", "got no hint", broken.NoHints},
		{"a release frees the key of any holder", "Release", "took the next one's lease", broken.BlindRelease},
		{"fences fall", "Try", "came after", broken.FallingFences},
		{"one holder more", "Renew", "another owner asks", broken.RenewReleases},
		{"what was not released", "Inspect", "at the end it is held", broken.LookLeaves},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var text string
			for range 5 { // which messages travel together differs, and so what a cut hits
				got := Sweep(t, store, Sweeping{Cuts: []Cut{Lost, Late}, Ops: []string{c.op}, Beside: 4, First: true, Broken: c.without})
				if text = strings.Join(got.Found, "\n"); strings.Contains(text, c.want) {
					return
				}
			}
			t.Errorf("found %q, want %q", text, c.want)
		})
	}
}
