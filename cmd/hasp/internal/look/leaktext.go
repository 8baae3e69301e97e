// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/hasplock/hasp/internal/telemetry"
)

// print writes what was found, a line for each.
func (c *leaksCommand) print(w io.Writer, found []*leak) error {
	for _, f := range found {
		text := f.String() + c.advice(f)
		if _, err := fmt.Fprintln(w, plain.Line(fmt.Sprintf("%-8s  %s  %s", f.what, base.Quote(f.key), text))); err != nil {
			return err
		}
	}
	return nil
}

// String says what is wrong, and where.
func (f *leak) String() string {
	text := f.wrong()
	if f.server != "" {
		text = driver.Printable(f.server) + ": " + text
	}
	if len(f.atWork) > 0 {
		text += "; " + stillAtWork(f.atWork)
	}
	return text
}

// stillAtWork says what works on under a lease whose holder has ended.
func stillAtWork(names []string) string {
	return "of what it ran, still at work here: " + strings.Join(names, ", ")
}

func (f *leak) wrong() string {
	if f.leftover != nil {
		return people.Leftover(*f.leftover, time.Now())
	}
	since, usual, kept := "", "", ""
	if f.held > 0 {
		since = " for " + people.Short(f.held)
	}
	if f.usual > 0 {
		usual = fmt.Sprintf(", and the keys of %q usually for %s", telemetry.Class(f.key), people.Short(f.usual))
	}
	if f.left > 0 {
		kept = fmt.Sprintf("; the store keeps it for %s more unless it is renewed", people.Short(f.left))
	}
	return fmt.Sprintf("held%s by %s%s%s", since, people.Named(f.holder), usual, kept)
}

// advice says what to do.
func (c *leaksCommand) advice(f *leak) string {
	switch {
	case c.removable(f) && c.fix:
		return ": to be removed"
	case f.how == freely:
		return ""
	case len(f.atWork) > 0:
		rest := ""
		if f.left >= 0 {
			rest = ", or wait for its TTL"
		}
		return fmt.Sprintf(". --fix leaves it while they work: end them%s. To break it nevertheless: %s", rest, c.command(f))
	case f.how == named:
		return ". If you know that it is gone: " + c.command(f)
	case f.what == whatLive:
		return ""
	}
	return ". To break it: " + c.command(f)
}

// command is what ends it, if that is wanted.
func (c *leaksCommand) command(f *leak) string {
	if f.how == never {
		return c.store.Again("break", f.key, "--owner", f.holder.Owner)
	}
	if f.key == "" { // the store does not say which it was
		return c.store.Again("leaks", "--fix")
	}
	return c.store.Again("leaks", f.key, "--fix")
}

// leakJSON is a leak for programs. More fields may come.
type leakJSON struct {
	What   string             `json:"what"`
	Key    string             `json:"key"`
	Bytes  []byte             `json:"key_base64,omitempty"` // when JSON cannot carry the key as it is
	Server string             `json:"server,omitempty"`     // of several that grant locks together
	Name   string             `json:"name,omitempty"`       // in the store
	Holder *people.HolderJSON `json:"holder,omitempty"`
	Held   people.Seconds     `json:"held_seconds,omitempty"`
	Usual  people.Seconds     `json:"usual_seconds,omitempty"`
	people.LeftJSON
	AtWork []string       `json:"at_work,omitempty"` // here, of what a holder ran that has ended
	Fix    string         `json:"fix"`               // what --fix does: removes, removes-if-named, nothing
	Result string         `json:"result,omitempty"`  // with --fix: removed, expires, changed, shown
	Stays  people.Seconds `json:"stays_seconds,omitempty"`
}

func (c *leaksCommand) asJSON(f *leak) leakJSON {
	j := leakJSON{
		What: f.what, Key: f.key, Server: f.server, Name: f.name, Holder: people.Holding(f.holder), Held: people.Seconds(f.held), Usual: people.Seconds(f.usual),
		LeftJSON: people.ToLeftJSON(f.left), Fix: map[how]string{freely: "removes", named: "removes-if-named", never: "nothing"}[f.how], Stays: people.Seconds(f.stays),
		AtWork: f.atWork,
	}
	if !utf8.ValidString(f.key) {
		j.Bytes = []byte(f.key)
	}
	if c.fix {
		j.Result = f.result
	}
	return j
}
