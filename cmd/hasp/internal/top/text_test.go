// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"strings"
	"testing"
)

func TestDraw(t *testing.T) {
	lines := []Line{{Text: "abcdef"}, {Text: "丛丛丛"}, {}, {Text: "x"}}
	for _, c := range []struct {
		width, height int
		want          string
	}{
		{80, 24, "abcdef|丛丛丛||x"},
		{80, 5, "abcdef|丛丛丛||x"},
		{80, 4, "abcdef|丛丛丛||x"},
		{80, 3, "abcdef|丛丛丛|"},
		{80, 2, "abcdef|丛丛丛"},
		{80, 1, "abcdef"},
		{6, 4, "abcdef|丛丛丛||x"},
		{5, 4, "abcd…|丛丛…||x"},
		{4, 4, "abc…|丛…||x"},
		{2, 4, "a…|…||x"},
		{1, 4, "…|…||x"},
		{1, 1, "…"},
	} {
		if text := strings.ReplaceAll(Draw(lines, c.width, c.height, false), "\n", "|"); text != c.want {
			t.Errorf("%d by %d: %q, want %q", c.width, c.height, text, c.want)
		}
	}
}
