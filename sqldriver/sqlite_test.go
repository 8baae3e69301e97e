// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
)

func TestSuite(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Parallel: true, New: func(t testing.TB) drivertest.Store {
		path := newFile(t)
		return drivertest.Store{Open: func() driver.Driver { return patient(t, path) }}
	}})
}
