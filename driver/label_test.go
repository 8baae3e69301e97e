// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hasplock/hasp/driver"
)

// A label that fits is whole; one that does not loses the ends of its longest texts,
// between characters, and stays a label.
func TestLabelFits(t *testing.T) {
	whole := driver.Label{Host: "web-3", PID: 4121, User: "deploy", Reason: "nightly", Process: "p"}
	empty := len(driver.Label{Reason: "x"}.Encode()) - 1
	for _, c := range []struct {
		name string
		l    driver.Label
		cut  bool
	}{
		{"short", whole, false},
		{"of the largest size", driver.Label{Reason: strings.Repeat("r", driver.MaxLabel-empty)}, false},
		{"one more", driver.Label{Reason: strings.Repeat("r", driver.MaxLabel-empty+1)}, true},
		{"two bytes each", driver.Label{Reason: strings.Repeat("\u00e9", driver.MaxLabel)}, true},
		{"three bytes each, after one", driver.Label{Host: "h" + strings.Repeat("\u20ac", driver.MaxLabel)}, true},
		{"three bytes each, after two", driver.Label{Host: "hh" + strings.Repeat("\u20ac", driver.MaxLabel)}, true},
		{"a host of the largest size", driver.Label{Host: strings.Repeat("h", driver.MaxLabel)}, true},
		{"all of them", driver.Label{Host: strings.Repeat("h", 600), User: strings.Repeat("u", 600), Reason: strings.Repeat("r", 600)}, true},
		{"no time that JSON can carry", driver.Label{Host: "h", Since: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)}, true},
	} {
		text := c.l.Encode()
		got, ok := driver.ParseLabel(text)
		if !ok || len(text) > driver.MaxLabel || !utf8.ValidString(text) || strings.Contains(text, "\uFFFD") {
			t.Errorf("%s: %d bytes, %q", c.name, len(text), text)
		}
		if (got != c.l) != c.cut {
			t.Errorf("%s: it became %+v", c.name, got)
		}
		if c.cut && c.l.Reason != "" && (got.Reason == "" || !strings.HasPrefix(c.l.Reason, got.Reason)) {
			t.Errorf("%s: the reason became %q", c.name, got.Reason)
		}
	}
}

// What others wrote is no label.
func TestParseLabel(t *testing.T) {
	full := `{"reason":"` + strings.Repeat("r", driver.MaxLabel-len(`{"reason":""}`)) + `"}`
	for text, want := range map[string]bool{
		`{}`: true, `{"pid":7}`: true, full: true, full + " ": false,
		"": false, "text": false, "[]": false, "null": false, ` {"pid":7}`: false, `{"pid":`: false, `{"pid":"x"}`: false,
	} {
		if l, ok := driver.ParseLabel(text); ok != want || !ok && l != (driver.Label{}) {
			t.Errorf("%q: %+v, %v", text, l, ok)
		}
	}
}

func TestValidOwner(t *testing.T) {
	good := strings.Repeat("A", driver.OwnerLen-1)
	for _, c := range "AMZ237" {
		if !driver.ValidOwner(good + string(c)) {
			t.Errorf("%q is not valid", c)
		}
	}
	for _, c := range "@[az18/:-\x00\x7f" {
		if driver.ValidOwner(good+string(c)) || driver.ValidOwner(string(c)+good) {
			t.Errorf("%q is valid", c)
		}
	}
	if driver.ValidOwner(good) || driver.ValidOwner(good+"AA") || driver.ValidOwner("") {
		t.Error("another length is valid")
	}
}
