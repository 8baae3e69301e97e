// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"os/exec"
	"strings"
	"testing"
	"unicode"
)

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"":          "''",
		"plain-1/2": "plain-1/2",
		"two words": "'two words'",
		"it's":      `'it'\''s'`,
		"$x":        "'$x'",
		"ключ":      "'ключ'",
		"=ls":       "'=ls'",
		"a=b":       "a=b",
		"a\nb'\\":   `$'a\x0ab\'\\'`,
		"\xff":      `$'\xff'`,
	} {
		if got := Quote(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}

func TestBare(t *testing.T) {
	for _, word := range []string{"a", "orders/42", "a.b_c-d+e", "host:6379", "user@host", "/etc/x", ".x", "7"} {
		if !Bare(word) {
			t.Errorf("%q needs no quoting", word)
		}
	}
	for _, word := range []string{"", "-a", "--store=x", "+x", "@x", ":x", "~", "~root", "=ls", "a=b", "$x", "`x`", "a b", "a;b", "a&b", "a|b", "a\\b", "a'b",
		`a"b`, "a(b)", "{a,b}", "a,b", "[a]", "*", "?", "!x", "^x", "#x", "%x", "<x", ">x", "a\tb", "a\nb", "a\x00", "\x1b", "\x7f", "é", "\u202e", "\xff"} {
		if Bare(word) {
			t.Errorf("%q is not plain text to every shell", word)
		}
	}
}

// A shell reads back what was quoted, and a terminal has nothing to act on.
func FuzzQuote(f *testing.F) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		f.Skip("SKIPPED WITHOUT A SHELL: bash is not installed")
	}
	for _, s := range []string{"", "a", "a b", "it's", "$(x)", "a\nb", "\xff\xfe", "\x1b[31m", "ключ", "\u202e", "~", "#", "!x", "=a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, word string) {
		if strings.ContainsRune(word, 0) {
			return // no shell carries it
		}
		quoted := Quote(word)
		if strings.ContainsFunc(quoted, func(c rune) bool { return !unicode.IsPrint(c) }) {
			t.Errorf("%q: %q is not safe to print", word, quoted)
		}
		cmd := exec.Command(bash, "-c", "printf %s "+quoted)
		cmd.Env = []string{"LC_ALL=C.UTF-8"}
		got, err := cmd.Output()
		if err != nil || string(got) != word {
			t.Errorf("%q: bash reads %q (%v) from %s", word, got, err, quoted)
		}
	})
}
