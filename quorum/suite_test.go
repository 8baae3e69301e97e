// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/memdriver"
)

// maxTTL is the largest of the suite's cases.
const maxTTL = 24 * time.Hour

// TestSuite holds quorums of memory to the specification of every engine.
func TestSuite(t *testing.T) {
	for _, n := range []int{3, 5, 7} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			if n > 3 {
				testserver.Variant(t, "more nodes")
			}
			drivertest.Run(t, drivertest.Harness{Fake: true, New: func(t testing.TB) drivertest.Store {
				all := make([]*memdriver.Store, n)
				for i := range all {
					all[i] = memdriver.NewNode(memdriver.NodeOptions{MaxTTL: maxTTL})
				}
				admitted(t, maxTTL, all)
				return drivertest.Store{
					Open: func() driver.Driver { return over(t, all, nil) },
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
