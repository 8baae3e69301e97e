// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hasplock/hasp"
)

// level says who wants to hear something.
type level uint8

const (
	detail  level = iota // with -v
	normal               // unless -q
	problem              // always
)

// report tells a person, or with -o json a program, what happens in hasp run:
// one line on standard error for each event. It may be called by many
// goroutines.
type report struct {
	key     string
	json    bool
	quiet   bool
	verbose bool

	mu sync.Mutex
	w  io.Writer
}

// event is a line of -o json. More fields may come.
type event struct {
	Time    time.Time   `json:"time"`
	Event   string      `json:"event"` // waiting, trouble, acquired, renewed, renew-failed, lost, ended, keeping, released, exit
	Key     string      `json:"key"`
	Message string      `json:"message,omitempty"`
	Holder  *holderJSON `json:"holder,omitempty"`
	Ahead   int         `json:"ahead,omitempty"`
	Left    float64     `json:"left_seconds,omitempty"`
	Waited  float64     `json:"waited_seconds,omitempty"`
	Held    float64     `json:"held_seconds,omitempty"`
	Fence   uint64      `json:"fence,omitempty"`
	Owner   string      `json:"owner,omitempty"`
	PID     int         `json:"pid,omitempty"`
	Error   string      `json:"error,omitempty"`

	// Of exit, the last line.
	Code    *int   `json:"code,omitempty"`
	Verdict string `json:"verdict,omitempty"`
	Status  *int   `json:"status,omitempty"` // of the command, when it ran
}

// say writes one line: its message for people, or all of it for programs.
func (r *report) say(l level, e event) {
	if l == detail && !r.verbose || l == normal && r.quiet {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.json {
		if e.Message != "" {
			fmt.Fprintf(r.w, "hasp: %s\n", e.Message)
		}
		return
	}
	e.Time, e.Key = time.Now(), r.key
	line, err := json.Marshal(e)
	if err != nil { // nothing in an event can be refused
		panic(err)
	}
	fmt.Fprintf(r.w, "%s\n", line)
}

// holderJSON is a holder, or a waiter, for programs.
type holderJSON struct {
	Owner   string     `json:"owner,omitempty"`
	Host    string     `json:"host,omitempty"`
	PID     int        `json:"pid,omitempty"`
	User    string     `json:"user,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	Foreign bool       `json:"foreign,omitempty"`
	Value   string     `json:"value,omitempty"` // of a foreign holder
}

func toJSON(h hasp.Holder) *holderJSON {
	if nobody(h) {
		return nil
	}
	l := h.Describe()
	j := &holderJSON{Owner: h.Owner, Host: l.Host, PID: l.PID, User: l.User, Reason: l.Reason, Foreign: h.Foreign}
	if !l.Since.IsZero() {
		j.Since = &l.Since
	}
	if h.Foreign {
		j.Value = h.Label
	}
	return j
}
