// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import "context"

// An Examiner is a Driver that can look at what its promises depend on: settings of the
// store, its version, the rights of this user. hasp doctor shows the findings.
type Examiner interface {
	// Examine asks the store about itself, and leaves nothing in it. An error says that
	// the store does not answer.
	Examine(ctx context.Context) ([]Finding, error)
}

// Finding is the result of one check of an Examiner.
type Finding struct {
	Level Level
	Check string // what was looked at, in a word
	Text  string // what was found, and what to do about it; it may repeat what a hostile store said
	// FencesRepeat: of a finding that is not ok, that fences may repeat or go back because
	// of it, so that storage which compares them may take a write that is too late.
	FencesRepeat bool
}

// Level is the severity of a finding.
type Level string

// The levels.
const (
	LevelOK   Level = "ok"
	LevelWarn Level = "warn" // locks are granted, but less is promised than could be
	LevelFail Level = "fail" // locks are not granted, or not safe
)
