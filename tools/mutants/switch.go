// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// choice makes the mutants of a switch. A switch over a value becomes one over conditions,
// so that each value can be left out.
func (in *instrumenter) choice(s *ast.SwitchStmt) {
	in.each(s.Init)
	tag := ""
	switch {
	case s.Tag == nil:
	case s.Init == nil && hasValues(s):
		in.insert(s.Tag.Pos(), "mutantTag := (")
		in.walk(s.Tag)
		in.insert(s.Tag.End(), "); ")
		tag = "mutantTag"
	case plain(s.Tag):
		tag = in.of(s.Tag)
		in.edits = append(in.edits, edit{in.offset(s.Tag.Pos()), in.offset(s.Tag.End()), ""})
	default:
		in.walk(s.Tag) // its values stay
	}
	for _, c := range s.Body.List {
		clause := c.(*ast.CaseClause)
		for i, x := range clause.List {
			switch {
			case s.Tag == nil:
				in.condition(x)
			case tag == "":
				in.walk(x)
			default:
				in.value(clause, i, tag)
			}
		}
		for _, stmt := range clause.Body {
			in.walk(stmt)
		}
	}
}

// value makes a mutant that leaves out value i of a case.
func (in *instrumenter) value(c *ast.CaseClause, i int, tag string) {
	var from, to []string
	for j, x := range c.List {
		from = append(from, in.of(x))
		if j != i {
			to = append(to, in.of(x))
		}
	}
	rest := "no case"
	if len(to) > 0 {
		rest = "case " + strings.Join(to, ", ")
	}
	x := c.List[i]
	id := in.mutant(x, "case "+strings.Join(from, ", "), rest)
	in.insert(x.Pos(), tag+" == (")
	in.walk(x)
	in.insert(x.End(), fmt.Sprintf(") && !mutant(%d)", id))
}

func hasValues(s *ast.SwitchStmt) bool {
	return slices.ContainsFunc(s.Body.List, func(c ast.Stmt) bool { return len(c.(*ast.CaseClause).List) > 0 })
}

// plain reports whether an expression may be evaluated several times.
func plain(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return true
	case *ast.SelectorExpr:
		return plain(x.X)
	}
	return false
}
