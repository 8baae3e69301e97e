// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"fmt"
	"strings"
	"time"

	"github.com/hasplock/hasp/internal/history"
)

// mostFindings bounds what an oracle lists, because one broken rule shows in many
// places.
const mostFindings = 5

func (h hold) String() string {
	how := ""
	switch {
	case h.Shared:
		how = " to read"
	case h.Down != 0:
		how = fmt.Sprintf(" to write, from %.6f on to read", time.Duration(h.Down).Seconds())
	}
	return fmt.Sprintf("client %d, acquisition %d%s, fence %d, [%.6f, %.6f]", h.Client, h.N, how, h.Fence, time.Duration(h.From).Seconds(), time.Duration(h.To).Seconds())
}

// entry converts the hold for internal/history.
func (h *hold) entry() history.Hold {
	e := history.Hold{Key: h.Key, Owner: h.String(), Fence: h.Fence, Shared: h.Shared, From: h.From.Time(), To: h.To.Time(),
		Asked: int64(h.Asked), Granted: int64(h.From)}
	if h.Down != 0 {
		e.Down = h.Down.Time()
	}
	return e
}

func entries(holds []hold) (all []history.Hold) {
	for i := range holds {
		all = append(all, holds[i].entry())
	}
	return all
}

// overlapping finds holders of one key at one instant, unless all of them only read.
func overlapping(holds []hold) []string { return lines(history.CheckExclusion(entries(holds))) }

// falling finds fences that do not rise in real time: of a hold that was requested
// after another was granted, and, if holds exclude each other, of a hold that was
// granted after another.
func falling(holds []hold, exclusive bool) []string {
	all := entries(holds)
	found := lines(history.CheckFences(all))
	if exclusive {
		found = append(lines(history.CheckRise(all)), found...)
	}
	return found
}

// lines returns the findings that an error lists.
func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

// few returns the first few findings.
func few(found []string) []string {
	if len(found) > mostFindings {
		found = append(found[:mostFindings:mostFindings], fmt.Sprintf("and %d more", len(found)-mostFindings))
	}
	return found
}
