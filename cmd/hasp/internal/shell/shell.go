// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package shell writes command lines that can be pasted into a shell.
package shell

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Join returns the words as one command line, quoted where they have to be.
func Join(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = Quote(w)
	}
	return strings.Join(quoted, " ")
}

// Bare says whether a word is plain text to every shell, bash, zsh, fish and
// PowerShell: quotes change nothing about it, and it cannot be taken for a flag.
// It says no to some words of which that is true.
func Bare(word string) bool {
	return word != "" && !strings.ContainsRune("-+@:", rune(word[0])) && !strings.ContainsFunc(word, func(c rune) bool {
		return !alphanumeric(c) && !strings.ContainsRune("_-+./:@", c)
	})
}

func alphanumeric(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// Quote returns a word as a POSIX shell reads it back, and as it is safe to
// print: what a terminal might act on is escaped within $'…', which bash, zsh,
// ksh and busybox know.
func Quote(word string) string {
	plain := func(c rune) bool { return alphanumeric(c) || strings.ContainsRune("_-+./:=,@%", c) }
	switch {
	case word == "":
		return "''"
	case word[0] != '=' && !strings.ContainsFunc(word, func(c rune) bool { return !plain(c) }): // zsh takes =ls for a path
		return word
	case utf8.ValidString(word) && !strings.ContainsFunc(word, func(c rune) bool { return !strconv.IsPrint(c) }):
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	const hex = "0123456789abcdef"
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(word) {
		switch c := word[i]; {
		case c < ' ' || c > '~':
			b.WriteString(`\x`)
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
