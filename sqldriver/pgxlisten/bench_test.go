// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pgxlisten_test

import (
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/testserver"
)

func BenchmarkPostgres(b *testing.B) {
	server := testserver.Postgres(b)
	drivertest.Bench(b, drivertest.Harness{New: func(t testing.TB) drivertest.Store {
		c := newSchema(t, server)
		return drivertest.Store{Open: func() driver.Driver { return open(t, c) }}
	}})
}
