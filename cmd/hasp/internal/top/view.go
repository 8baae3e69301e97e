// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
)

const (
	cursor = "> "
	beside = "  "
)

// parts are what a screen of some height has room for.
type parts struct {
	head, sub, titles, foot bool
	rows                    int
}

func layout(height int) parts {
	p := parts{head: height > 1, sub: height > 5, titles: height > 5, foot: height > 2}
	p.rows = height
	for _, has := range []bool{p.head, p.sub, p.titles, p.foot} {
		if has {
			p.rows--
		}
	}
	return p
}

// View is what a terminal of this size shows now: at most height lines.
func (m *Model) View(width, height int, now time.Time) []Line {
	p := layout(height)
	var lines []Line
	add := func(style Style, text string) { lines = append(lines, Line{Text: text, Style: style}) }
	if p.head {
		add(Bold, m.head(width, now))
	}
	if p.sub {
		lines = append(lines, m.sub(now))
	}
	body := height - len(lines)
	if p.foot {
		body--
	}
	texts := func(all []string) {
		for _, text := range all[:min(len(all), body)] {
			add(Normal, text)
		}
	}
	switch {
	case m.notice(width):
		texts(wrap(m.status, width))
	case m.page == one:
		lines = append(lines, m.viewOne(width, body, now)...)
	case m.page == help:
		texts(strings.Split(helpText, "\n"))
	case m.page == confirm:
		texts(m.confirming(width))
	default:
		lines = append(lines, m.viewList(width, p, now)...)
	}
	if p.foot {
		for len(lines) < height-1 {
			add(Normal, "")
		}
		lines = append(lines, m.foot(width))
	}
	return lines
}

// notice says that the status is too long for the last line, and covers the list.
func (m *Model) notice(width int) bool {
	return m.field == none && m.page != confirm && Width(m.status) > width
}

// head is the first line: what it is, and as of when.
func (m *Model) head(width int, now time.Time) string {
	right := m.age(now)
	waited := 0
	for i := range m.all {
		if m.all[i].Waiters > 0 {
			waited++
		}
	}
	left := people.Count(len(m.all), "key", "keys")
	if waited > 0 {
		left += fmt.Sprintf(", %d waited for", waited)
	}
	if m.page != list {
		left = Shown(m.chosen)
	}
	if long := "hasp top  " + m.Store + "  " + left; Width(long)+2+Width(right) <= width {
		left = long
	}
	room := width - Width(right) - 1
	if room < 8 {
		return Cut(left, width)
	}
	return Pad(left, room) + " " + right
}

// age says as of when the list is, and how old when that is more than usual.
func (m *Model) age(now time.Time) string {
	if m.at.IsZero() {
		return "no answer yet"
	}
	s := m.at.Format("15:04:05 MST")
	if age := now.Sub(m.at); age > m.Every+3*time.Second {
		s += " (" + people.Short(age) + " old)"
	}
	return s
}

// sub is the second line: what is wrong, or which part of the list is shown.
func (m *Model) sub(now time.Time) Line {
	switch {
	case m.trouble != "":
		return Line{Style: Alarm, Text: fmt.Sprintf("no answer for %s: %s", people.Short(now.Sub(m.since)), m.trouble)}
	case m.page != list:
		return Line{}
	}
	s := "sorted by " + strings.ToLower(columns[orders[m.sort]].title)
	if m.reversed {
		s += ", reversed"
	}
	if m.filter != "" || m.field == filter {
		s = fmt.Sprintf("%d of %d like %s, %s", len(m.rows), len(m.all), m.filter, s)
	}
	if m.Prefix != "" {
		s += ", starting with " + Shown(m.Prefix)
	}
	return Line{Text: s}
}

// foot is the last line: what is asked, what became of it, or what can be pressed.
func (m *Model) foot(width int) Line {
	tail := func(prompt, text string) Line { // the end of what is typed is seen
		room := width - Width(prompt) - 1
		for Width(text) > max(room, 0) {
			text = text[len(string([]rune(text)[0])):]
		}
		return Line{Style: Bold, Text: prompt + text + "_"}
	}
	switch {
	case m.field == filter:
		return tail("filter: ", m.filter)
	case m.field == reason:
		return tail("reason (may be empty): ", m.target.Reason)
	case m.page == confirm && m.target.Plan != "":
		return Line{Style: Alarm, Text: "Break it? y/N"}
	case m.page == confirm:
		return Line{Text: "asking the store …"}
	case m.notice(width):
		return Line{Text: "any key: back"}
	case m.status != "":
		return Line{Style: Bold, Text: m.status}
	}
	brk := "b break  "
	if m.ReadOnly {
		brk = ""
	}
	switch m.page {
	case one:
		return Line{Text: "Esc back  " + brk + "j k move  q quit"}
	case help:
		return Line{Text: "any key: back"}
	}
	return Line{Text: "? help  q quit  Enter look  " + brk + "/ filter  s sort  r reverse"}
}

const helpText = `Enter  one key with its queue
b      break whom the cursor is on;
       it asks first
/      filter keys and holders; * and ?
       match as a whole; Esc shows all
s r    sort by the next column; reverse
arrows j k g G PgUp PgDn move, q quits`

// viewList is the list.
func (m *Model) viewList(width int, p parts, now time.Time) (lines []Line) {
	fit, widths := fitting(width)
	var text []byte // of the row that is being written
	cell := func(n int, part string) {
		part = Cut(part, widths[n])
		blank := strings.Repeat(" ", max(0, widths[n]-Width(part)))
		if columns[fit[n]].right {
			text = append(append(text, blank...), part...)
		} else {
			text = append(append(text, part...), blank...)
		}
	}
	if p.titles {
		text = append(text, ' ')
		for n, c := range fit {
			text = append(text, ' ')
			cell(n, columns[c].title)
		}
		lines = append(lines, Line{Style: Bold, Text: string(text)})
	}
	rows := m.visible(p.rows)
	for _, e := range rows {
		l := Line{}
		text = append(text[:0], beside...)
		if e.Key == m.chosen {
			l.Style, text[0] = Inverse, cursor[0]
		}
		needs := make([]Style, len(columns))
		for c := range columns {
			needs[c] = columns[c].needs(m, e, now)
		}
		if gravest := slices.Max(needs); gravest != Normal { // also of a column that has no room
			l.Marks, text[1] = append(l.Marks, Mark{1, 2, gravest}), '!'
		}
		for n, c := range fit {
			if n > 0 {
				text = append(text, ' ')
			}
			from := len(text)
			cell(n, columns[c].text(m, e, now))
			if needs[c] != Normal {
				l.Marks = append(l.Marks, Mark{from, len(text), needs[c]})
			}
		}
		l.Text = string(text)
		lines = append(lines, l)
	}
	if len(rows) == 0 && !m.at.IsZero() {
		text := "nothing is held or waited for"
		if len(m.all) > 0 {
			text = "no key is like that; Esc shows all"
		}
		lines = append(lines, Line{Text: beside + text})
	}
	return lines
}

// viewOne is a key with its holders and its queue.
func (m *Model) viewOne(width, height int, now time.Time) []Line {
	look, known := m.looks[m.chosen]
	var lines []Line
	add := func(format string, args ...any) {
		lines = append(lines, Line{Text: plain.Line(fmt.Sprintf(format, args...))})
	}
	from, to := 0, 0 // the lines of the person that the cursor is on
	person := func(n int, say func(mark string)) {
		mark := beside
		if n == m.person {
			mark, from = cursor, len(lines)
		}
		at := len(lines)
		say(mark)
		if n == m.person {
			to = len(lines)
			lines[at].Style = Inverse
			lines[at].Text = Pad(lines[at].Text, width)
		}
	}
	i := look.Info
	switch {
	case !known:
		add("asking the store …")
	case look.Trouble != "":
		add("%s", look.Trouble)
	case !i.Held && i.Waiters == 0:
		add("free: nobody holds it, and nobody waits")
	case !i.Held:
		add("nobody holds it")
	}
	for n, l := range i.Holders {
		person(n, func(mark string) { m.sayHolder(add, mark, l, now) })
	}
	if i.Waiters > 0 {
		add("")
		add("%s, first come, first served", people.Count(i.Waiters, "waiter", "waiters"))
	}
	for n, h := range i.Queue {
		person(len(i.Holders)+n, func(mark string) { sayWaiter(add, mark, n, h, now) })
	}
	if more := i.Waiters - len(i.Queue); more > 0 && len(i.Queue) > 0 {
		add("  … and %d more", more)
	}
	if n := len(lines) - height; n > 0 {
		m.scroll = max(0, min(m.scroll, from, n))
		m.scroll = max(m.scroll, to-height)
		lines = lines[m.scroll:min(len(lines), m.scroll+height)]
	}
	return lines
}

func (m *Model) sayHolder(add func(string, ...any), mark string, l driver.Holding, now time.Time) {
	h := l.Holder
	d := h.Describe()
	add("%s%s", mark, people.Named(h))
	facts := []string{h.Mode.String()}
	if h.Limit > 0 {
		facts[0] = fmt.Sprintf("slot %d of %d", h.Slot, h.Limit)
	}
	if !d.Since.IsZero() {
		facts = append(facts, "held "+strings.TrimPrefix(people.For(d.Since, now), "for "))
	}
	facts = append(facts, "left "+people.Left(l.Left, now.Sub(m.at)))
	add("    %s", strings.Join(facts, ", "))
	if l.Fence > 0 {
		add("    fence %d", l.Fence)
	}
	if h.Owner != "" {
		add("    owner %s", driver.Printable(h.Owner))
	}
	if d.Reason != "" {
		add("    reason %q", d.Reason)
	}
}

func sayWaiter(add func(string, ...any), mark string, n int, h hasp.Holder, now time.Time) {
	d := h.Describe()
	s := fmt.Sprintf("%s%d. ", mark, n+1)
	if !d.Since.IsZero() {
		s += "waits " + strings.TrimPrefix(people.For(d.Since, now), "for ") + "  "
	}
	s += people.Named(h)
	if h.Mode == hasp.Shared {
		s += ", shared"
	}
	if d.Reason != "" {
		s += fmt.Sprintf(", reason %q", d.Reason)
	}
	add("%s", s)
}

// confirming says which owner a break is about to hit.
func (m *Model) confirming(width int) []string {
	t := m.target
	if t.Plan == "" {
		return wrap(fmt.Sprintf("about to break %s, which %s has", Shown(t.Key), t.Who), width)
	}
	lines := append([]string{"owner " + driver.Printable(t.Owner)}, wrap(plain.Line(t.Plan)+".", width)...)
	if m.field != reason {
		lines = append(lines, wrap("reason "+t.Reason, width)...)
	}
	return lines
}

// wrap breaks a text into lines, between words where it can.
func wrap(text string, width int) []string {
	words := ansi.Wrap(text, width, "") // which may make a line with a hyphen too wide
	return strings.Split(ansi.Hardwrap(words, width, true), "\n")
}
