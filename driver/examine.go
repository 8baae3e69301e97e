// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

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

// largeRequest is the size of a request that takes several packets on every network.
const largeRequest = 8 << 10

// largeLimit is how long it may take, once a small one was answered.
const largeLimit = time.Second

// AskLarge is for an Examiner: ask sends a text to the store on a connection of its own, since nothing goes on behind what vanishes. The
// finding is nil unless a small text is answered, and a large one is not.
func AskLarge(ctx context.Context, ask func(ctx context.Context, text string) error) *Finding {
	if ask(ctx, "x") != nil {
		return nil // that is another trouble
	}
	limited, cancel := context.WithTimeout(ctx, largeLimit)
	defer cancel()
	err := ask(limited, strings.Repeat("x", largeRequest))
	late := net.Error(nil)
	if err == nil || ctx.Err() != nil || limited.Err() == nil && !(errors.As(err, &late) && late.Timeout()) {
		return nil
	}
	return &Finding{Level: LevelFail, Check: "mtu", Text: fmt.Sprintf("small requests are answered, one of %d KiB is not: large packets are lost on the way there or back. "+
		"Lower the MTU of this machine's interface, or let ICMP \"fragmentation needed\" pass", largeRequest>>10)}
}
