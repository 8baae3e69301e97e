// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package page writes results into the documents.
package page

import (
	"fmt"
	"os"
	"strings"
)

// Write puts text between the lines <!-- name --> and <!-- /name --> of a document, if there is one: the path may be empty.
func Write(path, name, text string) error {
	if path == "" {
		return nil
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->\n"
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(b), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("%s lacks the lines %q and %q", path, begin, end)
	}
	return os.WriteFile(path, []byte(before+begin+text+end+after), 0o644)
}
