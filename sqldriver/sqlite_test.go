// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	// Under the race detector, on a busy machine, a renewal may take a second.
	drivertest.Run(t, drivertest.Harness{Parallel: true, AtOnce: 6, TTL: time.Second, New: func(t testing.TB) drivertest.Store {
		path := newFile(t)
		return drivertest.Store{Open: func() driver.Driver { return patient(t, path) }}
	}})
}
