// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// An instrumented file holds all of its mutants at once, each asleep until
// mutant(id) is true for it: see runtime.go. So a package is built once for all of them.
//
//	a < b        mutantLess(7, a, b) != mutant(8)
//	a && b       ((a || mutant(2)) != mutant(1) && (b || mutant(3)) != mutant(1)) != mutant(1)
//	if x         if x != mutant(4)
//	return true  return true != mutant(5)
//	case A       case mutantTag == A && !mutant(6)
//
// mutant(id) is only called where the change makes a difference, so that a test reaches a
// mutant only if it can distinguish it from the original.

// instrument returns the text of a Go file with its mutants, which are numbered from
// first on. No line moves.
func instrument(name string, source []byte, first int) ([]byte, []mutant, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	in := &instrumenter{fset: fset, source: source, name: name, next: first}
	for _, d := range file.Decls {
		in.declaration(d)
	}
	number(in.mutants)
	return in.text(), in.mutants, nil
}

type instrumenter struct {
	fset    *token.FileSet
	source  []byte
	name    string
	in      string // the current function
	next    int
	mutants []mutant
	edits   []edit
	results []*ast.FieldList // of the functions around, the innermost last
}

// edit replaces source[at:end]. Edits at one place keep the order in which they were made.
type edit struct {
	at, end int
	text    string
}

func (in *instrumenter) text() []byte {
	slices.SortStableFunc(in.edits, func(a, b edit) int { return a.at - b.at })
	var out []byte
	at := 0
	for _, e := range in.edits {
		out = append(out, in.source[at:e.at]...)
		out = append(out, e.text...)
		at = max(at, e.end)
	}
	return append(out, in.source[at:]...)
}

func (in *instrumenter) offset(p token.Pos) int { return in.fset.Position(p).Offset }

func (in *instrumenter) insert(p token.Pos, text string) {
	in.edits = append(in.edits, edit{in.offset(p), in.offset(p), text})
}

func (in *instrumenter) replace(p token.Pos, old, text string) {
	in.edits = append(in.edits, edit{in.offset(p), in.offset(p) + len(old), text})
}

// of returns the source of a node.
func (in *instrumenter) of(n ast.Node) string {
	return oneLine(string(in.source[in.offset(n.Pos()):in.offset(n.End())]))
}

// mutant records a change at a node, and returns its id.
func (in *instrumenter) mutant(at ast.Node, from, to string) int {
	id := in.next
	in.next++
	in.mutants = append(in.mutants, mutant{
		id: id, file: in.name, line: in.fset.Position(at.Pos()).Line, in: in.in, change: from + " -> " + to,
	})
	return id
}

func (in *instrumenter) declaration(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		in.in = funcName(d)
		if d.Body != nil {
			in.function(d.Type, d.Body)
		}
	case *ast.GenDecl:
		if d.Tok != token.VAR {
			return
		}
		for _, s := range d.Specs {
			v := s.(*ast.ValueSpec)
			in.in = v.Names[0].Name
			for _, value := range v.Values {
				in.walk(value)
			}
		}
	}
}

// funcName is name, or Type.name of a method.
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
			continue
		case *ast.IndexExpr:
			t = x.X
			continue
		case *ast.IndexListExpr:
			t = x.X
			continue
		case *ast.Ident:
			return x.Name + "." + d.Name.Name
		}
		return d.Name.Name
	}
}

func (in *instrumenter) function(t *ast.FuncType, body *ast.BlockStmt) {
	in.results = append(in.results, t.Results)
	in.walk(body)
	in.results = in.results[:len(in.results)-1]
}

// walk makes the mutants of all nodes within n.
func (in *instrumenter) walk(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			in.function(n.Type, n.Body)
		case *ast.IfStmt:
			in.each(n.Init)
			in.condition(n.Cond)
			in.each(n.Body, n.Else)
		case *ast.ForStmt:
			in.each(n.Init)
			in.condition(n.Cond)
			in.each(n.Post, n.Body)
		case *ast.SwitchStmt:
			in.choice(n)
		case *ast.ReturnStmt:
			in.result(n)
		case *ast.BinaryExpr:
			return in.binary(n)
		case *ast.GenDecl:
			return n.Tok == token.VAR
		default:
			return true
		}
		return false
	})
}

func (in *instrumenter) each(nodes ...ast.Node) {
	for _, n := range nodes {
		if n != nil {
			in.walk(n)
		}
	}
}

// condition makes the mutants of a condition. For a comparison the opposite operator is
// enough.
func (in *instrumenter) condition(x ast.Expr) {
	if x == nil {
		return
	}
	if b, ok := ast.Unparen(x).(*ast.BinaryExpr); ok && opposite[b.Op] != "" {
		in.walk(x)
		return
	}
	in.negate(x)
}

// negate makes a mutant in which x is negated.
func (in *instrumenter) negate(x ast.Expr) {
	text := in.of(x)
	id := in.mutant(x, text, not(x, text))
	in.insert(x.Pos(), "((")
	in.walk(x)
	in.insert(x.End(), fmt.Sprintf(") != mutant(%d))", id))
}

func not(x ast.Expr, text string) string {
	switch x := x.(type) {
	case *ast.Ident:
		switch x.Name {
		case "true":
			return "false"
		case "false":
			return "true"
		}
	case *ast.UnaryExpr:
		if x.Op == token.NOT {
			return strings.TrimPrefix(text, "!")
		}
	case *ast.BinaryExpr:
		return "!(" + text + ")"
	}
	return "!" + text
}

// opposite and boundary are the operators of a comparison's mutants.
var (
	opposite = map[token.Token]string{
		token.EQL: "!=", token.NEQ: "==", token.LSS: ">=", token.GEQ: "<", token.GTR: "<=", token.LEQ: ">",
	}
	boundary = map[token.Token]struct{ op, function string }{
		token.LSS: {"<=", "mutantLess"}, token.LEQ: {"<", "mutantAtMost"},
		token.GTR: {">=", "mutantMore"}, token.GEQ: {">", "mutantAtLeast"},
	}
)

// binary returns true if x has no mutants, but perhaps its operands have.
func (in *instrumenter) binary(x *ast.BinaryExpr) bool {
	switch {
	case x.Op == token.LAND || x.Op == token.LOR:
		in.logical(x)
	case opposite[x.Op] != "":
		in.comparison(x)
	default:
		return true
	}
	return false
}

func (in *instrumenter) comparison(x *ast.BinaryExpr) {
	a, b := in.of(x.X), in.of(x.Y)
	from := a + " " + x.Op.String() + " " + b
	in.insert(x.Pos(), "(")
	edge, ordered := boundary[x.Op]
	if ordered {
		in.insert(x.Pos(), fmt.Sprintf("%s(%d, ", edge.function, in.mutant(x, from, a+" "+edge.op+" "+b)))
	}
	in.walk(x.X)
	if ordered {
		in.replace(x.OpPos, x.Op.String(), ",")
	}
	in.walk(x.Y)
	if ordered {
		in.insert(x.End(), ")")
	}
	in.insert(x.End(), fmt.Sprintf(" != mutant(%d))", in.mutant(x, from, a+" "+opposite[x.Op]+" "+b)))
}

// logical swaps && and || and leaves out each operand. By De Morgan's rule the
// swap needs no second copy of the operands.
func (in *instrumenter) logical(x *ast.BinaryExpr) {
	a, b := in.of(x.X), in.of(x.Y)
	other := map[token.Token]string{token.LAND: "||", token.LOR: "&&"}[x.Op]
	from := a + " " + x.Op.String() + " " + b
	swap := in.mutant(x, from, bracketed(x.X, a)+" "+other+" "+bracketed(x.Y, b))
	in.insert(x.Pos(), "((")
	for _, o := range []struct {
		operand ast.Expr
		rest    string
	}{{x.X, b}, {x.Y, a}} {
		// To leave out a chain of the same operator is to leave out each of its parts.
		drop := ""
		if c, ok := ast.Unparen(o.operand).(*ast.BinaryExpr); !ok || c.Op != x.Op {
			id := in.mutant(x, from, o.rest)
			drop = fmt.Sprintf(" || mutant(%d)", id)
			if x.Op == token.LOR {
				drop = fmt.Sprintf(" && !mutant(%d)", id)
			}
		}
		in.insert(o.operand.Pos(), "(((")
		in.walk(o.operand)
		in.insert(o.operand.End(), fmt.Sprintf(")%s) != mutant(%d))", drop, swap))
	}
	in.insert(x.End(), fmt.Sprintf(") != mutant(%d))", swap))
}

// bracketed adds brackets to an operand where another operator needs them.
func bracketed(x ast.Expr, text string) string {
	if b, ok := x.(*ast.BinaryExpr); ok && (b.Op == token.LAND || b.Op == token.LOR) {
		return "(" + text + ")"
	}
	return text
}

// result negates returned bools.
func (in *instrumenter) result(r *ast.ReturnStmt) {
	types := flat(in.results[len(in.results)-1])
	for i, x := range r.Results {
		if len(types) == len(r.Results) && isBool(types[i]) {
			in.condition(x)
		} else {
			in.walk(x)
		}
	}
}

func isBool(t ast.Expr) bool {
	name, ok := t.(*ast.Ident)
	return ok && name.Name == "bool"
}

// flat returns the types of the results, one for each.
func flat(fields *ast.FieldList) []ast.Expr {
	var all []ast.Expr
	if fields != nil {
		for _, f := range fields.List {
			all = append(all, slices.Repeat([]ast.Expr{f.Type}, max(1, len(f.Names)))...)
		}
	}
	return all
}
