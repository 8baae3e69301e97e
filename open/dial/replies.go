// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"bytes"
	"fmt"
	"strconv"
)

// The largest reply that a server may send. The largest that hasp asks for are a page
// of keys and INFO.
const (
	maxReply    = 64 << 20 // bytes
	maxElements = 1 << 20
	maxDepth    = 16
)

// replies follows what a server sends, and finds a reply that is larger than any
// that hasp asks for while it is announced: the client library makes room for
// whatever a header says.
type replies struct {
	open     []int  // elements that are still to come, of each array around this one
	bulk     int    // bytes that are still to come of a string
	header   []byte // the beginning of a line
	size     int    // of this reply until now
	elements int    // announced in this reply until now
	quoting  bool   // the rest of the line is what was sent
}

// quotes is how a server that does not know a command begins to repeat its arguments: of HELLO and AUTH, the password.
var quotes = []byte(", with args beginning with: ")

// hide overwrites what an error repeats of a request.
func (r *replies) hide(part []byte) {
	if i := bytes.Index(part, quotes); i >= 0 && !r.quoting {
		part, r.quoting = part[i+len(quotes):], true
	}
	for i, c := range part {
		if r.quoting && c != '\r' && c != '\n' {
			part[i] = '*'
		}
	}
}

// scan takes what was read, before the client does, and hides secrets in it.
func (r *replies) scan(p []byte) error {
	for len(p) > 0 {
		n, ends := len(p), false
		if r.bulk > 0 {
			n = min(n, r.bulk)
		} else if i := bytes.IndexByte(p, '\n'); i >= 0 {
			n, ends = i+1, true
		}
		if r.size += n; r.size > maxReply {
			return fmt.Errorf("the server sends a reply of more than %d MiB: is it a Redis server?", maxReply>>20)
		}
		part := p[:n]
		p = p[n:]
		if r.bulk > 0 {
			if r.bulk -= n; r.bulk == 0 {
				r.done()
			}
			continue
		}
		r.header = append(r.header, part[:min(n, 32-len(r.header))]...)
		if r.header[0] == '-' {
			r.hide(part)
		}
		if ends {
			r.quoting = false
			if err := r.line(); err != nil {
				return err
			}
		}
	}
	return nil
}

// line takes a whole line: a value, or the header of one.
func (r *replies) line() error {
	kind, text := r.header[0], string(bytes.TrimSpace(r.header[1:]))
	r.header = r.header[:0]
	each, more := 1, 0
	switch kind {
	case '$', '!', '=':
	case '*', '~', '>':
	case '%':
		each = 2
	case '|': // stands before a value, and is none
		each, more = 2, 1
	default:
		r.done()
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil && text != "?" || n > maxReply {
		return fmt.Errorf("the server announces a reply of %q bytes or elements: is it a Redis server?", text)
	}
	switch {
	case kind == '$' || kind == '!' || kind == '=':
		if n >= 0 {
			r.bulk = n + 2
			return nil
		}
	case n*each+more > 0:
		n = n*each + more
		if r.elements += n; r.elements > maxElements || len(r.open) == maxDepth {
			return fmt.Errorf("the server announces a reply of %d elements in %d levels: is it a Redis server?", r.elements, len(r.open)+1)
		}
		r.open = append(r.open, n)
		return nil
	}
	r.done()
	return nil
}

// done is the end of one value, and perhaps of those around it.
func (r *replies) done() {
	for last := len(r.open) - 1; last >= 0; last-- {
		if r.open[last]--; r.open[last] > 0 {
			return
		}
		r.open = r.open[:last]
	}
	r.size, r.elements = 0, 0
}
