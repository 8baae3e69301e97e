// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/people"
)

// unmarked is the verdict on work that is done, but could not be noted.
const unmarked = "unmarked"

// early is how much a clock may be behind that of the planner, for the occurrence of now: a job begins at a full minute, and no job half a
// minute before one.
const early = 30 * time.Second

// occurrence is what --once means at a time. The current day is that of the time zone, which is said; the hour is that of UTC.
func occurrence(once string, now time.Time) (string, error) {
	now = now.Add(early)
	switch {
	case once == "":
		return "", base.Usage("--once names no occurrence: a text such as a date, or @day, or @hour")
	case once == "@hour":
		return now.UTC().Format("2006-01-02T15Z"), nil
	case once == "@day":
		midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location()) // perhaps of the day before: where clocks go forward then
		return now.Format(time.DateOnly) + midnight.Format("Z07:00"), nil
	case once[0] == '@':
		return "", base.Usage("--once %s: of the occurrences that begin with @ there are @day and @hour, the current ones", base.Quote(once))
	}
	return once, nil
}

// checkOnce reads --once and --keep.
func (o *options) checkOnce(given bool, keys []string) (err error) {
	switch {
	case !given && o.remember.Given:
		return base.Usage("--keep says for how long --once remembers an occurrence: name one with --once")
	case !given:
		return nil
	case len(keys) != 1 || o.shared || o.slots > 0:
		return base.Usage("--once is for one KEY, held alone: without --shared and --slots")
	}
	o.occurrence, err = occurrence(o.occurrence, time.Now())
	return err
}

// marked says whether the occurrence of --once is done; then that is the end. Before the wait only a store that
// answers counts; after it, the store is asked until it does.
func (j *job) marked(waits bool) error {
	if j.once == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), base.AskLimit)
	defer cancel()
	var done bool
	var by hasp.Holder
	ask := func(ctx context.Context) (err error) {
		if done, by, err = j.once.Done(ctx); !waits && errors.Is(err, hasp.ErrHeld) { // by a lock that has the name of the mark
			return j.refused(err)
		}
		return err
	}
	err := j.heard(func() error {
		if waits {
			return ask(ctx)
		}
		return insist(ctx, ask)
	})
	if end := (*base.Exit)(nil); errors.As(err, &end) { // that, or a signal's
		return end
	}
	var e *hasp.Error
	switch {
	case done:
		j.done = by.Describe().Since
		return &base.Exit{Verdict: "done", Message: fmt.Sprintf("%s is done for %s, by %s %s. The command was not started",
			base.Quote(j.keys[0]), base.Quote(j.o.occurrence), people.Name(by), people.Ago(j.done, time.Now()))}
	case err == nil, waits && !(errors.As(err, &e) && e.Class == driver.ClassImpossible):
		return nil
	}
	return base.Trouble(j.from.(*storeKeys).URL, err)
}

// mark notes that the occurrence is done. Work that cannot be noted may be done again, and the next holder is told.
func (j *job) mark(leases held) *base.Exit {
	if j.once == nil {
		return nil
	}
	all := leases.(*storeLeases)
	err := j.finish(func() error { return j.once.Mark(all.All()[0]) })
	if err == nil {
		return nil
	}
	if !errors.Is(err, hasp.ErrLost) { // what is lost is abandoned
		_ = j.finish(all.Abandon)
	}
	return &base.Exit{Code: base.ExitUnreachable, Verdict: unmarked, Message: fmt.Sprintf(
		"the command exited with status 0, but that %s is done for %s could not be noted: %s. It may be done again, with HASP_ABANDONED=1",
		base.Quote(j.keys[0]), base.Quote(j.o.occurrence), strings.TrimSuffix(reason(err), "."))}
}
