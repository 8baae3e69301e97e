// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Api compares what the public packages export with its listings in the folder api, one file a package, and fails over a
// difference. -write writes the listings: make api. Run it in the top folder.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	root   = "github.com/hasplock/hasp"
	folder = "api"
)

// private matches the packages that only this repository imports.
var private = regexp.MustCompile(`/internal(/|$)|^` + root + `/(adapters/examples|bench|cmd|deploy|interop|scripts|tools|verify)(/|$)|/browser$`)

func main() {
	write := flag.Bool("write", false, "write the listings")
	flag.Parse()
	differences, err := run(*write)
	if err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(2)
	}
	if differences != "" {
		fmt.Printf("%sIf that is meant, run make api and commit what it writes in %s/. What is gone breaks users: CHANGELOG.md tells them.\n",
			differences, folder)
		os.Exit(1)
	}
}

// run returns how the exported names differ from the listings, or writes the listings.
func run(write bool) (differences string, err error) {
	packages, err := load()
	for _, p := range packages {
		name := cmp.Or(strings.TrimPrefix(strings.TrimPrefix(p.Path(), root), "/"), "hasp")
		file := filepath.Join(folder, strings.ReplaceAll(name, "/", "-")+".txt")
		now := list(p)
		if write {
			err = errors.Join(err, os.WriteFile(file, []byte(now), 0o644))
			continue
		}
		before, missing := os.ReadFile(file)
		err = errors.Join(err, missing)
		differences += compare(name, cmp.Or(string(before), "\n"), now)
	}
	if files, _ := filepath.Glob(filepath.Join(folder, "*.txt")); len(files) > len(packages) {
		err = errors.Join(err, fmt.Errorf("%s has %d files for %d packages: if one is gone, remove its file, too", folder, len(files), len(packages)))
	}
	return differences, err
}

// load returns the public packages of all modules in go.work, from the compiler's export data.
func load() (packages []*types.Package, err error) {
	command := exec.Command("sh", "-c", `go list -export -deps -f '{{.ImportPath}} {{.Name}} {{.Export}}' $(go list -m -f '{{.Dir}}/...')`)
	command.Stderr = os.Stderr
	found, err := command.Output()
	exports := map[string]string{}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for line := range strings.Lines(string(found)) { // each package after its imports
		f := append(strings.Fields(line), "")
		exports[f[0]] = f[2]
		if (f[0] == root || strings.HasPrefix(f[0], root+"/")) && f[1] != "main" && !private.MatchString(f[0]) {
			p, failed := imports.Import(f[0])
			if failed != nil {
				return nil, failed
			}
			packages = append(packages, p)
		}
	}
	return packages, err
}

// compare says which lines are gone, which breaks a user of them, and which are new. The first line has counts only.
func compare(name, before, now string) (differences string) {
	had, has := strings.Split(before, "\n")[1:], strings.Split(now, "\n")[1:]
	for _, line := range had {
		if !slices.Contains(has, line) {
			differences += fmt.Sprintf("incompatible: %s no longer has: %s\n", name, line)
		}
	}
	for _, line := range has {
		if !slices.Contains(had, line) {
			differences += fmt.Sprintf("new: %s: %s\n", name, line)
		}
	}
	return differences
}

// list returns one line for each thing that a user of the package may rely on, below a line of counts. Whatever breaks a
// user takes a line away: a method that an interface gains changes the line of the interface, if others may implement it.
func list(p *types.Package) string {
	l := listing{home: p}
	names := slices.DeleteFunc(p.Scope().Names(), func(name string) bool { return !token.IsExported(name) })
	for _, name := range names {
		switch o := p.Scope().Lookup(name).(type) {
		case *types.Const:
			l.add("const %s %s = %s", name, l.text(o.Type()), o.Val().ExactString())
		case *types.Var:
			l.add("var %s %s", name, l.text(o.Type()))
		case *types.Func:
			l.add("func %s%s", name, l.signature(o))
		case *types.TypeName:
			l.addType(name, o)
		}
	}
	slices.Sort(l.lines)
	return fmt.Sprintf("# %s: %d names, and %d methods of its types. Written by make api.\n%s\n", p.Path(), len(names), l.methods,
		strings.Join(l.lines, "\n"))
}

type listing struct {
	home    *types.Package
	lines   []string
	methods int
}

func (l *listing) add(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *listing) text(t types.Type) string {
	return types.TypeString(nameless(t), func(p *types.Package) string {
		if p == l.home {
			return ""
		}
		return p.Name()
	})
}

func (l *listing) signature(o types.Object) string {
	return strings.TrimPrefix(l.text(o.Type()), "func")
}

// addType adds what a type is, its exported fields, and its methods.
func (l *listing) addType(name string, o *types.TypeName) {
	t := o.Type()
	if o.IsAlias() {
		l.add("type %s = %s", name, l.text(types.Unalias(t)))
		return
	}
	switch u := t.Underlying().(type) {
	case *types.Struct:
		l.add("type %s struct", name)
		if types.Comparable(t) {
			l.add("type %s struct, comparable", name)
		}
		for f := range u.Fields() {
			if f.Exported() {
				l.add("type %s struct, %s %s", name, f.Name(), l.text(f.Type()))
			}
		}
	case *types.Interface:
		methods, sealed := "", false
		for m := range u.Methods() {
			if m.Exported() {
				methods += " " + m.Name()
				l.add("type %s interface, %s%s", name, m.Name(), l.signature(m))
			}
			sealed = sealed || !m.Exported()
		}
		if sealed {
			methods = " implemented here only" // so that it may gain methods
		}
		l.add("type %s interface:%s", name, methods)
		return
	default:
		l.add("type %s %s", name, l.text(u))
	}
	value := types.NewMethodSet(t)
	for m := range types.NewMethodSet(types.NewPointer(t)).Methods() {
		if !m.Obj().Exported() {
			continue
		}
		l.methods++
		receiver := "*" + name
		if value.Lookup(nil, m.Obj().Name()) != nil {
			receiver = name
		}
		l.add("method (%s) %s%s", receiver, m.Obj().Name(), l.signature(m.Obj()))
	}
}

// nameless returns the type without the names of parameters, which are not part of it.
func nameless(t types.Type) types.Type {
	s, ok := t.(*types.Signature)
	if !ok {
		return t
	}
	strip := func(vars *types.Tuple) *types.Tuple {
		var out []*types.Var
		for v := range vars.Variables() {
			out = append(out, types.NewParam(token.NoPos, nil, "", nameless(v.Type())))
		}
		return types.NewTuple(out...)
	}
	return types.NewSignatureType(nil, nil, nil, strip(s.Params()), strip(s.Results()), s.Variadic())
}
