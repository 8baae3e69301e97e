// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// readSurvivors reads the list of the mutants that may survive: a line with the key of a
// mutant, then indented lines with the reason.
func readSurvivors(r io.Reader) (map[string]string, error) {
	reasons := map[string]string{}
	key := ""
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		text := strings.TrimSpace(line)
		switch {
		case text == "" || strings.HasPrefix(line, "#"):
		case text == line:
			if key != "" && reasons[key] == "" {
				return nil, fmt.Errorf("no reason for %s", key)
			}
			if _, twice := reasons[text]; twice {
				return nil, fmt.Errorf("line %d: %s is there already", n, text)
			}
			key = text
			reasons[key] = ""
		case key == "":
			return nil, fmt.Errorf("line %d: a reason without a mutant", n)
		default:
			reasons[key] = strings.TrimSpace(reasons[key] + " " + text)
		}
	}
	if key != "" && reasons[key] == "" {
		return nil, fmt.Errorf("no reason for %s", key)
	}
	return reasons, lines.Err()
}
