// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The table of the README says how many modules a program resolves, and how large it is, give or
// take a tenth, which another version of Go may change.
func TestWeights(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	weights, err := measure("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range weights {
		row := ""
		for line := range strings.Lines(string(readme)) {
			if strings.HasPrefix(strings.TrimSpace(line), "| "+w.name+" |") {
				row = strings.TrimSpace(line)
			}
		}
		var modules int
		var size float64
		if _, err := fmt.Sscanf(strings.TrimPrefix(row, "| "+w.name+" |"), " %d | %f MB |", &modules, &size); err != nil {
			t.Errorf("README.md has no row for %q: want %s", w.name, w)
			continue
		}
		if got := float64(w.bytes) / 1e6; modules != w.modules || got < size*0.9 || got > size*1.1 {
			t.Errorf("README.md says %s, and it is %s", row, w)
		}
	}
}
