// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"

	"github.com/hasplock/hasp"
)

// An alias hides the fields of its type from the documentation of this package,
// so its comment lists them: all, in order, with their types.
func TestAliasesListTheirFields(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "mode.go", nil, parser.ParseComments)
	need(t, err)
	listed := map[string][]string{}
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		name := g.Specs[0].(*ast.TypeSpec).Name.Name
		for line := range strings.Lines(g.Doc.Text()) {
			if strings.HasPrefix(line, "\t") {
				words := strings.Fields(line)
				listed[name] = append(listed[name], words[0]+" "+words[1])
			}
		}
	}
	for name, typ := range map[string]reflect.Type{
		"Info": reflect.TypeFor[hasp.Info](), "Holder": reflect.TypeFor[hasp.Holder](), "Label": reflect.TypeFor[hasp.Label](),
	} {
		var want []string
		for f := range typ.Fields() {
			// Where the root has an alias, the comment uses it.
			want = append(want, f.Name+" "+strings.NewReplacer("driver.Holder", "Holder", "driver.Mode", "Mode").Replace(f.Type.String()))
		}
		if !reflect.DeepEqual(listed[name], want) {
			t.Errorf("the comment of %s lists %q, want %q", name, listed[name], want)
		}
	}
}
