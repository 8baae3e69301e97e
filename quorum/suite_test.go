// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hasplock/hasp/quorum"
)

// maxTTL is the largest of the suite's cases.
const maxTTL = 24 * time.Hour

// stores are n empty stores that vote.
func voters(t testing.TB, n int) []*memdriver.Store {
	t.Helper()
	all := make([]*memdriver.Store, n)
	for i := range all {
		all[i] = memdriver.NewNode(memdriver.NodeOptions{MaxTTL: maxTTL})
		rec, err := all[i].Record(t.Context())
		if err == nil {
			err = all[i].Admit(t.Context(), rec, maxTTL)
		}
		need(t, err)
	}
	return all
}

// over is a quorum of stores.
func over(stores []*memdriver.Store) *quorum.Driver {
	nodes := make([]voting.Node, len(stores))
	for i, s := range stores {
		nodes[i] = s
	}
	return quorum.New(nodes, nil)
}

// TestSuite holds quorums of memory to the specification of every engine.
func TestSuite(t *testing.T) {
	for _, n := range []int{3, 5, 7} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			if n > 3 {
				testserver.Variant(t, "more nodes")
			}
			drivertest.Run(t, drivertest.Harness{Fake: true, New: func(t testing.TB) drivertest.Store {
				all := voters(t, n)
				return drivertest.Store{
					Open: func() driver.Driver { return over(all) },
					Ended: func(key string) bool {
						return !slices.ContainsFunc(all, func(s *memdriver.Store) bool {
							info, err := s.Inspect(t.Context(), key)
							return err != nil || info.Held
						})
					},
				}
			}})
		})
	}
}
