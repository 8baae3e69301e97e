// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
)

func BenchmarkEngine(b *testing.B) {
	drivertest.Bench(b, drivertest.Harness{New: func(t testing.TB) drivertest.Store {
		path := newFile(t)
		return drivertest.Store{Open: func() driver.Driver { return NewSQLite(openFile(t, path)) }}
	}})
}
