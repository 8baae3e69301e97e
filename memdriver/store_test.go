// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver_test

import (
	"testing"

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

func BenchmarkEngine(b *testing.B) {
	drivertest.Bench(b, drivertest.Harness{New: func(testing.TB) drivertest.Store {
		s := memdriver.New()
		return drivertest.Store{Open: func() driver.Driver { return s }}
	}})
}
