// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package expect has what most tests of hasp do with an error.
package expect

import "testing"

// Need ends a test with an error.
func Need(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Check fails a test, which goes on, with an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
