// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		`a "b" \ é 世 ;`:           `a "b" \ é 世 ;`,
		"\x1b]0;title\a":          `\x1b]0;title\x07`,
		"a\nb\tc\rd":              `a\nb\x09c\x0dd`,
		"\u009b31m\x7f":           `\u009b31m\x7f`,
		"\u202eoot\u2066\u200b":   `\u202eoot\u2066\u200b`,
		"\U000e0041\u00a0\u2028":  `\U000e0041\u00a0\u2028`,
		"\xff\x9b1m\xed\xa0\x80":  `\xff\x9b1m\xed\xa0\x80`,
		"a replacement: \uFFFD.":  "a replacement: \uFFFD.",
		"combining e\u0301 stays": "combining e\u0301 stays",
	} {
		if got := Line(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got, want := Lines("ours:\n\x1b[2J\n"), "ours:\n\\x1b[2J\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for text, want := range map[string]string{
		"a\x1b\nb": `a\x1b; b`,
		"failed to connect to `user=u`:\n\ta:1: refused\n\ta:1: refused; is it there": "failed to connect to `user=u`: a:1: refused; is it there",
		"\na\n\n b \n": "a; b",
		"":             "",
	} {
		if got := Error(errors.New(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// What comes out has nothing that a terminal acts on, and JSON means the same as
// before.
func FuzzPlain(f *testing.F) {
	f.Add("a\u009b\x7f\u202e\U000e0041<&>\u2028\"\\\n\xff")
	f.Fuzz(func(t *testing.T, text string) {
		line, err := JSON(map[string]string{"key": text})
		if err != nil {
			t.Fatal(err)
		}
		for _, out := range []string{Line(text), strings.TrimSuffix(string(line), "\n")} {
			if i := strings.IndexFunc(out, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%q: %q has %q", text, out, out[i:])
			}
		}
		var back map[string]string
		if err := json.Unmarshal(line, &back); err != nil || back["key"] != strings.ToValidUTF8(text, "\uFFFD") && !strings.Contains(back["key"], "\uFFFD") {
			t.Errorf("%q came back as %q (%v)", text, back["key"], err)
		}
	})
}

// A terminal without UTF-8 takes parts of characters for what it acts on.
func TestASCII(t *testing.T) {
	ASCII = true
	defer func() { ASCII = false }()
	text := "é 丛 \U0001f600 a… \xff"
	if got, want := Line(text), `\u00e9 \u4e1b \U0001f600 a... \xff`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	line, err := JSON(text[:len(text)-1])
	var back string
	if err != nil || json.Unmarshal(line, &back) != nil || back != text[:len(text)-1] || strings.ContainsFunc(string(line), func(r rune) bool { return r >= 0x80 }) {
		t.Errorf("%q, %v", line, err)
	}
	for _, c := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"LANG": "C.UTF-8"}, true},
		{map[string]string{"LANG": "de_DE.utf8", "LC_CTYPE": ""}, true},
		{map[string]string{"LANG": "C.UTF-8", "LC_ALL": "C"}, false},
		{map[string]string{"LANG": "C.UTF-8", "LC_CTYPE": "de_DE.ISO-8859-1"}, false},
		{map[string]string{"LC_ALL": "en_US.UTF-8", "LC_CTYPE": "C"}, true},
	} {
		if got := UTF8(func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%v: %v", c.env, got)
		}
	}
}

// EOF is a word of programmers.
func TestEOF(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{io.EOF, "it closed the connection"},
		{fmt.Errorf("127.0.0.1:1: %w", io.EOF), "127.0.0.1:1: it closed the connection"},
		{fmt.Errorf("EOF %w there", io.EOF), "EOF EOF there"},
		{errors.New("not in EOF"), "not in EOF"},
	} {
		if got := Error(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
