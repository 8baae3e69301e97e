// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"
)

// listed returns the listing of a package with this text.
func listed(t *testing.T, text string) string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", "package p\n"+text, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := (&types.Config{Importer: importer.Default()}).Check("example.org/p", files, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return list(p)
}

func TestAChangeThatBreaksUsersIsToldFromANewName(t *testing.T) {
	for _, c := range []struct{ name, before, now, want string }{
		{"nothing", "func F(a int) error", "func F(b int) (err error)", ""},
		{"parameter of a function that is given", "func F(f func(a int))", "func F(f func(b int))", ""},
		{"function gone", "func F(int)\nfunc G()", "func G()", "incompatible: p no longer has: func F(int)\n"},
		{"another result", "func F() int", "func F() string", "incompatible: p no longer has: func F() int\nnew: p: func F() string\n"},
		{"new function", "func F()", "func F()\nfunc G()", "new: p: func G()\n"},
		{"value of a constant", "const A uint8 = 1", "const A uint8 = 2", "incompatible: p no longer has: const A uint8 = 1\nnew: p: const A uint8 = 2\n"},
		{"field gone", "type T struct{ A, B int }", "type T struct{ B, a int }", "incompatible: p no longer has: type T struct, A int\n"},
		{"no longer comparable", "type T struct{}", "type T struct{ a []int }", "incompatible: p no longer has: type T struct, comparable\n"},
		{"method gone", "type T int\nfunc (T) M() {}", "type T int", "incompatible: p no longer has: method (T) M()\n"},
		{"method of the pointer only", "type T int\nfunc (T) M() {}", "type T int\nfunc (*T) M() {}",
			"incompatible: p no longer has: method (T) M()\nnew: p: method (*T) M()\n"},
		{"embedded", "type T struct{ u }\ntype u struct{}\nfunc (u) M() {}", "type T struct{ u }\ntype u struct{}", "incompatible: p no longer has: method (T) M()\n"},
		{"interface that others implement", "type I interface{ A() }", "type I interface{ A(); B() }",
			"incompatible: p no longer has: type I interface: A\nnew: p: type I interface, B()\nnew: p: type I interface: A B\n"},
		{"interface that only the package implements", "type I interface{ A(); m() }", "type I interface{ A(); B(); m() }", "new: p: type I interface, B()\n"},
		{"alias", "type A = int", "type A = string", "incompatible: p no longer has: type A = int\nnew: p: type A = string\n"},
		{"unexported", "type t int\nfunc f() t { return 0 }", "var v int", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := compare("p", listed(t, c.before), listed(t, c.now)); got != c.want {
				t.Errorf("%q\nbecame %q:\n%s\nwant:\n%s", c.before, c.now, got, c.want)
			}
		})
	}
}

func TestTheHeadingCountsNamesAndMethods(t *testing.T) {
	want := "# example.org/p: 3 names, and 1 methods of its types. Written by make api.\n"
	if got := listed(t, "const A, b = 1, 2\nvar C int\ntype T int\nfunc (T) M() {}\nfunc (T) m() {}"); !strings.HasPrefix(got, want) {
		t.Errorf("the listing begins with %q, want %q", got, want)
	}
}
