// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/hasplock/hasp/internal/plain"
)

// stdout is where every command but hasp run and hasp elect writes its answer.
var stdout = &answer{w: os.Stdout}

// answer is a writer that remembers its first error, which is the end of the
// command: cobra, too, writes into it, and does not look.
type answer struct {
	w io.Writer

	mu  sync.Mutex // a write may block for longer than hasp waits
	err error
}

func (a *answer) Write(p []byte) (int, error) {
	n, err := a.w.Write(p)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = err
	}
	return n, err
}

// failed is the end of a command that did not get its answer through; nil otherwise.
func (a *answer) failed() *exit {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		return nil
	}
	return &exit{code: exitFailed, verdict: "failed", message: fmt.Sprintf("the answer could not be written: %v", a.err)}
}

// note tells a person something on standard error, beside the answer.
func note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "hasp: %s\n", plain.Lines(fmt.Sprintf(format, args...)))
}
