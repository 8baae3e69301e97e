// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"testing"

	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

func BenchmarkEngine(b *testing.B) {
	drivertest.Bench(b, harness(Options{}, server(b).Addr()))
}

// The two writes that a lock cannot do without.
func BenchmarkBare(b *testing.B) {
	w := newWorld(b)
	w.grant(w.driver(), ask("k")) // it makes the folders
	s, err := w.admin.session(w.ctx)
	must(b, err)
	for b.Loop() {
		create := zk.Create(w.root+"/k/bare-", nil, w.admin.acl, zk.EphemeralSequential)
		if err := s.Do(w.ctx, create); err != nil || create.Err != nil {
			b.Fatal(err, create.Err)
		}
		must(b, s.Do(w.ctx, zk.Delete(create.Path)))
	}
}
