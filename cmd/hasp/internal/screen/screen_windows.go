// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"os"

	"golang.org/x/sys/windows"
)

// Size returns the columns and rows of a console. It is not ok when f is none, or
// one that cannot be drawn on.
func Size(f *os.File) (width, height int, ok bool) {
	h := windows.Handle(f.Fd())
	var mode uint32
	var info windows.ConsoleScreenBufferInfo
	if windows.GetConsoleMode(h, &mode) != nil || windows.GetConsoleScreenBufferInfo(h, &info) != nil ||
		windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) != nil {
		return 0, 0, false
	}
	return int(info.Window.Right-info.Window.Left) + 1, int(info.Window.Bottom-info.Window.Top) + 1, true
}

// Windows has none of these signals: the next frame has the new size.

// Changes delivers nothing.
func Changes() <-chan os.Signal { return nil }

// Stops says whether a signal of Changes asks for a stop.
func Stops(os.Signal) bool { return false }

// Stop does nothing.
func Stop(*os.File, []os.Signal) {}

// Foreground says whether the terminal f is this process's to draw on.
func Foreground(*os.File) bool { return true }

// Raw has the console f deliver each key at once, and show none. restore brings back how
// it was.
func Raw(f *os.File) (restore func(), err error) {
	h := windows.Handle(f.Fd())
	var was uint32
	if err := windows.GetConsoleMode(h, &was); err != nil {
		return nil, err
	}
	raw := was&^(windows.ENABLE_LINE_INPUT|windows.ENABLE_ECHO_INPUT) | windows.ENABLE_PROCESSED_INPUT | windows.ENABLE_VIRTUAL_TERMINAL_INPUT
	if err := windows.SetConsoleMode(h, raw); err != nil {
		return nil, err
	}
	return func() { _ = windows.SetConsoleMode(h, was) }, nil // the console may be gone
}
