// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package screen says how large a console is.
package screen

import (
	"os"

	"golang.org/x/sys/windows"
)

// Size returns the columns and rows of a console. It is not ok when f is none, or
// cannot be drawn on.
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

// Stops delivers nothing: Windows has no such signal.
func Stops() <-chan os.Signal { return nil }

// Stop does nothing.
func Stop(*os.File, []os.Signal) {}

// Foreground says whether the terminal f is this process's to draw on.
func Foreground(*os.File) bool { return true }
