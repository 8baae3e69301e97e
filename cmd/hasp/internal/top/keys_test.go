// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
)

// recorder notes the keys that it is sent, up to a Q.
type recorder struct {
	keyboard keyboard
	keys     []Key
}

func (r *recorder) Init() tea.Cmd  { return nil }
func (r *recorder) View() tea.View { return tea.View{} }

func (r *recorder) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	for _, k := range r.keyboard.keys(msg) {
		if k.Text == "Q" {
			return r, tea.Quit
		}
		r.keys = append(r.keys, k)
	}
	return r, nil
}

// read are the keys of what a terminal sends, each part in a packet of its own, so long after the one before. No time passes besides.
func read(t *testing.T, pause time.Duration, parts ...string) []Key {
	t.Helper()
	r := &recorder{}
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		defer in.Close()
		go func() {
			for i, part := range append(parts, "Q") {
				if i > 0 {
					time.Sleep(pause)
				}
				_, _ = io.WriteString(out, part) // it is read, or the test fails
			}
		}()
		_, err := tea.NewProgram(r, tea.WithInput(in), tea.WithOutput(io.Discard), tea.WithoutSignalHandler(), tea.WithWindowSize(80, 24)).Run()
		if err != nil {
			t.Fatal(err)
		}
	})
	return r.keys
}

func TestKeys(t *testing.T) {
	char := func(s string) Key { return Key{Text: s} }
	for in, want := range map[string][]Key{
		"aé丛":                           {char("a"), char("é"), char("丛")},
		"\r\n\x7f\b\x15\x0e\x10":        {{Code: Enter}, {Code: Enter}, {Code: Backspace}, {Code: Backspace}, {Code: Clear}, {Code: Down}, {Code: Up}},
		"\x1b[A\x1bOB\x1b[5~\x1b[6~":    {{Code: Up}, {Code: Down}, {Code: PageUp}, {Code: PageDown}},
		"\x1b[H\x1b[4~\x1bOF":           {{Code: Home}, {Code: End}, {Code: End}},
		"\x1b[1;5Ax\x1b[200x":           {char("x")}, // keys that count for nothing
		"\x1bq":                         {{Code: Escape}, char("q")},
		"\x1b\x1b[A":                    {{Code: Escape}, {Code: Up}},
		"\x01\x00\xff\xc3(\u202eG ":     {char("("), char("G"), char(" ")},
		"\x1b[200~by\r\x1b[A\x1b[201~q": {{Paste, "by[A"}, char("q")},
		"\x1b[200~" + strings.Repeat("x", 9000) + "\x1b[201~q": {{Paste, strings.Repeat("x", mostPaste)}, char("q")},
	} {
		if got := read(t, 0, in); !reflect.DeepEqual(got, want) {
			t.Errorf("%.40q: %.200v, want %.200v", in, got, want)
		}
		for _, k := range read(t, 0, in) {
			if strings.ContainsFunc(k.Text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%.40q: %q", in, k.Text)
			}
		}
		if len(in) > 40 {
			continue
		}
		switch in { // what Bubble Tea makes of these differs in parts
		case "\x1b[200~by\r\x1b[A\x1b[201~q":
			want[0].Text = "by"
		case "\x1b\x1b[A":
			want = []Key{{Code: Escape}, char("["), char("A")}
		}
		if got := read(t, 0, strings.Split(in, "")...); !reflect.DeepEqual(got, want) {
			t.Errorf("%.40q, in parts: %v, want %v", in, got, want)
		}
	}
}

// An escape is the key when nothing follows, and the beginning of another when the rest comes soon.
func TestEscapes(t *testing.T) {
	for pause, want := range map[time.Duration][]Key{20 * time.Millisecond: {{Code: Up}}, time.Second: {{Code: Escape}, {Text: "["}, {Text: "A"}}} {
		if got := read(t, pause, "\x1b", "[", "A"); !reflect.DeepEqual(got, want) {
			t.Errorf("every %v: %v, want %v", pause, got, want)
		}
	}
	if got := read(t, time.Second, "\xe4\xb8", "q"); !reflect.DeepEqual(got, []Key{{Text: "q"}}) { // and no more of it
		t.Errorf("after half a character: %v", got)
	}
}

func TestWidth(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "é": 1, "e\u0301": 1, "丛x": 3, "…": 1, "→": 1, "ｘ": 2, "🙂": 2} {
		if got := Width(text); got != want {
			t.Errorf("%q takes %d, want %d", text, got, want)
		}
		if got := Width(Pad(text, 2)); got != 2 && want != 1 {
			t.Errorf("%q in 2 columns: %q", text, Pad(text, 2))
		}
	}
	if Pad("abc", 0) != "" || Pad("abc", -1) != "" || Pad("a", 3) != "a  " {
		t.Error("Pad")
	}
}
