// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package screen shows text on the whole of a terminal, frame by frame, reads its keys,
// and leaves the terminal as it was.
package screen

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

const (
	// Show puts what the terminal shows aside.
	Show = "\x1b[?1049h\x1b[?25l"
	// Leave brings it back.
	Leave = "\x1b[?7h\x1b[?25h\x1b[?1049l"

	// A frame is drawn over the one before, without a moment in which the terminal
	// is empty, and with no line that goes on in the next one. A line is cleared
	// before it is written: after it the cursor may stand on its last character.
	begin = "\x1b[?7l\x1b[H"
	blank = "\x1b[K"
	end   = "\x1b[?7h"
	// below clears what is under the last line.
	below = "\r\n\x1b[J"
)

// Line is a line of a frame. Its text must be safe to print.
type Line struct {
	Text  string
	Style Style
}

// Style is how a line looks.
type Style uint8

// The styles.
const (
	Normal Style = iota
	Bold
	Inverse
	Alarm
)

var looks = [...]string{Bold: "\x1b[1m", Inverse: "\x1b[7m", Alarm: "\x1b[31m"}

// Draw is what shows the lines, cut to so many columns and rows; without their styles
// when they are not wanted.
func Draw(lines []Line, width, height int, styled bool) string {
	lines = lines[:min(len(lines), height)]
	var b strings.Builder
	b.WriteString(begin)
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(blank)
		if text := Cut(line.Text, width); styled && line.Style != Normal {
			b.WriteString(looks[line.Style] + text + "\x1b[m")
		} else {
			b.WriteString(text)
		}
	}
	if len(lines) < height {
		b.WriteString(below)
	}
	b.WriteString(end)
	return b.String()
}

// Width is how many columns a text takes: two for a wide character of East Asia, none for
// one that is drawn over the one before it. A terminal may think otherwise of a few.
func Width(text string) (columns int) {
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Ellipsis stands for what has no room, in one column. It is set before anything is shown.
var Ellipsis = "…"

// Cut returns as much of a text as has room.
func Cut(text string, width int) string {
	if width <= 0 {
		return ""
	}
	columns, keep := 0, 0 // keep: as much as has room beside an ellipsis
	for i, r := range text {
		columns += runeWidth(r)
		if columns < width {
			keep = i + utf8.RuneLen(r)
		}
		if columns > width {
			return text[:keep] + Ellipsis
		}
	}
	return text
}

// Pad returns a text of exactly so many columns.
func Pad(text string, width int) string {
	text = Cut(text, width)
	return text + strings.Repeat(" ", max(0, width-Width(text)))
}
