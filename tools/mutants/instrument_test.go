// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every mutant does what its change says, for all values of its operands, and the
// others leave the expression alone.
func TestMutantsDoWhatTheySay(t *testing.T) {
	exprs := []string{
		"a && b", "a || b", "a && !b || c", "a && (b || c)", "a || b && c", "!(a && b)", "a && b && c", "a || b || c",
		"x < y", "x <= y", "x > y", "x >= y", "x == y", "x != y", "x+1 < 2*y && a", "a == (x < y)", "x < y == b", "!a",
	}
	var source, checks strings.Builder
	source.WriteString("package main\n")
	const params = "(a, b, c bool, x, y int) bool"
	for i, e := range exprs {
		fmt.Fprintf(&source, "func f%d%s {\n\tif %s {\n\t\treturn a == a\n\t}\n\treturn a != a\n}\n", i, params, e)
	}
	text, mutants, err := instrument("f.go", []byte(source.String()), 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range exprs {
		fmt.Fprintf(&checks, "\tcheck(0, %q, f%d, func%s { return %s })\n", e, i, params, e)
	}
	n := 0
	for _, m := range mutants {
		from, to, _ := strings.Cut(m.change, " -> ")
		if strings.HasPrefix(from, "a == a") || strings.HasPrefix(from, "a != a") {
			continue
		}
		var i int
		if _, err := fmt.Sscanf(m.in, "f%d", &i); err != nil {
			t.Fatal(err)
		}
		with := strings.Replace(exprs[i], from, "("+to+")", 1)
		if with == exprs[i] {
			t.Fatalf("%s is not in %s", from, exprs[i])
		}
		fmt.Fprintf(&checks, "\tcheck(%d, %q, f%d, func%s { return %s })\n", m.id, m.change, i, params, with)
		n++
	}
	if n < 60 {
		t.Errorf("only %d mutants", n)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module f\n\ngo 1.26\n", "f.go": string(text), "runtime.go": runtimeSource("main", len(mutants)),
		"main.go": "package main\n\nimport \"fmt\"\n\nfunc main() {\n" + checks.String() + "}\n\n" + `
func check(id int, change string, f, want func(a, b, c bool, x, y int) bool) {
	mutantAwake = id
	for i := range 32 {
		a, b, c, x, y := i&1 != 0, i&2 != 0, i&4 != 0, 1, 1
		if i&8 != 0 { x = 2 }
		if i&16 != 0 { y = 2 }
		if f(a, b, c, x, y) != want(a, b, c, x, y) {
			fmt.Println(change, "is wrong for", a, b, c, x, y)
		}
	}
}
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	out, err := output(t.Context(), dir, "go", "run", ".")
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
