// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"io"
	"sync"
	"syscall"
	"time"
)

const (
	// unread is how many lines wait for a reader. Beyond that the oldest is dropped.
	unread = 256
	// fullPause is between two looks at a writer that others made non-blocking
	// (the command shares it) and that is full.
	fullPause = 20 * time.Millisecond
)

// outbox writes lines in the background: a full pipe that is not read, or a terminal
// after Ctrl-S, blocks a write for ever, and must not block whatever renews a lease or
// ends a command. It is safe for concurrent use.
type outbox struct {
	w      io.Writer
	missed func(n int) []byte // the line in the place of n that were dropped; nil: nothing

	mu      sync.Mutex
	lines   [][]byte
	dropped int           // before lines
	written chan struct{} // closed once nothing is left; nil: nothing is being written
}

// put has a line written, after those before it, and does not wait for that.
func (o *outbox) put(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.lines) == unread {
		o.lines = o.lines[1:]
		o.dropped++
	}
	o.lines = append(o.lines, line)
	if o.written == nil {
		o.written = make(chan struct{})
		go o.write()
	}
}

// flush waits until everything is written, for so long at most.
func (o *outbox) flush(limit time.Duration) {
	o.mu.Lock()
	written := o.written
	o.mu.Unlock()
	if written == nil {
		return
	}
	select {
	case <-written:
	case <-time.After(limit):
	}
}

func (o *outbox) write() {
	for line := o.next(); line != nil; line = o.next() {
		for {
			n, err := o.w.Write(line)
			if !errors.Is(err, syscall.EAGAIN) {
				break // another error stays, and changes no exit code
			}
			line = line[n:]
			time.Sleep(fullPause)
		}
	}
}

// next returns what to write; nil, and the writer's end, when there is nothing.
func (o *outbox) next() (line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.dropped > 0 && o.missed != nil:
		line, o.dropped = o.missed(o.dropped), 0
	case len(o.lines) > 0:
		line, o.lines = o.lines[0], o.lines[1:]
	default:
		close(o.written)
		o.written = nil
	}
	return line
}
