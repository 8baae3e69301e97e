// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"bufio"
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

// stories returns all counterexamples, by name: those of the file, which the
// models confirm.
func stories(t *testing.T) map[string]model.Trace {
	t.Helper()
	if *update {
		write(t, model.Counterexamples(true))
	}
	all := map[string]model.Trace{}
	steps := read(t)
	for _, c := range model.Cases() {
		if !c.Replays() {
			continue
		}
		trace := model.Trace{Name: c.Name, Rule: c.About, Model: c.Model, Steps: steps[c.Name]}
		if trace.Wrong = trace.Walk(); trace.Wrong == "" {
			t.Fatalf("the steps in %s are no counterexample of %s: go test ./verify/replay -update", file, c.Name)
		}
		all[c.Name] = trace
	}
	for name := range steps {
		if all[name].Name == "" {
			t.Errorf("%s has %q, which no model has: go test ./verify/replay -update", file, name)
		}
	}
	return all
}

func write(t *testing.T, traces []model.Trace) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintln(&b, "# The counterexamples of verify/model, written by: go test ./verify/replay -update")
	fmt.Fprintln(&b, "# A step a line: actor, act, node, value.")
	for _, trace := range traces {
		fmt.Fprintf(&b, "\n= %s\n", trace.Name)
		for _, s := range trace.Steps {
			actor := s.Actor
			if actor == "" {
				actor = "-"
			}
			fmt.Fprintln(&b, actor, s.Act, s.Node, s.Value)
		}
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T) map[string][]model.Step {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, name := map[string][]model.Step{}, ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if after, ok := strings.CutPrefix(line, "= "); ok {
			name = after
			continue
		}
		var s model.Step
		if _, err := fmt.Sscan(line, &s.Actor, &s.Act, &s.Node, &s.Value); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		s.Actor = strings.TrimPrefix(s.Actor, "-")
		all[name] = append(all[name], s)
	}
	return all
}

// Every counterexample has a replay, and is also replayed with its safeguard undone,
// unless a sentence says why not.
func TestEveryStoryIsReplayed(t *testing.T) {
	all := stories(t)
	for name, trace := range all {
		at := slices.IndexFunc(replays, func(r replay) bool { return r.name == name })
		if at < 0 {
			t.Errorf("the model's counterexample %q has no replay: %s", name, trace.Rule)
			continue
		}
		if r := replays[at]; r.play == nil || r.undo == nil && r.whole == "" {
			t.Errorf("%q needs a way to play it, and its safeguard undone or a sentence that says why it is not", name)
		}
	}
	for _, r := range replays {
		if all[r.name].Name == "" {
			t.Errorf("%q is no counterexample of the model", r.name)
		}
	}
	if len(replays) != len(all) {
		t.Errorf("there are %d replays of %d counterexamples", len(replays), len(all))
	}
}

// The table in the models' README has every replay.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../model/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range replays {
		row := fmt.Sprintf("| %s | %s | %s |\n", r.name, r.by, r.levels())
		if !strings.Contains(string(text), row) {
			t.Errorf("verify/model/README.md needs this row:\n%s", row)
		}
	}
}

// levels names the ways in which a story is played.
func (r *replay) levels() string {
	all := []string{r.levelName}
	if r.clients {
		all = append(all, "clients")
	}
	if r.redis || strings.Contains(r.by, "Redis") {
		all = append(all, "redis-server")
	}
	return strings.Join(all, ", ")
}
