// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"
)

var generate = flag.Bool("generate", false, "write the scripts in lua")

// TestScriptsAreGenerated: the scripts are what lua/src makes of them; go generate
// writes them.
func TestScriptsAreGenerated(t *testing.T) {
	for name, of := range map[string]struct {
		source string
		node   bool
	}{
		"batch": {"batch", false}, "batch_node": {"batch", true},
		"extend": {"extend", false}, "extend_node": {"extend", true},
		"keep": {"keep", false}, "keep_node": {"keep", true},
		"lone_node": {"lone", true}, "inspect": {"inspect", false},
		"record": {"record", true}, "admit": {"admit", true},
	} {
		text := generated(t, of.source, of.node)
		file := filepath.Join("lua", name+".lua")
		if *generate {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(file); err != nil || string(have) != text {
			t.Errorf("%s is not what lua/src says (%v): run go generate", file, err)
		}
	}
}

// In the sources << and >> enclose what is generated. A line with nothing else leaves
// no line, nor does a comment.
var (
	directive = regexp.MustCompile(`(?m)^[ \t]*(<<(?:if|else|end|template)\b[^\n]*>>)\n`)
	comment   = regexp.MustCompile(`(?m)^[ \t]*--.*\n`)
	blank     = regexp.MustCompile(`\n{2,}`)
)

func generated(t *testing.T, source string, node bool) string {
	t.Helper()
	all := template.New("").Delims("<<", ">>").Funcs(fields)
	files, err := filepath.Glob("lua/src/*.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		short := comment.ReplaceAllString(directive.ReplaceAllString(string(text), "$1"), "")
		template.Must(all.New(name).Parse(short))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "-- Copyright 2026 The hasp Authors\n-- SPDX-License-Identifier: Apache-2.0\n")
	fmt.Fprintf(&b, "-- Code generated from src/%s.lua by go generate; DO NOT EDIT.\n", source)
	data := map[string]any{
		"Node": node, "Shared": layout.Shared, "Linger": layout.Linger, "Keep": layout.Keep, "Day": layout.Day,
		"Lead": layout.Lead, "Reach": layout.Reach, "Turn": layout.Turn, "Most": layout.Most, "Free": layout.Free,
	}
	if err := all.ExecuteTemplate(&b, source, data); err != nil {
		t.Fatal(err)
	}
	return blank.ReplaceAllString(b.String(), "\n")
}

// fields name the parts of the records, of which line.lua, held.lua, fences.lua and
// node.lua say what they are.
var fields = template.FuncMap{
	// "<owner> <label>", or SHARED and a stamp
	"owner":    cut(1, 26),
	"after":    cut(28, 0),
	"shared":   func(v string) string { return "sub(" + v + ", 1, 27) == SHARED" },
	"unshared": func(v string) string { return "sub(" + v + ", 1, 27) ~= SHARED" },
	// a grant
	"grant": func(value, fence, state string) string {
		return fmt.Sprintf("sub(%s, 1, 26) .. ' ' .. %s .. ' ' .. sub(stamp, 1, 13) .. ' ' .. %s", value, fence, state)
	},
	"fence": cut(28, 43),
	"since": cut(45, 57),
	"state": cut(59, 59),
	"mark":  cut(60, 60),
	"wrote": cut(61, 76),
	"head":  cut(1, 59),
	// a lease of one who shares the key
	"leaseFence": cut(1, 16),
	"leaseState": cut(32, 32),
	// the proposals' mark
	"markOld": cut(1, 16),
	"markMid": cut(18, 33),
	"markCur": cut(35, 50),
	"markAt":  cut(52, 0),
	// a node's record
	"recordWord": cut(1, 3),
	"recordRun":  cut(4, 43),
	"recordLife": cut(4, 19),
	"recordMost": cut(45, 0),

	"millis": cut(1, 13), // of a stamp
	"side":   cut(11, 0), // what the names of all sidecars of a lock end with, of that of its line
}

// cut is the part of a text from one byte to another; 0: to its end.
func cut(from, to int) func(string) string {
	return func(text string) string {
		if to == 0 {
			return fmt.Sprintf("sub(%s, %d)", text, from)
		}
		return fmt.Sprintf("sub(%s, %d, %d)", text, from, to)
	}
}
