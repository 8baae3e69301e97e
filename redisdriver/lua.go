// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"embed"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// The scripts are built of these files when they are first used. Each file is Lua. A comment that begins with --# says what is
// built: "include NAME" puts in another file, or a part of one, which stands between "part NAME" and "end"; "if node" and
// the like choose lines. F.name(…) stands for a part of a text, and F.Name for a number: see field.
//
//go:embed lua/*.lua
var sources embed.FS

// scripts differ where a node record is kept.
type scripts struct{ batch, extend, keep *wire.Script }

var (
	plain = scripts{load("batch", false), load("extend", false), load("keep", false)}
	node  = scripts{load("batch", true), load("extend", true), load("keep", true)}

	bearScript    = load("bear", false)
	inspectScript = load("inspect", false)
	sweepScript   = load("sweep", false)
	recordScript  = load("record", true)
	admitScript   = load("admit", true)
)

// load returns a script, which is built when it is first used.
func load(name string, node bool) *wire.Script {
	s := wire.NewScript(func() string { return build(name, node) })
	s.Fault = dataError
	if s.Batch = name == "batch"; s.Batch && node {
		s.Keys = []any{recordKey, proposedKey}
	}
	return s
}

// built is one script while it is built.
type built struct {
	node  bool // for a node, with its record
	batch bool // the script of Try and Release
	lone  bool // this part is for a request that came alone
	text  strings.Builder
}

// build returns the text of a script.
func build(name string, node bool) string {
	b := &built{node: node, batch: name == "batch"}
	b.include(name)
	return b.text.String()
}

// include adds a file, or a part of one.
func (b *built) include(name string) {
	skip, depth := 0, 0 // the depth of the "if" that is left out, 0: none; and the depth of this line
	for line := range strings.Lines(part(name)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "--#" && words[1] == "if":
			if depth++; skip == 0 && !b.is(words[2:]) {
				skip = depth
			}
		case words[0] == "--#" && words[1] == "else":
			if skip == 0 {
				skip = depth
			} else if skip == depth {
				skip = 0
			}
		case words[0] == "--#" && words[1] == "end":
			if skip == depth {
				skip = 0
			}
			depth--
		case skip > 0:
		case words[0] == "--#":
			was := b.lone
			b.lone = was || len(words) == 4
			b.include(words[2])
			b.lone = was
		case !strings.HasPrefix(words[0], "--"):
			b.text.WriteString(b.expand(line))
		}
	}
}

// is says whether a condition holds: "node", "not node".
func (b *built) is(words []string) bool {
	of := map[string]bool{"node": b.node, "batch": b.batch, "lone": b.lone}
	return of[words[len(words)-1]] == (len(words) == 1)
}

// part returns the lines of a file without its parts, or of a part.
func part(name string) string {
	text, ok := parts()[name]
	if !ok {
		panic("redisdriver: there is no Lua part " + name) // embedded: it is there or no test passes
	}
	return text
}

// parts are the files and their parts, by name, all read once: a script is made of thirty.
var parts = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	files, _ := sources.ReadDir("lua")
	for _, f := range files {
		text, _ := sources.ReadFile("lua/" + f.Name())
		whole, rest, more := strings.Cut(string(text), partBegin)
		for more {
			name, behind, _ := strings.Cut(rest, "\n")
			var after string
			all[name], behind, _ = strings.Cut(behind, partEnd)
			after, rest, more = strings.Cut(behind, partBegin)
			whole += after
		}
		all[strings.TrimSuffix(f.Name(), ".lua")] = whole
	}
	return all
})

const (
	partBegin = "--# part "
	partEnd   = "--# end part\n"
)

// expand replaces each F.name(…) and F.Name in a line.
func (b *built) expand(line string) string {
	var out strings.Builder
	for {
		at := strings.Index(line, "F.")
		if at < 0 {
			return out.String() + line
		}
		out.WriteString(line[:at])
		line = line[at+2:]
		end := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsLetter(r) })
		name := line[:end]
		if line = line[end:]; line[0] != '(' {
			out.WriteString(constant(name))
			continue
		}
		var args []string
		args, line = arguments(line[1:])
		for i := range args {
			args[i] = b.expand(args[i])
		}
		out.WriteString(b.field(name, args))
	}
}

// arguments cuts the arguments of a call, which ends with its parenthesis, and returns what follows.
func arguments(text string) (args []string, rest string) {
	depth, from, quoted := 0, 0, false
	for i, c := range text {
		switch {
		case c == '\'':
			quoted = !quoted
		case quoted:
		case c == ',' && depth == 0, c == ')' && depth == 0:
			args = append(args, strings.TrimSpace(text[from:i]))
			if from = i + 1; c == ')' {
				return args, text[from:]
			}
		case strings.ContainsRune("({[", c):
			depth++
		case strings.ContainsRune(")}]", c):
			depth--
		}
	}
	panic("redisdriver: a call in Lua goes on beyond its line: " + text)
}

// constant is a number, or a word, of layout.
func constant(name string) string { return fmt.Sprint(reflect.ValueOf(layout).FieldByName(name)) }

// cuts are the parts of the records, of which queue.lua, key.lua, fences.lua and node.lua say what they are: from one byte to
// another; 0: to the end.
var cuts = map[string][2]int{
	"owner": {1, 26}, "after": {28, 0}, // of "<owner> <label>", or SHARED and a stamp
	"fence": {28, 43}, "since": {45, 57}, "state": {59, 59}, "mark": {60, 60}, "most": {61, 76}, "asks": {77, 0}, "head": {1, 59}, // of a grant
	"leaseFence": {1, 16}, "leaseState": {32, 32}, // of a lease of an owner that shares the key
	"markOld": {1, 16}, "markMid": {18, 33}, "markCur": {35, 50}, "markAt": {52, 0}, // of the proposals' mark
	"recordWord": {1, 3}, "recordRun": {4, 43}, "recordLife": {4, 19}, "recordMost": {45, 0}, // of a node's record
	"millis": {1, 13}, "kilo": {1, 7}, // of a stamp: its milliseconds, and its thousands of seconds
}

func cut(text string, from, to int) string {
	if to == 0 {
		return fmt.Sprintf("sub(%s, %d)", text, from)
	}
	return fmt.Sprintf("sub(%s, %d, %d)", text, from, to)
}

// field is what F.name(…) stands for.
func (b *built) field(name string, a []string) string {
	if c, ok := cuts[name]; ok {
		return cut(a[0], c[0], c[1])
	}
	switch name {
	case "node", "batch", "lone": // the first in such a script, the second in others
		if b.is([]string{name}) {
			return a[0]
		}
		return a[1]
	case "newer": // as newer in errors.go
		return fmt.Sprintf("string.find(%s, '%s')", a[0], laterText)
	case "mayBeNewer": // a quick look at a grant, for the fast paths: those of now begin with a capital letter or a digit
		return a[0] + " >= 'v'"
	case "shared":
		return cut(a[0], 1, 27) + " == '" + layout.Shared + "'"
	case "unshared":
		return cut(a[0], 1, 27) + " ~= '" + layout.Shared + "'"
	case "grant": // of a value, a fence, ms and a state
		return cut(a[0], 1, 26) + " .. ' ' .. " + strings.Join(a[1:], " .. ' ' .. ")
	case "lease":
		return strings.Join(a, " .. ' ' .. ")
	case "enters":
		return fmt.Sprintf(`string.find(%s, '^%%S+ %%d+ %%d+ %%d+ %%aE', 78) ~= nil`, a[0])
	case "ended":
		return cut(a[0], 1, 58) + " .. 'F'"
	case "mute":
		return fmt.Sprintf("(%[1]s == 'm' or %[1]s == 'M')", a[0])
	case "lasting": // how long a grant is kept, and as much longer as its fence is above the clock: once it is forgotten, the clock is above it
		return fmt.Sprintf("%[1]s + (%[2]s > stamp and math.ceil((%[2]s - stamp) / 1000) or 0)", a[0], a[1])
	case "about": // which owner a message is about: the length of the value, the value, and the lock
		return fmt.Sprintf("string.format('%%03d', #%[1]s) .. %[1]s .. K.lock", a[0])
	case "reply": // what a script, or its function for a request, returns
		return b.reply(strings.TrimSpace(strings.Join(a, ", ")))
	}
	return request(name, a)
}

// reply is the answer of a request that comes alone as that of a script, and that of others as it is.
func (b *built) reply(answer string) string {
	if b.lone && b.node {
		return "{" + answer + ", life}"
	}
	return answer
}

// request is what F.arg, F.fields and F.sizes stand for: the fields of the requests in layout.
func request(name string, a []string) string {
	of := strings.Trim(a[len(a)-1], "'")
	var all []string
	switch name {
	case "arg": // a field of the request that begins at at; it has the same place in some kinds
		for _, kind := range strings.Fields(of) {
			place := slices.IndexFunc(fieldsOf(kind), func(f reflect.StructField) bool { return f.Name == strings.Trim(a[0], "'") })
			all = append(all, fmt.Sprintf("ARGV[at + %d]", place+1))
		}
		if all = slices.Compact(all); len(all) == 1 && all[0] != "ARGV[at + 0]" {
			return all[0]
		}
	case "fields": // all of a request, as those of a Lua table
		for i, f := range fieldsOf(of) {
			place := fmt.Sprintf("ARGV[at + %d]", i+1)
			if f.Tag.Get("lua") == "optional" {
				place += " ~= '' and " + place + " or nil"
			}
			all = append(all, "    "+f.Name+" = "+place)
		}
		return "{\n" + strings.Join(all, ",\n") + "}"
	case "sizes": // how many keys, or fields, the requests of each kind have
		for _, k := range kinds {
			n := k.keys
			if of == "fields" {
				n = reflect.TypeOf(k.fields).NumField()
			}
			all = append(all, fmt.Sprintf("%s = %d", k.fields.args()[0], n))
		}
		return strings.Join(all, ", ")
	}
	panic(fmt.Sprintf("redisdriver: there is no F.%s(%s)", name, strings.Join(a, ", "))) // as of part
}

func fieldsOf(kind string) []reflect.StructField {
	for _, k := range kinds {
		if k.fields.args()[0] == kind {
			return slices.Collect(reflect.TypeOf(k.fields).Fields())
		}
	}
	return nil
}
