// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"fmt"
	"testing"

	"github.com/ncruces/go-sqlite3"
)

// Rule: SQLite parses each statement once, and not again for each call.
func TestStatementsArePreparedOnce(t *testing.T) {
	path := newFile(t)
	used(t, path)
	c, err := sqlite3.Open(path)
	must(t, err)
	defer c.Close()
	for q, text := range sqliteText {
		s, _, err := c.Prepare(text)
		must(t, err)
		for round := range 3 {
			for i := range s.BindCount() {
				must(t, s.BindText(i+1, fmt.Sprint(round)))
			}
			for s.Step() {
			}
			_ = s.Reset() // an error of the tables' constraints
		}
		if n := s.Status(sqlite3.STMTSTATUS_REPREPARE, false); n != 0 {
			t.Errorf("statement %d was prepared again %d times:\n%s", q, n, text)
		}
		must(t, s.Close())
	}
}
