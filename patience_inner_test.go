// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
)

// A caller that continues another's wait has only waited since it came.
func TestPatienceJoins(t *testing.T) {
	for _, c := range []struct{ silent, puzzled, from, wantSilent, wantPuzzled time.Duration }{
		{1, 2, 5, 5, 5},
		{7, 8, 5, 7, 8},
		{4, 6, 5, 5, 6},
	} {
		p := patience{silent: at(c.silent), puzzled: at(c.puzzled)}
		p.joins(at(c.from))
		if p.silent != at(c.wantSilent) || p.puzzled != at(c.wantPuzzled) {
			t.Errorf("%+v: silent since %v, puzzled since %v", c, p.silent.Mono, p.puzzled.Mono)
		}
	}
}

// The wait ends when the pause would end at the bound, not only after it.
func TestPatienceTires(t *testing.T) {
	why := errors.New("trouble")
	for _, c := range []struct {
		name            string
		ttl, most       time.Duration
		silent, puzzled time.Duration // for how long
		exhausted       bool
	}{
		{"no bound", time.Second, 0, time.Hour, 0, false},
		{"within MaxSilence", time.Second, time.Minute, 59*time.Second - 1, 0, false},
		{"at MaxSilence", time.Second, time.Minute, 59 * time.Second, 0, true},
		{"within the TTL", time.Minute, 0, time.Hour, 59*time.Second - 1, false},
		{"at the TTL", time.Minute, 0, time.Hour, 59 * time.Second, true},
		{"a short TTL gives no less than a Try", time.Second, 0, time.Hour, tryLimit - time.Second - 1, false},
		{"after a Try", time.Second, 0, time.Hour, tryLimit - time.Second, true},
	} {
		p := patience{most: c.most, silent: at(2*time.Hour - c.silent), puzzled: at(2*time.Hour - c.puzzled), kind: unclear, why: why}
		if err := p.exhausted(at(2*time.Hour), time.Second, c.ttl); (err != nil) != c.exhausted || err != nil && !errors.Is(err, why) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// One call takes half of MaxSilence at most, and what is left of it.
func TestPatienceLimit(t *testing.T) {
	for _, c := range []struct{ ttl, most, silent, want time.Duration }{
		{time.Second, 0, 0, time.Second},
		{time.Minute, 0, 0, tryLimit},
		{time.Minute, 6 * time.Second, 0, 3 * time.Second},
		{time.Minute, 6 * time.Second, 5 * time.Second, time.Second},
		{time.Minute, 6 * time.Second, 6 * time.Second, 3 * time.Second}, // the process stood still
		{time.Minute, 6 * time.Second, time.Hour, 3 * time.Second},
		{time.Minute, time.Hour, 0, tryLimit},
	} {
		p := patience{most: c.most, silent: at(time.Hour)}
		if got := p.limit(at(time.Hour+c.silent), c.ttl); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Rule: a call that was not sent says what kept it, and does not count as one whose context ended.
func TestNotAsked(t *testing.T) {
	err := error(&silentError{limit: 2 * time.Second, why: driver.NotSent(fmt.Errorf("%w: waited for a connection", context.DeadlineExceeded))})
	if errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not asked within 2s: ") || !strings.Contains(err.Error(), "waited for a connection") {
		t.Error(err)
	}
}
