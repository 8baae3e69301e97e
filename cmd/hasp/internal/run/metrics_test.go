// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"math"
	"testing"
	"time"
)

// What is written is read again, of every key; and a file that is another's is refused.
func TestFiguresOfHostileKeys(t *testing.T) {
	f := noFigures()
	f[lastStart], f[lastExit] = 1795935780.061, 3
	for _, key := range []string{"k", "a\"} 1\nhasp_job_running{key=\"b", `\`, `\"`, "\xff\x00", "# HELP", "\r\u2028", `{key="x"} `} {
		label := jobLabel([]string{key}, "f.prom")
		got, err := parseFigures(string(f.text(label)), label)
		if err != nil || got[lastStart] != f[lastStart] || got[lastExit] != 3 || !math.IsNaN(got[running]) {
			t.Errorf("%q: read %v, %v", key, got, err)
		}
		for _, other := range []string{jobLabel([]string{key, "more"}, "f.prom"), jobLabel([]string{key}, "g.prom")} {
			if _, err := parseFigures(string(f.text(label)), other); err == nil {
				t.Errorf("%q: another job's file is accepted", key)
			}
		}
	}
	for _, text := range []string{"root:x:0:0::/root:/bin/sh\n", "up 1\n", `hasp_job_running{key="k"} 1x`, "\n"} {
		if _, err := parseFigures(text, jobLabel([]string{"k"}, "f.prom")); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// What a run wrote under a clock that was ahead does not hide the runs after it.
func TestFiguresOfALateClock(t *testing.T) {
	now, old := time.Unix(1_800_000_000, 0), noFigures()
	old[lastStart], old[lastSuccess], old[lastExit] = stamp(now)+120, math.Inf(1), 3
	if got := old.credible(now); !math.IsNaN(got[lastStart]) || !math.IsNaN(got[lastSuccess]) || got[lastExit] != 3 {
		t.Errorf("%v is believed", got)
	}
	old[lastStart], old[lastSuccess] = stamp(now)+30, stamp(now)
	if got := old.credible(now); got[lastStart] != old[lastStart] || got[lastSuccess] != old[lastSuccess] {
		t.Errorf("%v became %v", old, got)
	}
}

// The end of a run changes nothing of a run that began later.
func TestFiguresAfter(t *testing.T) {
	set := func(start, success, wait, running float64) jobFigures {
		f := noFigures()
		f[lastStart], f[lastSuccess], f[lastWait], f[7] = start, success, wait, running
		return f
	}
	nan := math.NaN()
	for i, c := range []struct{ mine, old, want jobFigures }{
		{set(10, 11, 1, 0), noFigures(), set(10, 11, 1, 0)},
		{set(10, 11, 1, 0), set(10, 5, 1, 1), set(10, 11, 1, 0)},
		{set(10, 11, 1, 0), set(12, nan, 2, 1), set(12, 11, 1, 1)},
		{set(10, 11, 1, 0), set(12, 13, 2, 0), set(12, 13, 1, 0)},
		{set(nan, nan, 3, nan), set(12, 13, 2, 1), set(12, 13, 3, 1)},
	} {
		if got := c.mine.after(c.old); string(got.text("")) != string(c.want.text("")) {
			t.Errorf("%d: %v, want %v", i, got, c.want)
		}
	}
}
