// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc.md")
	for _, c := range []struct{ was, want string }{
		{"a\n<!-- x -->\nold\n<!-- /x -->\nb\n", "a\n<!-- x -->\nnew\n<!-- /x -->\nb\n"},
		{"<!-- x -->\n<!-- /x -->\n", "<!-- x -->\nnew\n<!-- /x -->\n"},
		{"<!-- x -->\nold\n", ""},
		{"<!-- y -->\nold\n<!-- /y -->\n", ""},
	} {
		if err := os.WriteFile(path, []byte(c.was), 0o600); err != nil {
			t.Fatal(err)
		}
		err := Write(path, "x", "new\n")
		got, _ := os.ReadFile(path)
		switch {
		case c.want == "" && (err == nil || string(got) != c.was):
			t.Errorf("%q: %v, and became %q", c.was, err, got)
		case c.want != "" && (err != nil || string(got) != c.want):
			t.Errorf("%q: %v, and became %q, want %q", c.was, err, got, c.want)
		}
	}
}
