// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
)

// luaMutant is a mutant of a Lua file, with the whole text.
type luaMutant struct {
	mutant
	text string
}

// luaToken is a token of a Lua file. A comment, which may say how the scripts are built, counts as a space.
type luaToken struct {
	at, end int
	text    string
}

var luaTokens = regexp.MustCompile(`(?s)--[^\n]*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|\d[\w.]*|\.\.\.?|[=~<>]=|.`)

func tokenize(source string) []luaToken {
	var all []luaToken
	for _, at := range luaTokens.FindAllStringIndex(source, -1) {
		text := source[at[0]:at[1]]
		if strings.TrimSpace(text) == "" || strings.HasPrefix(text, "--") {
			continue
		}
		all = append(all, luaToken{at[0], at[1], text})
	}
	return all
}

var (
	luaOpposite = map[string]string{"==": "~=", "~=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "and": "or", "or": "and"}
	luaBoundary = map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
	luaOpens    = map[string]string{"(": ")", "[": "]", "{": "}"}
	luaCloses   = map[string]bool{")": true, "]": true, "}": true}
	// luaEnds end an expression on either side.
	luaEnds = wordSet("if elseif while until return = , ; then do end else repeat for local break in function")
	luaWord = regexp.MustCompile(`^(\w|'|"|\.\.\.)`)
)

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		set[w] = true
	}
	return set
}

// mutateLua returns the mutants of a Lua file.
func mutateLua(name, source string) []luaMutant {
	m := &luaMutator{name: name, source: source, tokens: tokenize(source), in: "main"}
	for i, t := range m.tokens {
		switch {
		case t.text == "function" && i+1 < len(m.tokens) && luaWord.MatchString(m.tokens[i+1].text):
			m.in = m.tokens[i+1].text
		case t.text == "and" || t.text == "or":
			m.logical(i)
		case luaOpposite[t.text] != "":
			m.comparison(i)
		case t.text == "not":
			m.add(i, i+1, i+1, "", i+2)
		case t.text == "if" || t.text == "elseif" || t.text == "while" || t.text == "until":
			m.condition(i)
		}
	}
	var plain []mutant
	for _, x := range m.mutants {
		plain = append(plain, x.mutant)
	}
	number(plain)
	for i := range plain {
		plain[i].id = i + 1
		m.mutants[i].mutant = plain[i]
	}
	return m.mutants
}

type luaMutator struct {
	name, source, in string
	tokens           []luaToken
	mutants          []luaMutant
}

// between returns the source from token i to before token j.
func (m *luaMutator) between(i, j int) string {
	if i >= j {
		return ""
	}
	return m.source[m.tokens[i].at:m.tokens[j-1].end]
}

// add records the mutant with text in place of the tokens from i to before j. Its
// change shows the tokens from first to before last.
func (m *luaMutator) add(first, i, j int, text string, last int) {
	if i == j { // the token before it is removed: a not
		i--
	}
	last = min(last, len(m.tokens))
	at, end := m.tokens[i].at, m.tokens[j-1].end
	from := m.between(first, last)
	to := m.source[m.tokens[first].at:at] + text + m.source[end:m.tokens[last-1].end]
	m.mutants = append(m.mutants, luaMutant{
		mutant: mutant{file: m.name, line: 1 + strings.Count(m.source[:at], "\n"), in: m.in, change: oneLine(from) + " -> " + oneLine(to)},
		text:   m.source[:at] + text + m.source[end:],
	})
}

// condition negates the condition between if and then.
func (m *luaMutator) condition(i int) {
	_, j := m.extent(i+1, 0)
	m.add(i+1, i+1, j, "not ("+m.between(i+1, j)+")", j)
}

func (m *luaMutator) comparison(i int) {
	t := m.tokens[i].text
	from, to := m.extent(i, 3)
	for _, op := range []string{luaBoundary[t], luaOpposite[t]} {
		if op != "" {
			m.add(from, i, i+1, op, to)
		}
	}
}

// logical swaps and with or, and leaves out each operand.
func (m *luaMutator) logical(i int) {
	t := m.tokens[i].text
	level := 1 // or
	if t == "and" {
		level = 2
	}
	from, to := m.extent(i, level)
	m.add(from, i, i+1, luaOpposite[t], to)
	m.add(from, from, i+1, "", to)
	m.add(from, i, to, "", to)
}

// extent is the expression around token i, from operators that bind less than those of
// a level to such operators: 0 all, 1 those around or, 2 around and, 3 around a comparison.
func (m *luaMutator) extent(i, level int) (from, to int) {
	binds := func(text string) bool { // less
		return level > 1 && text == "or" || level > 2 && text == "and"
	}
	depth := 0
	for from = i; from > 0; from-- {
		t := m.tokens[from-1].text
		if depth == 0 && (luaEnds[t] || luaOpens[t] != "" || binds(t) || from < i && m.splits(from-1)) {
			break
		}
		if level == 2 && depth == 0 && t == "and" || level == 1 && depth == 0 && t == "or" {
			break
		}
		if luaCloses[t] {
			depth++
		} else if luaOpens[t] != "" {
			depth--
		}
	}
	depth = 0
	for to = i; to < len(m.tokens); to++ {
		t := m.tokens[to].text
		if depth == 0 && (luaEnds[t] || luaCloses[t] || to > i && (binds(t) || m.splits(to-1))) {
			break
		}
		if to > i && depth == 0 && (level == 2 && t == "and" || level == 1 && t == "or") {
			break
		}
		if luaOpens[t] != "" {
			depth++
		} else if luaCloses[t] {
			depth--
		}
	}
	return from, to
}

// splits reports whether a statement ends with token i and the next one begins: two
// operands are adjacent.
func (m *luaMutator) splits(i int) bool {
	a, b := m.tokens[i].text, m.tokens[i+1].text
	operator := func(t string) bool { return t == "and" || t == "or" || t == "not" }
	return (luaWord.MatchString(a) || luaCloses[a]) && luaWord.MatchString(b) && !operator(a) && !operator(b)
}
