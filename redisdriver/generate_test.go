// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/hasplock/hasp/redisdriver/internal/wire"
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
		"bear":    {"bear", false},
		"inspect": {"inspect", false},
		"sweep":   {"sweep", false},
		"record":  {"record", true}, "admit": {"admit", true},
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
	directive = regexp.MustCompile(`(?m)^[ \t]*(<<(?:if|else|end|template|define)\b[^\n]*>>)\n`)
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
		short := directive.ReplaceAllString(comment.ReplaceAllString(string(text), ""), "$1")
		template.Must(all.New(name).Parse(short))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "-- Copyright 2026 The hasp Authors\n-- SPDX-License-Identifier: Apache-2.0\n")
	fmt.Fprintf(&b, "-- Code generated from src/%s.lua by go generate; DO NOT EDIT.\n", source)
	data := map[string]any{
		"Node": node, "Batch": source == "batch", "Lone": false, "Shared": layout.Shared, "Linger": layout.Linger, "Keep": layout.Keep, "Day": layout.Day,
		"Lead": layout.Lead, "Reach": layout.Reach, "Turn": layout.Turn, "Most": layout.Most, "Free": layout.Free, "Askers": layout.Askers,
	}
	if err := all.ExecuteTemplate(&b, source, data); err != nil {
		t.Fatal(err)
	}
	return blank.ReplaceAllString(b.String(), "\n")
}

// fields name the parts of the records, of which queue.lua, key.lua, fences.lua and
// node.lua say what they are.
var fields = template.FuncMap{
	// "<owner> <label>", or SHARED and a stamp
	"owner":    cut(1, 26),
	"newer":    func(v string) string { return "string.find(" + v + ", '" + laterText + "')" }, // as newer in data.go
	"after":    cut(28, 0),
	"shared":   func(v string) string { return cut(1, 27)(v) + " == '" + layout.Shared + "'" },
	"unshared": func(v string) string { return cut(1, 27)(v) + " ~= '" + layout.Shared + "'" },
	// a grant
	"grant": func(value, fence, since, state string) string {
		return fmt.Sprintf("sub(%s, 1, 26) .. ' ' .. %s .. ' ' .. %s .. ' ' .. %s", value, fence, since, state)
	},
	"fence": cut(28, 43),
	"since": cut(45, 57),
	"state": cut(59, 59),
	"mark":  cut(60, 60),
	"most":  cut(61, 76),
	"asks":  cut(77, 0),
	"enters": func(g string) string {
		return fmt.Sprintf(`string.find(%s, '^%%S+ %%d+ %%d+ %%d+ %%aE', 78) ~= nil`, g)
	},
	"ended": func(g string) string { return cut(1, 58)(g) + " .. 'F'" },
	"head":  cut(1, 59),
	"mute":  func(state string) string { return fmt.Sprintf("(%[1]s == 'm' or %[1]s == 'M')", state) },
	// how long a grant is kept, and as much longer as its fence is above the clock: once
	// it is forgotten, the clock is above it
	"lasting": func(px, fence string) string {
		return fmt.Sprintf("%[1]s + (%[2]s > stamp and math.ceil((%[2]s - stamp) / 1000) or 0)", px, fence)
	},
	// a lease of one who shares the key
	"leaseFence": cut(1, 16),
	"leaseState": cut(32, 32),
	"lease":      func(part ...string) string { return strings.Join(part, " .. ' ' .. ") }, // "'h 0 0 0'" is a reader's four
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

	// a request, and the answer to one that is refused, see try.lua
	"arg":     arg,
	"fields":  fieldsOf,
	"sizes":   sizes,
	"reply":   replied,
	"lone":    lone,
	"refusal": func(part ...string) string { return "{" + strings.Join(part, ", ") + "}" },

	// who a message is about: the length of the value, the value, and the lock
	"about": func(v string) string { return fmt.Sprintf("string.format('%%03d', #%[1]s) .. %[1]s .. K.lock", v) },

	"millis": cut(1, 13), // of a stamp
	"kilo":   cut(1, 7),  // its thousands of seconds
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

// arg is a field of the request that begins at at; it has the same place in some kinds.
func arg(field, of string) (text string, err error) {
	for _, kind := range strings.Fields(of) {
		place := slices.IndexFunc(fieldsOfKind(kind), func(f reflect.StructField) bool { return f.Name == field }) + 1
		if was := text; place == 0 {
			return "", fmt.Errorf("%s has no field %s", kind, field)
		} else if text = fmt.Sprintf("ARGV[at + %d]", place); was != "" && was != text {
			return "", fmt.Errorf("%s has field %s in another place", kind, field)
		}
	}
	return text, nil
}

// fieldsOf are the fields of a request as those of a Lua table.
func fieldsOf(kind string) string {
	var all []string
	for i, f := range fieldsOfKind(kind) {
		place := fmt.Sprintf("ARGV[at + %d]", i+1)
		if f.Tag.Get("lua") == "optional" {
			place += " ~= '' and " + place + " or nil"
		}
		all = append(all, "    "+f.Name+" = "+place)
	}
	return "{\n" + strings.Join(all, ",\n") + "}"
}

// lone is the data of a part that is for a request that comes alone.
func lone(data map[string]any) map[string]any {
	data = maps.Clone(data)
	data["Lone"] = true
	return data
}

// replied is what a script, or its function for a request, returns.
func replied(answer string, data map[string]any) string {
	switch {
	case data["Lone"] == false:
		return answer
	case data["Node"] == false:
		return "{" + answer + "}"
	}
	return "{" + answer + ", life}"
}

// sizes are how many keys, or fields, the requests of each kind have.
func sizes(of string) string {
	var all []string
	for _, k := range kinds {
		n := k.keys
		if of == "fields" {
			n = reflect.TypeOf(k.fields).NumField()
		}
		all = append(all, fmt.Sprintf("%s = %d", k.fields.args()[0], n))
	}
	return strings.Join(all, ", ")
}

func fieldsOfKind(kind string) []reflect.StructField {
	for _, k := range kinds {
		if k.fields.args()[0] == kind {
			return slices.Collect(reflect.TypeOf(k.fields).Fields())
		}
	}
	return nil
}

// Every key that a script touches is among those that it is called with: a server may refuse any other. So no script makes a name.
func TestScriptsMakeNoKeys(t *testing.T) {
	for _, s := range []*wire.Script{plain.batch, plain.extend, plain.keep, node.batch, node.extend, node.keep, bearScript, inspectScript, sweepScript, recordScript, admitScript, guardScript} {
		if made := regexp.MustCompile(`'hasp\.[^']*'|(KEYS\[[^]]*\]|K\.[a-z]+) *\.\.|\.\. *K(EYS\[|\.(queue|grant|places))`).FindString(s.Text()); made != "" {
			t.Errorf("a script makes a name: %s", made)
		}
	}
}

// A request has all the fields of its kind, in their order.
func TestRequestsHaveTheirFields(t *testing.T) {
	for _, args := range []interface{ args() []any }{
		tryArgs{"1", 2, "3", 4}, proposeArgs{"1", 2, "3", "4"}, tryAnyArgs{"1", 2, "3", 4, "5", "6", "7", "8", 9},
		releaseArgs{"1"}, withdrawArgs{"1", "2"}, releaseAnyArgs{"1", "2", "3", "4", "5"},
	} {
		have := args.args()
		if n := reflect.TypeOf(args).NumField(); len(have) != n+1 {
			t.Errorf("%v of %d fields", have, n)
		}
		for i, v := range have[1:] {
			if fmt.Sprint(v) != fmt.Sprint(i+1) {
				t.Errorf("%v are not in order", have)
			}
		}
	}
}
