// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Line is a line of a frame. Its text must be safe to print.
type Line struct {
	Text  string
	Style Style
	Marks []Mark // in order
}

// Mark is a part of a line, in bytes, that has a style besides the line's.
type Mark struct {
	From, To int
	Style    Style
}

// styled returns the line with its styles.
func (l Line) styled() string {
	s, at := "", 0
	for _, m := range append(l.Marks, Mark{From: len(l.Text), To: len(l.Text)}) {
		for _, part := range []Mark{{at, m.From, Normal}, m} {
			if part.From < part.To {
				s += slices.Concat(styles[l.Style], styles[part.Style]).Styled(l.Text[part.From:part.To])
			}
		}
		at = m.To
	}
	return s
}

// Style is how a line looks.
type Style uint8

// The styles.
const (
	Normal Style = iota
	Bold
	Inverse
	Warning
	Alarm
)

var styles = [...]ansi.Style{Warning: ansi.NewStyle().ForegroundColor(ansi.Yellow), Bold: ansi.NewStyle().Bold(), Inverse: ansi.NewStyle().Reverse(true), Alarm: ansi.NewStyle().ForegroundColor(ansi.Red)}

// Draw is what shows the lines, cut to so many columns and rows; without their styles
// when they are not wanted.
func Draw(lines []Line, width, height int, styled bool) string {
	lines = lines[:min(len(lines), height)]
	all := make([]string, len(lines))
	for i, line := range lines {
		if all[i] = line.Text; styled {
			all[i] = line.styled()
		}
		all[i] = Cut(all[i], width)
	}
	return strings.Join(all, "\n")
}

// Width is how many columns a text takes.
func Width(text string) int { return ansi.StringWidth(text) }

// Ellipsis stands for what has no room, in one column. It is set before anything is shown.
var Ellipsis = "…"

// Cut returns as much of a text as has room.
func Cut(text string, width int) string {
	if len(text) <= width { // no character takes more columns than bytes
		return text
	}
	return ansi.Truncate(text, width, Ellipsis)
}

// Pad returns a text of exactly so many columns.
func Pad(text string, width int) string {
	text = Cut(text, width)
	return text + strings.Repeat(" ", max(0, width-Width(text)))
}
