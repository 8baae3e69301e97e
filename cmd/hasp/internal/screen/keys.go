// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"bytes"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Key is a key that was pressed, or text that was pasted.
type Key struct {
	Code Code
	Text string // of Char and Paste
}

// Code says which key.
type Code uint8

// The keys.
const (
	Char Code = iota // one that prints
	Paste
	Enter
	Escape
	Backspace
	Clear // Ctrl-U
	Up
	Down
	PageUp
	PageDown
	Home
	End
)

const (
	// Pastes has the terminal mark what is pasted: it must not act as keys do.
	Pastes = "\x1b[?2004h"
	// NoPastes undoes that.
	NoPastes = "\x1b[?2004l"

	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"

	mostPaste    = 4096 // bytes; the rest is dropped
	mostSequence = 32
)

// escapeWait is after what time an escape is the key, and not the beginning of another's
// sequence: on a slow line the rest may come in another packet.
const escapeWait = 100 * time.Millisecond

// Keys returns the keys that are read from a terminal. The channel is closed when it
// cannot be read any more.
func Keys(r io.Reader) <-chan Key {
	chunks, keys := make(chan []byte), make(chan Key)
	go func() {
		defer close(chunks)
		for {
			buf := make([]byte, 256)
			n, err := r.Read(buf)
			if n > 0 {
				chunks <- buf[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	go decode(chunks, keys)
	return keys
}

func decode(chunks <-chan []byte, keys chan<- Key) {
	defer close(keys)
	var d decoder
	for {
		var late <-chan time.Time
		if len(d.rest) > 0 && !d.pasting {
			late = time.After(escapeWait)
		}
		var found []Key
		select {
		case chunk, ok := <-chunks:
			if !ok {
				return
			}
			found = d.feed(chunk)
		case <-late:
			found = d.give()
		}
		for _, key := range found {
			keys <- key
		}
	}
}

// decoder makes keys out of bytes.
type decoder struct {
	rest    []byte // of which more may come
	pasting bool
}

// feed returns the keys that are complete with these bytes.
func (d *decoder) feed(chunk []byte) (keys []Key) {
	d.rest = append(d.rest, chunk...)
	for len(d.rest) > 0 {
		key, n := d.next()
		if n == 0 {
			break
		}
		d.rest = d.rest[n:]
		keys = append(keys, key...)
	}
	return keys
}

// give returns what the bytes are of which no more came.
func (d *decoder) give() []Key {
	rest := d.rest
	d.rest = nil
	if len(rest) == 1 && rest[0] == '\x1b' {
		return []Key{{Code: Escape}}
	}
	return nil
}

// next returns the first key, if it is one that counts, and its bytes; none while
// it may go on.
func (d *decoder) next() (key []Key, n int) {
	b := d.rest
	switch {
	case d.pasting:
		return d.paste()
	case b[0] == '\x1b':
		return d.escaped()
	case b[0] < utf8.RuneSelf:
		return control(b[0]), 1
	case !utf8.FullRune(b):
		return nil, 0
	}
	r, n := utf8.DecodeRune(b)
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return nil, n
	}
	return []Key{{Char, string(r)}}, n
}

func control(c byte) []Key {
	switch c {
	case '\r', '\n':
		return []Key{{Code: Enter}}
	case 0x7f, '\b':
		return []Key{{Code: Backspace}}
	case 0x15:
		return []Key{{Code: Clear}}
	case 0x0e:
		return []Key{{Code: Down}}
	case 0x10:
		return []Key{{Code: Up}}
	}
	if c < ' ' {
		return nil
	}
	return []Key{{Char, string(rune(c))}}
}

// escaped reads the sequence of a key.
func (d *decoder) escaped() ([]Key, int) {
	b := d.rest
	if len(b) == 1 {
		return nil, 0
	}
	if b[1] != '[' && b[1] != 'O' { // the key, and another right after it
		return []Key{{Code: Escape}}, 1
	}
	end := bytes.IndexFunc(b[2:], func(r rune) bool { return r < ' ' || r >= '@' })
	switch {
	case end < 0 && len(b) > mostSequence:
		return nil, len(b)
	case end < 0:
		return nil, 0
	}
	n := 2 + end + 1
	if b[n-1] < ' ' { // another key interrupts it
		return nil, n - 1
	}
	if string(b[:n]) == pasteBegin {
		d.pasting = true
		return nil, n
	}
	code, ok := sequences[string(b[2:n])]
	if !ok {
		return nil, n
	}
	return []Key{{Code: code}}, n
}

var sequences = map[string]Code{
	"A": Up, "B": Down, "5~": PageUp, "6~": PageDown,
	"H": Home, "1~": Home, "7~": Home, "F": End, "4~": End, "8~": End,
}

// paste reads what is pasted, without what is no text.
func (d *decoder) paste() ([]Key, int) {
	at := bytes.Index(d.rest, []byte(pasteEnd))
	if at < 0 {
		if len(d.rest) > mostPaste+len(pasteEnd) { // its end may come in parts
			d.rest = append(d.rest[:mostPaste:mostPaste], d.rest[len(d.rest)-len(pasteEnd):]...)
		}
		return nil, 0
	}
	d.pasting = false
	text := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, string(d.rest[:min(at, mostPaste)]))
	return []Key{{Paste, text}}, at + len(pasteEnd)
}
