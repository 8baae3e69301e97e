// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"unicode/utf8"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
)

// Act is what a key asks for beyond the screen.
type Act uint8

// The acts.
const (
	Nothing Act = iota
	Quit
	Plan  // say what breaking the target would do
	Break // break the target
)

// mostText is how long a filter and a reason may be, in bytes.
const mostText = 500

// Press is a key that was pressed while the terminal had this size.
func (m *Model) Press(k Key, width, height int) Act {
	if m.field != none {
		return m.edit(k)
	}
	notice := m.notice(width)
	if m.status = ""; notice { // that covers what the key would act on
		return Nothing
	}
	if m.page == confirm {
		return m.answer(k)
	}
	if k.Code == Char {
		switch k.Text {
		case "q":
			return Quit
		case "?", "h":
			if m.page != help {
				m.back, m.page = m.page, help
				return Nothing
			}
		case "b":
			return m.take()
		}
	}
	switch m.page {
	case help:
		m.page = m.back
	case one:
		m.pressOne(k)
	default:
		m.pressList(k, height)
	}
	return Nothing
}

func (m *Model) pressList(k Key, height int) {
	switch k.Code {
	case Enter:
		if m.chosen != "" {
			m.page, m.person, m.scroll = one, 0, 0
		}
	case Escape:
		m.filter = ""
		m.arrange()
	case Char:
		switch k.Text {
		case "/":
			m.field = filter
		case "s":
			m.sort = (m.sort + 1) % len(orders)
			m.arrange()
		case "r":
			m.reversed = !m.reversed
			m.arrange()
		}
	}
	if to, ok := steps(k, m.pos, layout(height).rows, len(m.rows)); ok {
		m.move(to)
	}
}

func (m *Model) pressOne(k Key) {
	switch {
	case k.Code == Escape || k.Code == Enter || k.Code == Backspace:
		m.page = list
		m.arrange()
	default:
		if to, ok := steps(k, m.person, 10, len(m.people())); ok {
			m.person = max(0, min(to, len(m.people())-1))
		}
	}
}

// steps returns where a key moves a cursor to.
func steps(k Key, at, page, n int) (to int, ok bool) {
	switch {
	case k.Code == Up || k.Text == "k":
		return at - 1, true
	case k.Code == Down || k.Text == "j":
		return at + 1, true
	case k.Code == PageUp:
		return at - page, true
	case k.Code == PageDown || k.Text == " ":
		return at + page, true
	case k.Code == Home || k.Text == "g":
		return 0, true
	case k.Code == End || k.Text == "G":
		return n - 1, true
	}
	return at, false
}

// edit takes typed text.
func (m *Model) edit(k Key) Act {
	text := &m.filter
	if m.field == reason {
		text = &m.target.Reason
	}
	switch k.Code {
	case Char, Paste:
		if len(*text)+len(k.Text) <= mostText {
			*text += k.Text
		}
	case Backspace:
		_, n := utf8.DecodeLastRuneInString(*text)
		*text = (*text)[:len(*text)-n]
	case Clear:
		*text = ""
	case Enter:
		m.field = none
		return Nothing
	case Escape:
		if m.field == reason {
			m.call("nothing was broken")
			return Nothing
		}
		m.field, m.filter = none, ""
	case Up, Down, PageUp, PageDown:
		if m.field == filter {
			m.field = none
		}
	}
	if m.page == list {
		m.arrange()
	}
	return Nothing
}

// take begins to take a key from the owner that the cursor is on.
func (m *Model) take() Act {
	h, ok := m.pointed()
	switch {
	case m.page == help || !ok:
	case m.breaking != nil:
		m.status = "one break at a time: that of " + Shown(m.breaking.Key) + " is under way"
	case m.ReadOnly:
		m.status = "nothing can be broken: --read-only"
	case h.Foreign || h.Owner == "":
		m.status = "hasp never breaks the lease of another program"
	default:
		m.target = &Target{Key: m.chosen, Owner: h.Owner, Who: plain.Line(people.Name(h))}
		m.back, m.page = m.page, confirm
		return Plan
	}
	return Nothing
}

// pointed is the owner that the cursor is on. Of several holders of a key, or of the waiters
// for a key without a holder, that is chosen on the key's own page.
func (m *Model) pointed() (h hasp.Holder, ok bool) {
	if m.page == one {
		if all := m.people(); m.person < len(all) {
			return all[m.person], true
		}
		return h, false
	}
	if m.page != list || m.pos >= len(m.rows) {
		return h, false
	}
	e := m.rows[m.pos]
	if !e.Held || e.Leases > 1 {
		m.page, m.person, m.scroll = one, 0, 0
		m.status = "choose whom to break, and press b again"
		return h, false
	}
	return e.Holder, true
}

// Planned says what a break of this target would do; with trouble, why there is none.
func (m *Model) Planned(t *Target, plan, trouble string) {
	switch {
	case t != m.target: // it was called off meanwhile
	case trouble != "":
		m.call(trouble)
	default:
		m.target.Plan = plan
		m.field = reason
	}
}

// answer takes the last word before a break.
func (m *Model) answer(k Key) Act {
	switch {
	case m.target.Plan == "": // it comes
		if k.Code == Escape || k.Text == "q" {
			m.call("nothing was broken")
		}
		return Nothing
	case k.Code == Char && (k.Text == "y" || k.Text == "Y"):
		m.page, m.breaking, m.status = m.back, m.target, "breaking "+Shown(m.target.Key)+" …"
		m.target = nil
		return Break
	}
	m.call("nothing was broken")
	return Nothing
}

// call ends a break, with a word on what became of it.
func (m *Model) call(what string) {
	if m.page == confirm {
		m.page = m.back
	}
	m.field, m.target, m.status = none, nil, what
	if m.page == list {
		m.arrange()
	}
}

// Broke says what became of the break.
func (m *Model) Broke(what string) { m.breaking, m.status = nil, what }

// Target is the owner that a break, or the question about it, is about; nil for none.
func (m *Model) Target() *Target {
	if m.target != nil {
		return m.target
	}
	return m.breaking
}
