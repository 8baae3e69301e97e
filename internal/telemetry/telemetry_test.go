// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

func TestClass(t *testing.T) {
	for key, want := range map[string]string{
		"order:4711": "order", "cron/nightly:1": "cron", "a:b/c": "a", "leader": "leader", ":a": "", "/": "", "": "", "a\x00:b": "a\x00",
	} {
		if got := Class(key); got != want {
			t.Errorf("the class of %q is %q, want %q", key, got, want)
		}
	}
}

func TestLabel(t *testing.T) {
	long := strings.Repeat("é", MaxLabel)
	for class, want := range map[string]string{
		"order":                         "order",
		"größe":                         "größe",
		"":                              Other,
		"a\nb":                          `a\nb`,
		"\x1b[31m":                      `\x1b[31m`,
		"\xff":                          `\xff`,
		long:                            long[:MaxLabel],
		"x" + long:                      "x" + long[:MaxLabel-2],
		strings.Repeat("y", MaxLabel):   strings.Repeat("y", MaxLabel),
		strings.Repeat("y", MaxLabel+1): strings.Repeat("y", MaxLabel),
	} {
		if got := Label(class); got != want {
			t.Errorf("%q is shown as %q, want %q", class, got, want)
		}
	}
}

// Whatever a key holds, its label is short and printable.
func FuzzLabel(f *testing.F) {
	f.Add("order:1")
	f.Add(strings.Repeat("\xf0\x9f\x94\x92", 40))
	f.Add(strings.Repeat("\x80", 80))
	f.Fuzz(func(t *testing.T, key string) {
		got := Label(Class(key))
		if len(got) == 0 || len(got) > MaxLabel || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x00\x1b\x7f") {
			t.Errorf("%q is shown as %q", key, got)
		}
	})
}

func TestReason(t *testing.T) {
	held := &hasp.HeldError{}
	of := func(class driver.Class, err error) error {
		return &hasp.Error{Op: "lock", Key: "k", Class: class, Err: err}
	}
	silent := errors.New("no answer")
	seen := map[string]bool{}
	for _, c := range []struct {
		err    error
		want   string
		untold bool
	}{
		{of(0, held), "held", false},
		{of(0, &hasp.WaitError{End: context.DeadlineExceeded, Why: held}), "timeout", false},
		{of(0, &hasp.WaitError{End: context.Canceled, Why: held}), "canceled", false},
		{of(0, context.DeadlineExceeded), "timeout", false},
		{of(0, &hasp.WaitError{End: context.Canceled, Why: fmt.Errorf("dial: %w", context.DeadlineExceeded)}), "canceled", false},
		{of(0, &hasp.WaitError{End: hasp.ErrClosed, Why: held}), "closed", false},
		{of(0, fmt.Errorf("%w: %w", context.Canceled, hasp.ErrLost)), "lost", false},
		{of(driver.ClassUnreachable, silent), "unreachable", true},
		{of(driver.ClassUnreachable, &hasp.WaitError{End: context.DeadlineExceeded, Why: silent}), "unreachable", false},
		{of(driver.ClassUnreachable, voting.ErrNotVoting), "held_back", true},
		{of(driver.ClassDenied, silent), "denied", true},
		{of(driver.ClassMisconfigured, silent), "misconfigured", true},
		{of(driver.ClassImpossible, silent), "misconfigured", true},
		{of(0, hasp.ErrUnsupported), "misconfigured", true},
		{of(driver.ClassFull, silent), "full", true},
		{of(driver.ClassReadOnly, silent), "read_only", true},
		{of(driver.ClassLogin, silent), "login", true},
		{of(0, silent), "unknown", true},
		{nil, "unknown", true},
	} {
		got := Reason(c.err)
		if got != c.want || Untold(c.err, got) != c.untold {
			t.Errorf("%v: %s, untold: %v; want %s, %v", c.err, got, Untold(c.err, got), c.want, c.untold)
		}
		if !slices.Contains(Reasons(), got) {
			t.Errorf("%s is not one of the reasons", got)
		}
		seen[got] = true
	}
	if len(seen) != len(Reasons()) {
		t.Errorf("tried %d reasons of %d", len(seen), len(Reasons()))
	}
}
