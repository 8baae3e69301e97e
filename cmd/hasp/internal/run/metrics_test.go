// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"math"
	"testing"
)

// What is written is read again, of every key; and a file that is another's is refused.
func TestFiguresOfHostileKeys(t *testing.T) {
	f := noFigures()
	f[lastStart], f[lastExit] = 1795935780.061, 3
	for _, key := range []string{"k", "a\"} 1\nhasp_job_running{key=\"b", `\`, `\"`, "\xff\x00", "# HELP", "\r\u2028", `{key="x"} `} {
		label := jobLabel([]string{key})
		got, err := parseFigures(string(f.text(label)), label)
		if err != nil || got[lastStart] != f[lastStart] || got[lastExit] != 3 || !math.IsNaN(got[running]) {
			t.Errorf("%q: read %v, %v", key, got, err)
		}
		if _, err := parseFigures(string(f.text(label)), jobLabel([]string{key, "more"})); err == nil {
			t.Errorf("%q: another job's file is accepted", key)
		}
	}
	for _, text := range []string{"root:x:0:0::/root:/bin/sh\n", "up 1\n", `hasp_job_running{key="k"} 1x`, "\n"} {
		if _, err := parseFigures(text, jobLabel([]string{"k"})); err == nil {
			t.Errorf("%q is accepted", text)
		}
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
