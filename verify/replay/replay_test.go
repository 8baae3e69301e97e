// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/verify/model"
)

// replay says how a counterexample is played on the real code.
type replay struct {
	name string // of the case
	by   string // what prevents it
	level
	clients bool // it is played with clients, too
	redis   bool // and with redis-server

	stops  []string // every step in which the code, as built, departs from the story; none: it is a limit, and is reproduced
	undo   *rules   // the safeguard undone: the story is reproduced
	other  []string // steps in which the code departs even then, on the way to the same end
	whole  string   // why it is not undone
	partly []rules  // one of two safeguards undone: the story is not reproduced
}

// level is a way to play, and its name.
type level struct {
	levelName string
	play      func(t *testing.T, s model.Trace, r rules) outcome
}

// outcome is the result of playing a story.
type outcome struct {
	leaves []string
	wrong  string
}

// bubble plays in memory, in a bubble.
func bubble(slow time.Duration, players func(w *world) (player, func())) func(*testing.T, model.Trace, rules) outcome {
	return func(t *testing.T, s model.Trace, r rules) (o outcome) {
		pace := slow
		if r.bare { // how long a hasp.Client takes does not matter
			pace = 1
		}
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, s, r, pace, func(_ int, maxTTL time.Duration) node { return newMemNode(maxTTL) })
			p, end := players(w)
			w.starts()
			w.play(p)
			end()
			o = outcome{w.leave, w.judge.wrong}
		})
		return o
	}
}

// byMessages plays with requests to the nodes.
var byMessages = level{"messages", bubble(1, func(w *world) (player, func()) { return newMessages(w), func() {} })}

// byClients plays with clients.
func byClients(slow time.Duration) level {
	return level{"clients", bubble(slow, func(w *world) (player, func()) {
		p := newClients(w, w.fences().Listed)
		return p, p.close
	})}
}

// As built, the code departs from each story where it should, and nothing is wrong in
// the end.
func TestAsBuilt(t *testing.T) {
	all := stories(t)
	for _, r := range replays {
		t.Run(r.name, func(t *testing.T) {
			r.judge(t, all[r.name], rules{}, r.play)
		})
	}
}

func (r *replay) judge(t *testing.T, s model.Trace, as rules, play func(*testing.T, model.Trace, rules) outcome) {
	t.Helper()
	o := play(t, s, as)
	t.Logf("%s\n%s", s, strings.Join(o.leaves, "\n"))
	want, wrong := r.stops, ""
	if len(r.stops) == 0 {
		wrong = s.Wrong
	}
	if o.wrong != wrong {
		t.Errorf("in the end: %q, want %q", o.wrong, wrong)
	}
	if !slices.Equal(o.leaves, want) {
		t.Errorf("the code departs from the story at\n%s\nwant\n%s", quoted(o.leaves), quoted(want))
	}
}

// With the safeguard undone the story is reproduced.
func TestUndone(t *testing.T) {
	all := stories(t)
	for _, r := range replays {
		t.Run(r.name, func(t *testing.T) {
			if r.undo == nil {
				t.Skip(r.whole)
			}
			r.comesTrue(t, all[r.name], r.play)
		})
	}
}

// Where two safeguards prevent a story, either of them is enough.
func TestPartlyUndone(t *testing.T) {
	all := stories(t)
	for _, r := range replays {
		for k, as := range r.partly {
			t.Run(fmt.Sprintf("%s/%d", r.name, k), func(t *testing.T) {
				if o := r.play(t, all[r.name], as); o.wrong != "" || len(o.leaves) == 0 {
					t.Errorf("in the end: %q, and the code departs from the story at\n%s", o.wrong, quoted(o.leaves))
				}
			})
		}
	}
}

func (r *replay) comesTrue(t *testing.T, s model.Trace, play func(*testing.T, model.Trace, rules) outcome) {
	t.Helper()
	o := play(t, s, *r.undo)
	t.Logf("%s\n%s", s, strings.Join(o.leaves, "\n"))
	if o.wrong != s.Wrong {
		t.Errorf("in the end: %q, want %q", o.wrong, s.Wrong)
	}
	if !slices.Equal(o.leaves, r.other) {
		t.Errorf("the code departs from the story at\n%s\nwant\n%s", quoted(o.leaves), quoted(r.other))
	}
}

func quoted(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "\t\t%q,\n", l)
	}
	return b.String()
}

// Stories that are played with requests are also played with clients, if their rule
// belongs to nodes only.
func TestByClients(t *testing.T) {
	all := stories(t)
	for _, r := range replays {
		if !r.clients {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			r.judge(t, all[r.name], rules{}, byClients(1).play)
			if r.undo != nil {
				r.comesTrue(t, all[r.name], byClients(1).play)
			}
		})
	}
}
