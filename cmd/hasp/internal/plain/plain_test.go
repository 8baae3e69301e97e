// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"encoding/json"
	"errors"
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
	if got, want := Error(errors.Join(errors.New("a\x1b"), errors.New("b"))), `a\x1b; b`; got != want {
		t.Errorf("%q, want %q", got, want)
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
