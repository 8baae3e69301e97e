// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
)

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
		"\x01\x00\xff\xc3(\u202e":       {char("(")},
		"\x1b[200~by\r\x1b[A\x1b[201~q": {{Paste, "by[A"}, char("q")},
		"\x1b[200~" + strings.Repeat("x", 9000) + "\x1b[201~q":      {{Paste, strings.Repeat("x", mostPaste)}, char("q")},
		"\x1b[" + strings.Repeat("1;", mostSequence) + "\x1b[201~q": {char("q")},
	} {
		var whole, parts decoder
		if got := whole.feed([]byte(in)); !reflect.DeepEqual(got, want) {
			t.Errorf("%.40q: %.200v, want %.200v", in, got, want)
		}
		var got []Key
		for i := range len(in) {
			got = append(got, parts.feed([]byte{in[i]})...)
		}
		if !reflect.DeepEqual(got, want) && len(in) < 40 {
			t.Errorf("%.40q, byte by byte: %v, want %v", in, got, want)
		}
	}
}

// An escape is the key when nothing follows, and the beginning of another when the rest comes soon.
func TestEscapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chunks, keys := make(chan []byte), make(chan Key, 10)
		go decode(chunks, keys)
		chunks <- []byte("\x1b")
		began := time.Now()
		if k := <-keys; k.Code != Escape || time.Since(began) != escapeWait {
			t.Errorf("%+v after %v", k, time.Since(began))
		}
		chunks <- []byte("\x1b")
		time.Sleep(escapeWait / 2)
		chunks <- []byte("[")
		time.Sleep(escapeWait / 2)
		chunks <- []byte("A")
		if k := <-keys; k.Code != Up {
			t.Errorf("%+v", k)
		}
		chunks <- []byte("\xe4\xb8") // and no more of it
		time.Sleep(2 * escapeWait)
		chunks <- []byte("q")
		if k := <-keys; k.Text != "q" {
			t.Errorf("%+v", k)
		}
		close(chunks)
		if _, ok := <-keys; ok {
			t.Error("there are keys of a terminal that is gone")
		}
	})
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

// No bytes make a key that is no text, or keep the next one from being heard.
func FuzzKeys(f *testing.F) {
	f.Add([]byte("\x1b[200~x\x1b[201~\x1b[A"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var d decoder
		for _, k := range d.feed(in) {
			if strings.ContainsFunc(k.Text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q", k.Text)
			}
		}
		if len(d.rest) > mostPaste+len(in) {
			t.Errorf("%d bytes are kept", len(d.rest))
		}
	})
}
