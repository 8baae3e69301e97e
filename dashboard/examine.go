// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/people"
)

// examine is the default of Options.Doctor: what the engine finds, whether there are fences, and a lock of its own.
func (s *server) examine(ctx context.Context) (found []Finding, err error) {
	say := func(l operator.Level, check, format string, args ...any) {
		found = append(found, Finding{Level: l, Check: check, Text: fmt.Sprintf(format, args...)})
	}
	if examine := s.client.Operator().Operations().Examine; examine != nil {
		all, err := examine(ctx)
		for _, f := range all {
			say(f.Level, f.Check, "%s", f.Text)
		}
		if err != nil {
			return found, err
		}
	} else {
		say(operator.LevelWarn, "settings", "this page cannot examine a store of this engine: hasp doctor does, with the store's URL")
	}
	if !s.client.Traits().Fencing {
		say(operator.LevelWarn, "fences", "these locks have no fences, so nothing can refuse the late write of a holder that was paused")
	}
	begun := time.Now()
	lease, err := s.client.Mutex(s.Prefix[:min(len(s.Prefix), 400)]+"hasp-doctor-"+rand.Text(), nil).TryLock(ctx)
	if err == nil {
		err = lease.Release()
	}
	if err != nil {
		return found, err
	}
	say(operator.LevelOK, "lock", "a lock was granted and released within %s", people.Short(time.Since(begun)))
	return found, nil
}

// mostLeaks is how many leaks the page shows.
const mostLeaks = 1000

// leftovers is the default of Options.Leaks: what no clock of the store will end, and what processes of this host held when they ended.
func (s *server) leftovers(ctx context.Context) (found []Leak, err error) {
	held := func(i hasp.Info) {
		if i.Held && people.Ended(i.Holder) {
			found = append(found, Leak{Key: i.Key, What: "held by " + people.Named(i.Holder)})
		}
	}
	defer func() {
		slices.SortStableFunc(found, func(a, b Leak) int { return strings.Compare(a.Key, b.Key) })
		if len(found) > mostLeaks {
			found, err = found[:mostLeaks], fmt.Errorf("these are the first %d of %d", mostLeaks, len(found))
		} else if errors.Is(err, context.DeadlineExceeded) {
			err = errors.New("the store is too large, or too slow, to be searched while a page loads: there may be more")
		}
	}()
	list := s.client.Operator().Operations().ListLeftovers
	if list == nil {
		for info, err := range s.client.Operator().List(ctx, s.Prefix) {
			if err != nil {
				return found, err
			}
			held(info)
		}
		return found, nil
	}
	for l, err := range list(ctx, s.Prefix, held) {
		if err != nil {
			return found, err
		}
		found = append(found, Leak{Key: l.Key, What: people.Leftover(l, time.Now())})
	}
	return found, nil
}

// verdict puts the gravest findings first, and says in a line what they come to.
func verdict(found []Finding, trouble string) (l operator.Level, text string) {
	grave := []operator.Level{operator.LevelFail, operator.LevelWarn, operator.LevelOK}
	slices.SortStableFunc(found, func(a, b Finding) int { return slices.Index(grave, a.Level) - slices.Index(grave, b.Level) })
	n := map[operator.Level]int{}
	for _, f := range found {
		n[f.Level]++
	}
	switch fails, warns := n[operator.LevelFail], n[operator.LevelWarn]; {
	case fails > 0:
		return operator.LevelFail, "Locks are not granted, or not safe: mend " + people.Count(fails, "check", "checks")
	case trouble != "":
		return operator.LevelFail, "The examination failed"
	case warns > 0:
		return operator.LevelWarn, "Locks are granted, but less is promised than could be: look at " + people.Count(warns, "check", "checks")
	}
	return operator.LevelOK, "Locks are granted, and nothing endangers them"
}

var (
	commandIn = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\b(?:[Rr]un|and): (.+?)(?:, |\.? and: |\. |\.?$)`)
	})
	// inert is a command without what a shell acts on: a finding may repeat what a hostile store said.
	inert = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(hasp|redis-cli|valkey-cli) [-\w ./:@=%+'"]+$`) })
)

// commands returns the shell commands that a finding tells its reader to run.
func commands(text string) (all []string) {
	for {
		m := commandIn().FindStringSubmatchIndex(text)
		if m == nil {
			return all
		}
		if c := text[m[2]:m[3]]; inert().MatchString(c) {
			all = append(all, c)
		}
		text = text[m[3]:]
	}
}
