// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
)

// trace is all that happened in a run, to be read when something is wrong. Its text is made only when it is printed.
type trace struct {
	w *world

	mu    sync.Mutex
	lines []line
}

type line struct {
	at     time.Duration
	format string
	args   []any // which do not change
}

func (t *trace) add(format string, args ...any) {
	at := t.w.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line{at, format, args})
}

// nothing matches what says nothing in a request or an answer: fields that are not set, labels, and the end of an owner.
var nothing = regexp.MustCompile(`(Claim|[A-Z]\w+Request):|Key:` + key + ` |Label:\{[^}]*\} *` +
	`|\b[A-Z]\w*:(0s?|false|<nil>|\[\])?( +|(\}))|\b([A-Z2-7]{6})[A-Z2-7]{20}\b`)

// String returns the trace as text.
func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, l := range t.lines {
		text := fmt.Sprintf(l.format, l.args...)
		fmt.Fprintf(&b, "%11.6f  %s\n", l.at.Seconds(), nothing.ReplaceAllString(text, "$4$5"))
	}
	return b.String()
}

// short abbreviates an owner.
func short(owner string) string { return owner[:min(len(owner), 6)] }
