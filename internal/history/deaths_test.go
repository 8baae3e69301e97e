// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/history"
)

func cut(h history.Hold) history.Hold { h.Cut = true; return h }

func told(h history.Hold) history.Hold { h.Abandoned = true; return h }

func TestUnreported(t *testing.T) {
	dead := cut(hold("a", 1, 0, 5))
	for name, c := range map[string]struct {
		holds []history.Hold
		want  string // the owner that is found; empty: none
	}{
		"nothing":                       {},
		"all finished":                  {holds: []history.Hold{hold("a", 1, 0, 5), hold("b", 2, 6, 9)}},
		"the last":                      {holds: []history.Hold{dead}},
		"told":                          {holds: []history.Hold{dead, told(hold("b", 2, 6, 9)), hold("c", 3, 10, 12)}},
		"not told":                      {holds: []history.Hold{dead, hold("b", 2, 6, 9)}, want: "a"},
		"the one after next is told":    {holds: []history.Hold{dead, hold("b", 2, 6, 9), told(hold("c", 3, 10, 12))}, want: "a"},
		"in any order":                  {holds: []history.Hold{told(hold("c", 3, 10, 12)), hold("b", 2, 6, 9), dead}, want: "a"},
		"another key's holder is told":  {holds: []history.Hold{dead, hold("b", 2, 6, 9), on("l", told(hold("c", 3, 7, 12)))}, want: "a"},
		"a holder of another key":       {holds: []history.Hold{dead, on("l", hold("c", 3, 7, 12))}},
		"readers, and a writer":         {holds: []history.Hold{dead, told(shared(hold("b", 2, 6, 9))), told(hold("c", 3, 10, 12))}},
		"readers alone":                 {holds: []history.Hold{dead, told(shared(hold("b", 2, 6, 9)))}},
		"a reader is not told":          {holds: []history.Hold{dead, shared(hold("b", 2, 6, 9)), told(hold("c", 3, 10, 12))}, want: "a"},
		"the writer after it is not":    {holds: []history.Hold{dead, told(shared(hold("b", 2, 6, 9))), hold("c", 3, 10, 12)}, want: "a"},
		"a reader dies":                 {holds: []history.Hold{cut(shared(hold("a", 1, 0, 5))), hold("b", 2, 6, 9)}},
		"after a downgrade":             {holds: []history.Hold{down(2, dead), hold("b", 2, 6, 9)}},
		"a slot":                        {holds: []history.Hold{slot(0, 2, dead), slot(1, 2, hold("b", 2, 1, 9)), slot(0, 2, told(hold("c", 3, 6, 9)))}},
		"a slot, told before it ended":  {holds: []history.Hold{slot(0, 2, dead), slot(1, 2, told(hold("b", 2, 1, 9)))}, want: "a"},
		"a slot, and no later holder":   {holds: []history.Hold{slot(0, 2, dead)}, want: "a"},
		"a slot, and another key after": {holds: []history.Hold{slot(0, 2, dead), on("l", told(hold("c", 3, 7, 12)))}, want: "a"},
	} {
		found := history.Unreported(c.holds)
		if (len(found) == 1) != (c.want != "") || len(found) > 1 || c.want != "" && !strings.HasPrefix(found[0], c.want+" did not finish") {
			t.Errorf("%s: %q, want %q", name, found, c.want)
		}
	}
}

func TestFew(t *testing.T) {
	all := []string{"a", "b", "c"}
	if got := strings.Join(history.Few(all, 2), " "); got != "a b and 1 more" || all[2] != "c" {
		t.Errorf("%q of %q", got, all)
	}
	if got := history.Few(all, 3); len(got) != 3 {
		t.Errorf("%q", got)
	}
}
