// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package plain makes text that others wrote safe to print: keys, reasons, and
// what a server says. A terminal acts on nothing in it, and no line can pass for
// another.
package plain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// ASCII: a terminal shows the text, and may not know UTF-8. The bytes of some
// characters are control characters to such a one: 0x9b begins what it acts on. So
// nothing but ASCII is printed. It is set before anything is printed.
var ASCII bool

// UTF8 says whether the environment asks for UTF-8, by the first that is set of
// LC_ALL, LC_CTYPE and LANG.
func UTF8(getenv func(string) string) bool {
	locale := strings.ToLower(cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")))
	return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
}

// Line returns s in one line. Whatever is no graphic character is written as in a
// Go string: \n, \x1b, \u202e. Backslashes stay as they are.
func Line(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unicode.IsPrint(r) && (r < 0x80 || !ASCII):
			b.WriteString(s[:size])
		case r == '…':
			b.WriteString("...")
		case r == '\n':
			b.WriteString(`\n`)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		s = s[size:]
	}
	return b.String()
}

// Lines is Line for each line of a text of our own.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = Line(l)
	}
	return strings.Join(lines, "\n")
}

// Error returns the text of an error, in one line, without programmers' jargon.
func Error(err error) string {
	const late = "no answer in time"
	text := err.Error()
	if errors.Is(err, io.EOF) && (text == "EOF" || strings.HasSuffix(text, ": EOF")) {
		text = strings.TrimSuffix(text, "EOF") + "it closed the connection"
	}
	text = strings.NewReplacer(context.DeadlineExceeded.Error(), late, os.ErrDeadlineExceeded.Error(), late,
		"its MaxHold of", "--max-hold of", "use a redis.ClusterClient", "the store's URL begins with redis+cluster:",
		"has cluster support disabled", "has cluster support disabled: the store's URL begins with redis:",
		"used memory > 'maxmemory'", "used memory > 'maxmemory' (find what fills it with redis-cli --bigkeys, or raise maxmemory)").Replace(text)
	text = strings.NewReplacer(late+": "+late, late, "timeout: "+late, late).Replace(text)
	return strings.TrimRight(Line(joined(text)), ".")
}

// Then is what was said, and the next sentence.
func Then(said, next string) string {
	if said = strings.TrimRight(said, ". "); !strings.HasSuffix(said, "?") {
		said += "."
	}
	return strings.TrimRight(said+" "+strings.TrimSpace(next), " ")
}

// joined returns the lines of a text in one. A line that the next begins with is left out: a
// driver that tried an address twice says so twice.
func joined(text string) string {
	var parts []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if n := len(parts); n > 0 && strings.HasPrefix(line, parts[n-1]) {
			parts[n-1] = line
		} else if line != "" {
			parts = append(parts, line)
		}
	}
	return strings.ReplaceAll(strings.Join(parts, "; "), ":; ", ": ")
}

// JSON returns v in one line. encoding/json leaves DEL, C1, bidi and other format
// characters as they are: here they are \u escapes.
func JSON(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var b []byte
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		switch { // nothing but ASCII that can be printed stands outside of strings
		case unicode.IsPrint(r) && (r < 0x80 || !ASCII):
			b = append(b, raw[:size]...)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		}
		raw = raw[size:]
	}
	return append(b, '\n'), nil
}

// WriteJSON writes v in one line.
func WriteJSON(w io.Writer, v any) error {
	line, err := JSON(v)
	if err != nil {
		return err
	}
	_, err = w.Write(line)
	return err
}
