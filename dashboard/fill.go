// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"embed"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"strings"
	"text/template/parse"
)

// templates are those of html/template that the pages need: text in an element, or in quotes; fields and functions, but no methods.
// html/template may call any method by its name, so that a linker keeps all methods of all types: a third of a program that
// has every engine. A test compares each page with what html/template makes of it. What a template says wrong is a panic.
type templates struct {
	trees map[string]*parse.Tree
	funcs map[string]reflect.Value
}

// read reads the templates of a folder, which call these functions.
func read(files embed.FS, funcs map[string]any) *templates {
	t := &templates{map[string]*parse.Tree{}, map[string]reflect.Value{}}
	maps.Copy(funcs, map[string]any{
		"not": func(v any) bool { return !truth(reflect.ValueOf(v)) },
		"or":  func(a, b any) bool { return truth(reflect.ValueOf(a)) || truth(reflect.ValueOf(b)) },
		"eq":  func(a, b any) bool { return a == b },
		"ne":  func(a, b any) bool { return a != b },
	})
	for name, f := range funcs {
		t.funcs[name] = reflect.ValueOf(f)
	}
	names, err := fs.Glob(files, "templates/*.html")
	for _, name := range names {
		var text []byte
		var trees map[string]*parse.Tree
		if text, err = files.ReadFile(name); err == nil {
			trees, err = parse.Parse(path.Base(name), string(text), "", "", funcs)
		}
		if err != nil {
			break
		}
		maps.Copy(t.trees, trees)
	}
	if err != nil {
		panic(err)
	}
	return t
}

// fill writes a template, filled in with data.
func (t *templates) fill(to *bytes.Buffer, name string, data any) {
	top := reflect.ValueOf(data)
	(&filling{t, to, top}).node(t.trees[name].Root, top)
}

// filling is one template that is filled in.
type filling struct {
	*templates
	to  *bytes.Buffer
	top reflect.Value // $
}

func (f *filling) node(n parse.Node, dot reflect.Value) {
	switch n := n.(type) {
	case *parse.ListNode:
		for _, n := range n.Nodes {
			f.node(n, dot)
		}
	case *parse.TextNode:
		f.to.Write(n.Text)
	case *parse.ActionNode:
		f.to.WriteString(strings.ReplaceAll(html.EscapeString(fmt.Sprint(f.value(n.Pipe, dot).Interface())), "\x00", "\ufffd"))
	case *parse.IfNode:
		switch {
		case truth(f.value(n.Pipe, dot)):
			f.node(n.List, dot)
		case n.ElseList != nil:
			f.node(n.ElseList, dot)
		}
	case *parse.RangeNode:
		for _, v := range f.value(n.Pipe, dot).Seq2() {
			f.node(n.List, v)
		}
	case *parse.TemplateNode:
		data := f.value(n.Pipe, dot)
		(&filling{f.templates, f.to, data}).node(f.trees[n.Name].Root, data)
	default:
		panic(fmt.Sprintf("dashboard: a template has %v", n))
	}
}

// value is that of a pipe of one command.
func (f *filling) value(n parse.Node, dot reflect.Value) (v reflect.Value) {
	switch n := n.(type) {
	case *parse.PipeNode:
		return f.value(n.Cmds[0], dot)
	case *parse.CommandNode:
		called, ok := n.Args[0].(*parse.IdentifierNode)
		if !ok {
			return f.value(n.Args[0], dot)
		}
		var args []reflect.Value
		for _, arg := range n.Args[1:] {
			args = append(args, f.value(arg, dot))
		}
		v = f.funcs[called.Ident].Call(args)[0]
	case *parse.DotNode:
		return dot
	case *parse.FieldNode:
		v = field(dot, n.Ident)
	case *parse.VariableNode:
		v = field(f.top, n.Ident[1:])
	case *parse.StringNode:
		return reflect.ValueOf(n.Text)
	}
	if v.Kind() == reflect.Interface {
		return v.Elem()
	}
	return v // of a node that is none of these it is nothing, and cannot be used
}

func field(v reflect.Value, names []string) reflect.Value {
	for _, name := range names {
		v = v.FieldByName(name)
	}
	return v
}

// truth is as in html/template: nothing, and what is empty, is false.
func truth(v reflect.Value) bool {
	if v.Kind() == reflect.Slice {
		return v.Len() > 0
	}
	return !v.IsZero()
}
