// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package screen says whether a console can be drawn on.
package screen

import (
	"os"

	"golang.org/x/sys/windows"
)

// Drawable says whether f is a console that can be drawn on, and makes it one where that has to be asked for.
func Drawable(f *os.File) bool {
	h := windows.Handle(f.Fd())
	var mode uint32
	return windows.GetConsoleMode(h, &mode) == nil && windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}

// Stops delivers nothing: Windows has no such signal.
func Stops() <-chan os.Signal { return nil }

// Stop does nothing.
func Stop(*os.File, []os.Signal) {}

// Foreground says whether the terminal f is this process's to draw on.
func Foreground(*os.File) bool { return true }
