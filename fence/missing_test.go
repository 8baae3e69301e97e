// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"errors"
	"strings"
	"testing"
)

// The advice to run the schema is for a table or a column that is missing.
func TestAdviceIsAboutTheSchema(t *testing.T) {
	for text, want := range map[string]bool{
		"no such table: hasp_guard": true, `relation "hasp_guard" does not exist`: true, "Table 'd.hasp_guard' doesn't exist": true,
		`column "fence" does not exist`: true, "Unknown column 'fence' in 'SET'": true, `database "d" does not exist`: false, `role "app" does not exist`: false,
	} {
		if got := strings.Contains(failed("k", errors.New(text)).Error(), "SQL.Schema"); got != want {
			t.Errorf("%s: advised %v", text, got)
		}
	}
}
