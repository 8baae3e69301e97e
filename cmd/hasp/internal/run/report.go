// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
)

// level says with which flags an event is reported.
type level uint8

const (
	detail  level = iota // with -v
	normal               // unless -q
	problem              // always
)

// report writes what happens in hasp run for a person, or with -o json for a program:
// one line on standard error for each event. It never waits for a reader, and is safe
// for concurrent use.
type report struct {
	keys    []string // what the command asked for
	json    bool
	quiet   bool
	verbose bool
	out     outbox
}

// newReport returns the report of what was asked for.
func newReport(o *options, keys []string, w io.Writer) *report {
	r := &report{keys: keys, json: o.output.Word == "json", quiet: o.quiet, verbose: o.verbose}
	r.out.w, r.out.missed = w, r.missed
	return r
}

// entry is a line of -o json. More fields may come.
type entry struct {
	Time    time.Time          `json:"time"`
	Event   string             `json:"event"`          // waiting, trouble, acquired, renewed, renew-failed, lost, stays, ended, keeping, unkept, leaving, released, again, dropped, limits, state, unrecorded, exit
	Key     string             `json:"key"`            // what it is about; the first, when about all
	Keys    []string           `json:"keys,omitempty"` // of a command with several
	Message string             `json:"message,omitempty"`
	Holder  *people.HolderJSON `json:"holder,omitempty"`
	Ahead   int                `json:"ahead,omitempty"`
	Left    people.Seconds     `json:"left_seconds,omitempty"`
	Waited  people.Seconds     `json:"waited_seconds,omitempty"`
	Wait    people.Seconds     `json:"wait_left_seconds,omitempty"` // of -w
	Held    people.Seconds     `json:"held_seconds,omitempty"`
	Fence   uint64             `json:"fence,omitempty"`
	Owner   string             `json:"owner,omitempty"`
	Leases  []leaseJSON        `json:"leases,omitempty"` // of acquired
	PID     int                `json:"pid,omitempty"`
	Dropped int                `json:"dropped,omitempty"` // lines that were not read in time
	Error   string             `json:"error,omitempty"`
	asked   time.Time          // until when the store that has failed is asked again; zero: as long as the wait lasts

	// Of exit, the last line.
	Code    *int   `json:"code,omitempty"`
	Verdict string `json:"verdict,omitempty"`
	Status  *int   `json:"status,omitempty"` // of the command, when it ran
}

// say has one line written: its message for people, or all of it for programs.
func (r *report) say(l level, e entry) {
	if l == detail && !r.verbose || l == normal && r.quiet || !r.json && e.Message == "" {
		return
	}
	r.out.put(r.line(e))
}

// missed is the line in the place of n that were not read in time.
func (r *report) missed(n int) []byte {
	return r.line(entry{Event: "dropped", Dropped: n, Message: people.Count(n, "message was", "messages were") + " dropped here, as nobody read them"})
}

func (r *report) line(e entry) []byte {
	if !r.json {
		return fmt.Appendf(nil, "hasp: %s\n", plain.Lines(e.Message))
	}
	e.Time = time.Now()
	if e.Key == "" {
		e.Key = r.keys[0]
	}
	if len(r.keys) > 1 {
		e.Keys = r.keys
	}
	line, err := plain.JSON(e)
	if err != nil { // nothing in an event can be refused
		panic(err)
	}
	return line
}

// endOf is the end that an error says; success for nil.
func endOf(err error) *base.Exit {
	var end *base.Exit
	switch {
	case err == nil:
		return &base.Exit{Verdict: "exited"}
	case errors.As(err, &end):
		return end
	}
	return &base.Exit{Verdict: "failed", Code: base.ExitFailed, Message: err.Error()}
}

// verdict writes how it ended, as the last line, and returns what is left for Main to
// do. A reader that reads nothing for flushLimit misses it.
func (r *report) verdict(status *child.Status, err error) error {
	end := endOf(err)
	l := problem
	switch end.Verdict {
	case "exited", "signaled", "busy", "done", "interrupted":
		l = normal
	}
	if r.json { // programs wait for this line
		l = problem
	}
	e := entry{Event: "exit", Message: end.Message, Error: end.Why, Code: &end.Code, Verdict: end.Verdict}
	if status != nil {
		code := status.Exit()
		e.Status = &code
	}
	r.say(l, e)
	r.out.flush(base.FlushLimit)
	if end.Code == 0 && end.Message == "" {
		return nil
	}
	return &base.Exit{Code: end.Code, Interrupted: end.Interrupted, Group: end.Group}
}

// leaseJSON is one of our leases for programs.
type leaseJSON struct {
	Key       string `json:"key"`
	Fence     uint64 `json:"fence,omitempty"`
	Owner     string `json:"owner"`
	Slot      *int   `json:"slot,omitempty"`
	Abandoned bool   `json:"abandoned,omitempty"`
}
