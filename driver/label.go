// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Label describes an owner to people. The process that asks for the lock writes
// it: treat all of it as hostile text.
type Label struct {
	Host   string `json:"host,omitempty"`
	PID    int    `json:"pid,omitempty"`
	User   string `json:"user,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Process is opaque; together with PID it identifies the process, so that the
	// same machine can tell whether it has ended. Empty where that is not known.
	Process string    `json:"process,omitempty"`
	Kept    bool      `json:"kept,omitempty"` // of a Shared holder: its work has ended, and it keeps the key on purpose. Reason says why
	Since   time.Time `json:"since,omitzero"` // when the acquisition began, by the owner's clock
}

// Encode returns the label as JSON of at most MaxLabel bytes, and shortens the
// longest texts where it must.
func (l Label) Encode() string {
	for limit := MaxLabel; ; limit /= 2 {
		for _, s := range []*string{&l.Host, &l.User, &l.Reason, &l.Process} {
			*s = clip(strings.ToValidUTF8(*s, "\uFFFD"), limit)
		}
		b, err := json.Marshal(l)
		if err != nil { // a year that JSON cannot carry
			l.Since = time.Time{}
			continue
		}
		if len(b) <= MaxLabel {
			return string(b)
		}
	}
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// ParseLabel parses what Encode wrote. ok is false for any other text.
func ParseLabel(s string) (l Label, ok bool) {
	if len(s) > MaxLabel || !strings.HasPrefix(s, "{") {
		return Label{}, false
	}
	if err := json.Unmarshal([]byte(s), &l); err != nil {
		return Label{}, false
	}
	return l, true
}

// Printable returns s with everything that a terminal might interpret, or that
// would break a line, escaped as in a Go string.
func Printable(s string) string {
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
