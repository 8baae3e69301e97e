// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package audit records each break of a lock (actor, time and reason), what hasp leaks
// removed, and leases that were lost: one JSON object a line, in a file or in the system's log.
package audit

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/people"
)

// Event says what a record is about.
type Event string

// The events.
const (
	Break  Event = "break"  // the actor took a lease away, or a place in the queue
	Remove Event = "remove" // the actor removed what was left over, or gave it an expiry
	Lost   Event = "lost"   // a lease of this process ended before its release
)

// Outcome says how far it came.
type Outcome string

// The outcomes.
const (
	Begun   Outcome = "begun"    // it is about to be tried; another record with the same ID says how it ended
	Done    Outcome = "done"     // the store has done it
	NotHeld Outcome = "not-held" // nothing was done: that owner no longer had the key, or what was left over has changed
	Unknown Outcome = "unknown"  // an error: it may or may not have been done
	Denied  Outcome = "denied"   // nothing was done: the actor has no right to it
)

// Actor is the process that did something.
type Actor struct {
	User string `json:"user,omitempty"`
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`
}

// Self is this process.
func Self() Actor {
	a := Actor{PID: os.Getpid()}
	a.Host, _ = os.Hostname() // a record without a host is still a record
	if u, err := user.Current(); err == nil {
		a.User = u.Username
	}
	return a
}

// Record is one line. Empty fields are left out. Key, Name, Label, Reason and Error may
// be any bytes.
type Record struct {
	Time    time.Time `json:"time"` // of the writing; Write sets it
	ID      string    `json:"id"`   // joins the records of one act; Write sets it when it is empty
	Event   Event     `json:"event"`
	Outcome Outcome   `json:"outcome,omitempty"`
	Via     string    `json:"via,omitempty"` // the command or the page: "hasp break"
	By      Actor     `json:"by"`
	Store   string    `json:"store,omitempty"`  // without a password
	Server  string    `json:"server,omitempty"` // of several that grant locks together
	What    string    `json:"what,omitempty"`   // what was removed, in the word of hasp leaks
	Name    string    `json:"name,omitempty"`   // what that is called in the store

	Key    string         `json:"key"`
	Bytes  []byte         `json:"key_base64,omitempty"` // a Key that JSON cannot carry as it is; Write sets it
	Owner  string         `json:"owner"`                // the owner of the lease or place
	Waits  bool           `json:"waits,omitempty"`      // it was a place in the queue
	Fence  uint64         `json:"fence,omitempty"`      // of the lease; 0: not known
	Label  string         `json:"label,omitempty"`      // the owner's, as the store has it
	Held   people.Seconds `json:"held_seconds,omitempty"`
	Reason string         `json:"reason,omitempty"` // why, in the actor's words
	Error  string         `json:"error,omitempty"`
}

// maxText bounds a name, a reason and an error, in bytes: with a key and a label of the largest
// size a record stays so small that one write appends it.
const maxText = 1024

// line is the record as it is written: ASCII alone, so that nothing that shows the record
// acts on it, and nothing in it ends the line.
func (r Record) line() ([]byte, error) {
	if !utf8.ValidString(r.Key) {
		r.Bytes = []byte(r.Key)
	}
	r.Name, r.Reason, r.Error = clip(r.Name), clip(r.Reason), clip(r.Error)
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(text)+1)
	for len(text) > 0 { // only strings have something else than printable ASCII
		c, size := utf8.DecodeRune(text)
		switch {
		case c < 0x7f:
			b = append(b, byte(c))
		case c < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			high, low := utf16.EncodeRune(c)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		}
		text = text[size:]
	}
	return append(b, '\n'), nil
}

func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	n := maxText
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// Victim fills in the owner of the lease, or place in the queue, that an act is about.
func (r Record) Victim(key string, h driver.Holder, fence uint64, waits bool) Record {
	r.Key, r.Owner, r.Label, r.Fence, r.Waits = key, h.Owner, h.Label, fence, waits
	return r
}

func newID() string { return rand.Text()[:16] }
