// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/hasplock/hasp/driver"
)

// An owner is a field of Redisson's form, and that one owner.
func TestFields(t *testing.T) {
	first := strings.Repeat("A", driver.OwnerLen)
	last := strings.Repeat("7", driver.OwnerLen)
	for owner, want := range map[string]string{
		first:            "00000000-0000-0000-0000-000000000000:4611686018427387904",
		last:             "ffffffff-ffff-ffff-ffff-ffffffffffff:4611686018427387907",
		first[:25] + "B": "00000000-0000-0000-0000-000000000000:4611686018427387905",
		first[:25] + "E": "00000000-0000-0000-0000-000000000001:4611686018427387904",
		"Q" + first[1:]:  "80000000-0000-0000-0000-000000000000:4611686018427387904",
	} {
		if got := fieldOf(owner); got != want {
			t.Errorf("%s is %s, want %s", owner, got, want)
		}
	}
	for range 1000 {
		owner := rand.Text()
		if got, ok := ownerOf(fieldOf(owner)); !ok || got != owner {
			t.Fatalf("%s became %s, %v", owner, got, ok)
		}
	}
	for _, text := range []string{
		"b983c153-7421-469a-addb-44fb92259a1b:37", "b983c153-7421-469a-addb-44fb92259a1b:4611686018427387908",
		"b983c153-7421-469a-addb-44fb92259a1b:9223372036854775807", "b983c153-7421-469a-addb-44fb92259a1b:99999999999999999999",
		"b983c153-7421-469a-addb-44fb92259a1b", "mode", "", "B983C153-7421-469A-ADDB-44FB92259A1B:4611686018427387904",
	} {
		if owner, ok := ownerOf(text); ok {
			t.Errorf("%q is the owner %s", text, owner)
		}
	}
}
