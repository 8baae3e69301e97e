// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hasplock/hasp/verify/model"
)

var update = flag.Bool("update", false, "search the models again, and write "+file)

// file has the counterexamples, which take longer to find than to replay.
const file = "testdata/stories.txt"

// trace is a counterexample.
type trace struct {
	model.Case
	model.Report
}

// As built the code departs from each story where its row says, and nothing is wrong in the end;
// with the safeguard undone the story is reproduced; where two prevent it, either is enough.
func TestStories(t *testing.T) {
	all := readStories(t)
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			trace, ok := all[s.name]
			delete(all, s.name)
			switch {
			case !ok:
				t.Fatal("no model has this counterexample")
			case s.elsewhere != "":
				return
			}
			wrong := ""
			if len(s.stops) == 0 {
				wrong = trace.Wrong // a limit
			}
			s.plays(t, trace, undone{}, s.stops, wrong)
			for _, u := range s.partly {
				if leaves, wrong := play(t, trace, u); wrong != "" || len(leaves) == 0 {
					t.Errorf("one of two safeguards undone: %q, in the end %q", leaves, wrong)
				}
			}
			if s.undo != nil {
				s.plays(t, trace, *s.undo, s.other, trace.Wrong)
			} else if len(s.stops) > 0 {
				t.Error("what undoes its safeguard?")
			}
		})
	}
	for name, trace := range all {
		t.Errorf("the counterexample %q is not played: %s", name, trace.About)
	}
}

func (s *story) plays(t *testing.T, trace trace, u undone, stops []string, end string) {
	t.Helper()
	leaves, wrong := play(t, trace, u)
	if wrong != end {
		t.Errorf("in the end: %q, want %q\n%s", wrong, end, trace)
	}
	if !slices.Equal(leaves, stops) {
		t.Errorf("the code departs from the story at\n\t%q,\nwant\n\t%q\n%s", leaves, stops, trace)
	}
}

// readStories returns the counterexamples of the file by name, each walked through its model once more.
func readStories(t *testing.T) map[string]trace {
	t.Helper()
	if *update {
		writeStories(t)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	stories, all := map[string][]string{}, map[string]trace{}
	for _, story := range strings.Split(string(text), "\n= ")[1:] {
		lines := strings.Split(strings.TrimSpace(story), "\n")
		stories[lines[0]] = lines[1:]
	}
	for _, c := range model.Cases() {
		if !c.Replays() {
			continue
		}
		lines := stories[c.Name]
		r := c.Walk(len(lines), func(k int, s model.Step) bool { return s.String() == lines[k] })
		if all[c.Name] = (trace{c, r}); r.Wrong == "" {
			t.Fatalf("the steps in %s are no counterexample of %s: go test ./verify/model -run TestStories -update", file, c.Name)
		}
		delete(stories, c.Name)
	}
	for name := range stories {
		t.Errorf("%s has %q, which no model has: go test ./verify/model -run TestStories -update", file, name)
	}
	return all
}

func writeStories(t *testing.T) {
	var b strings.Builder
	fmt.Fprintln(&b, "# The counterexamples of these models that play_test.go plays, written by: go test ./verify/model -run TestStories -update")
	for _, c := range model.Cases() {
		if !c.Replays() {
			continue
		}
		fmt.Fprintf(&b, "\n= %s\n", c.Name)
		for _, s := range c.Search(1 << 25).Steps {
			fmt.Fprintln(&b, s)
		}
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
