// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"
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
	Char Code = iota // a character that prints
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

var codes = map[string]Code{
	"enter": Enter, "ctrl+j": Enter, "esc": Escape, "backspace": Backspace, "ctrl+h": Backspace, "ctrl+u": Clear,
	"up": Up, "ctrl+p": Up, "down": Down, "ctrl+n": Down, "pgup": PageUp, "pgdown": PageDown, "home": Home, "end": End,
	"find": Home, "select": End,
}

// mostPaste bounds what is taken of a paste, in bytes.
const mostPaste = 4096

// keyboard makes keys of messages.
type keyboard struct{ pasting bool }

// keys are the keys of a message; none where it counts for nothing. What is no text is left out of a paste, and no part of one is a key.
func (b *keyboard) keys(msg tea.Msg) []Key {
	switch msg := msg.(type) {
	case tea.PasteStartMsg:
		b.pasting = true
	case tea.PasteEndMsg:
		b.pasting = false
	case tea.PasteMsg:
		return []Key{{Paste, printable(msg.Content[:min(len(msg.Content), mostPaste)])}}
	case tea.KeyPressMsg:
		if !b.pasting {
			return keysOf(msg)
		}
	}
	return nil
}

func keysOf(msg tea.KeyPressMsg) []Key {
	if msg.Mod&tea.ModAlt != 0 { // an escape, and another key right after it
		msg.Mod &^= tea.ModAlt
		if msg.Mod == 0 && msg.Code < tea.KeyExtended {
			msg.Text = string(msg.Code)
		}
		return append([]Key{{Code: Escape}}, keysOf(msg)...)
	}
	if code, ok := codes[msg.Keystroke()]; ok {
		return []Key{{Code: code}}
	}
	if text := printable(msg.Text); text != "" && msg.Mod&tea.ModCtrl == 0 {
		return []Key{{Text: text}}
	}
	return nil
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
}
