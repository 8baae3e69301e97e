// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import "testing"

func TestVersionsThatRevokeRenewedLeases(t *testing.T) {
	for version, want := range map[string]bool{
		"3.4.23": true, "3.4.30": true, "3.4.31": false, "3.5.12": true, "3.5.13": false, "3.6.8": false, "3.3.27": true, "4.0.0": false, "": false, "x": false,
	} {
		if got := revokesRenewed(version); got != want {
			t.Errorf("%q: %v, want %v", version, got, want)
		}
	}
}
