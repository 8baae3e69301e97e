// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// mutant is one change of one condition.
type mutant struct {
	id     int    // from 1 on
	file   string // from the top folder, with slashes
	line   int
	in     string // the function
	change string // "a < b -> a <= b"
}

// key names a mutant for the list of survivors, whatever stands above it in its file.
func (m mutant) key() string { return m.file + " " + m.in + ": " + m.change }

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d %s: %s", m.file, m.line, m.in, m.change)
}

// number gives mutants of one key that are in one function a number each, from the second on.
func number(mutants []mutant) {
	times := map[string]int{}
	for i := range mutants {
		key := mutants[i].key()
		if times[key]++; times[key] > 1 {
			mutants[i].change += fmt.Sprintf(" (%d)", times[key])
		}
	}
}

// oneLine is source text as a change shows it.
func oneLine(source string) string {
	text := strings.Join(strings.Fields(source), " ")
	if len(text) > 160 {
		text = strings.ToValidUTF8(text[:160], "") + "..."
	}
	return text
}
