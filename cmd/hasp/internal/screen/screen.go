// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package screen shows text on the whole of a terminal, frame by frame, and leaves
// the terminal as it was. Its modes are not touched, so that a process that is
// killed leaves it usable, too.
package screen

import (
	"strings"
	"unicode/utf8"
)

const (
	// Enter puts what the terminal shows aside.
	Enter = "\x1b[?1049h\x1b[?25l"
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

// Frame is what shows the lines, cut to so many columns and rows. The lines must be
// safe to print. more names n lines that have no room.
func Frame(lines []string, width, height int, more func(n int) string) string {
	if over := len(lines) - height; over > 0 && height > 1 {
		lines = append(lines[:height-1:height-1], more(over+1))
	}
	lines = lines[:min(len(lines), height)]
	var b strings.Builder
	b.WriteString(begin)
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(blank)
		b.WriteString(cut(line, width))
	}
	if len(lines) < height {
		b.WriteString(below)
	}
	b.WriteString(end)
	return b.String()
}

// cut returns as much of a line as has room. Characters of East Asia take two
// columns; some others are counted so, too, which only cuts more.
func cut(line string, width int) string {
	columns, keep := 0, 0 // keep: as much as has room beside an ellipsis
	for i, r := range line {
		if columns++; r >= 0x1100 && r != '…' {
			columns++
		}
		if columns < width {
			keep = i + utf8.RuneLen(r)
		}
		if columns > width {
			return line[:keep] + "…"
		}
	}
	return line
}
