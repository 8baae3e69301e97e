// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"testing"
)

// Variant leaves a test to make test-all: it differs from another test of make test only in what is named.
func Variant(t testing.TB, difference string) {
	t.Helper()
	if testing.Testing() && testing.Short() {
		t.Skipf("left to make test-all: %s", difference)
	}
}
