// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/internal/plain"
)

// Stdout is where every command but hasp run and hasp elect writes its answer.
var Stdout = &answer{w: os.Stdout}

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

// Failed is the end of a command that did not get its answer through; nil otherwise.
func (a *answer) Failed() *Exit {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		return nil
	}
	return Failed("the answer could not be written: %v", a.err)
}

// Note tells a person something on standard error, beside the answer.
func Note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "hasp: %s\n", plain.Lines(fmt.Sprintf(format, args...)))
}

// Ask asks for one of these words to be typed, after a question on standard error; they are what.
func Ask(question, what string, words ...string) error {
	fmt.Fprint(os.Stderr, question)
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if slices.Contains(words, strings.TrimRight(line, "\r\n")) {
		return nil
	}
	if err != nil {
		fmt.Fprintln(os.Stderr)
	}
	return Usage("that is not %s: nothing was done", what)
}

// FlushLimit is how long hasp waits at its end until its messages have been read.
const FlushLimit = 500 * time.Millisecond
