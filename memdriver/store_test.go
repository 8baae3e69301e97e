// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver_test

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/memdriver"
)

func TestEngine(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		Fake: true,
		New: func(testing.TB) drivertest.Store {
			s := memdriver.New()
			return drivertest.Store{Open: func() driver.Driver { return s }, Leftovers: s.Leftovers}
		},
	})
}

// The same for a node, with a wall clock that is wrong.
func TestNode(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		Fake: true,
		New: func(testing.TB) drivertest.Store {
			s := memdriver.NewNode(memdriver.NodeOptions{MaxTTL: time.Hour, Now: func() time.Time {
				return time.UnixMicro(time.Now().UnixMicro()).Add(90 * time.Minute)
			}})
			return drivertest.Store{
				Open:      func() driver.Driver { return s },
				Leftovers: s.Leftovers,
				Restart:   func() { s.Restart(nil) },
				Reload:    func() { s.Restart(s.Snapshot()) },
				Flush:     s.Flush,
			}
		},
	})
}

func BenchmarkEngine(b *testing.B) {
	drivertest.Bench(b, drivertest.Harness{New: func(testing.TB) drivertest.Store {
		s := memdriver.New()
		return drivertest.Store{Open: func() driver.Driver { return s }}
	}})
}
