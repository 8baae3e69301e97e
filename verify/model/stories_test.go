// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hasplock/hasp/verify/broken"
	"github.com/hasplock/hasp/verify/model"
)

var update = flag.Bool("update", false, "search the models again, and write "+file)

// file has the counterexamples, which take longer to find than to replay, and where the code departs from them.
const file = "testdata/stories.txt"

// story says how the code meets a counterexample.
type story struct {
	name string // of the case
	by   string // what prevents it

	undo   *undone  // with its safeguard undone it comes true; nil: it is a limit, and does as built
	other  []string // steps in which the code departs even then, on the way to the same end
	partly []undone // one of two safeguards undone: it does not come true

	elsewhere string // the tests of the same rule, where the player has not what prevents it
}

// trace is a counterexample, and where the code departs from it.
type trace struct {
	model.Case
	model.Report
	lines []string
}

// As built the code departs from each story where the file says, and nothing is wrong in the end;
// with the safeguard undone the story comes true; where two prevent it, either is enough.
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
			limit := s.undo == nil
			lines, wrong := play(t, trace, undone{})
			if limit != (wrong == trace.Wrong) || !limit && wrong != "" || limit != (departures(lines) == nil) || !slices.Equal(lines, trace.lines) {
				t.Errorf("as built, in the end %q:\n%s\nbut %s has\n%s", wrong, strings.Join(lines, "\n"), file, strings.Join(trace.lines, "\n"))
			}
			for _, u := range s.partly {
				if lines, wrong := play(t, trace, u); wrong != "" || departures(lines) == nil {
					t.Errorf("one of two safeguards undone, in the end %q:\n%s", wrong, strings.Join(lines, "\n"))
				}
			}
			if limit {
				return
			}
			if lines, wrong := play(t, trace, *s.undo); wrong != trace.Wrong || !slices.Equal(departures(lines), s.other) {
				t.Errorf("undone, in the end %q, want %q:\n%s", wrong, trace.Wrong, strings.Join(lines, "\n"))
			}
		})
	}
	for name, trace := range all {
		t.Errorf("the counterexample %q is not played: %s", name, trace.About)
	}
}

// departs stands between a step and how the code departs from it.
const departs = " ! "

// departures returns the steps in which the code departs from a story.
func departures(lines []string) (some []string) {
	for _, l := range lines {
		if strings.Contains(l, departs) {
			some = append(some, l)
		}
	}
	return some
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
		r := c.Walk(len(lines), func(k int, s model.Step) bool {
			step, _, _ := strings.Cut(lines[k], departs)
			return s.String() == step
		})
		if all[c.Name] = (trace{c, r, lines}); r.Wrong == "" {
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
	fmt.Fprintln(&b, "# The counterexamples that play_test.go plays, written by: go test ./verify/model -run TestStories -update")
	fmt.Fprintln(&b, "# What follows a ! is how the code, as built, departs from the story there.")
	for _, c := range model.Cases() {
		if !c.Replays() {
			continue
		}
		lines, r := []string(nil), c.Search(1<<25)
		for _, s := range r.Steps {
			lines = append(lines, s.String())
		}
		if !slices.ContainsFunc(stories, func(s story) bool { return s.name == c.Name && s.elsewhere != "" }) {
			lines, _ = play(t, trace{c, r, nil}, undone{})
		}
		fmt.Fprintf(&b, "\n= %s\n%s\n", c.Name, strings.Join(lines, "\n"))
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

var stories = []story{
	{name: "fences/no comparison", by: "the node: the fence is too low", undo: &undone{around: around(anyFence)}},
	{name: "fences/no floor", by: "the node: its floor at the admission is above what it forgot", undo: &undone{around: around(anyFence)}},
	{name: "fences/minority", by: "quorum: one vote is no majority", undo: &undone{silence: true}},
	{name: "fences/mixed", by: "quorum: votes for two fences are not added up", undo: &undone{around: around(echoed)}},
	{name: "fences/listed twice", by: "quorum: answers from one run of one node are one vote, and an error", undo: &undone{around: hidden}},
	{name: "fences/echo", by: "the node: what it answered it keeps", undo: &undone{around: around(echoed)}},
	{name: "fences/lowered", by: "the node: a standing fence and what is remembered do not fall", undo: &undone{around: lowers}},
	{name: "fences/longest row", by: "quorum: a row is as long as the shortest of the majority", undo: &undone{longest: true}},
	{name: "fences/row below the floor", by: "the node: a row begins above the floor", undo: &undone{around: around(full)}},
	{name: "fences/blind restore", by: "the node: a Restore below a later fence of the key is refused", undo: &undone{around: around(anyRestore)}},
	{name: "fences/old answers", by: "quorum: an answer after its round is no vote", undo: &undone{stale: true}},
	{name: "fences/late restore", by: "nothing: a limit, as the model says"},
	{name: "votes/restarted nodes vote", by: "the node: the record is of another run", undo: &undone{around: atOnce}},
	{name: "votes/uptime, step", by: "the node: the record is of another run", undo: &undone{around: byUptime}},
	{name: "votes/uptime, flush", by: "the node: it has no record", undo: &undone{around: byUptime}},
	{name: "votes/run id, flush", by: "the admission: the wait belongs to the record, which is new", undo: &undone{around: byUptime}},
	{name: "votes/record without run id", by: "the node: the record names another run", undo: &undone{around: atOnce}},
	{name: "votes/short wait", by: "the admission: the wait is longer than the longest lease", undo: &undone{hasty: true}},
	{name: "votes/long lease", by: "the node: the TTL is above that of its admission", undo: &undone{admitted: 3}},
	{name: "votes/another longest lease", elsewhere: "quorum TestWaitIsThatOfTheLongestLease"},
	{name: "votes/from the receipt", by: "hasp: a renewal counts from before it was sent", undo: &undone{receipt: true}},
	{name: "votes/time not subtracted", by: "hasp: a Try counts from before it was sent, and is given up after the TTL", undo: &undone{receipt: true}},
	{name: "votes/minority", by: "quorum: one node does not renew", undo: &undone{silence: true}},
	{name: "votes/blind restore", by: "the node: as fences/blind restore",
		undo:   &undone{around: around(anyRestore), late: true, sameTime: true, anytime: true},
		partly: []undone{{around: around(anyRestore), anytime: true}, {late: true, sameTime: true, anytime: true}}},
	{name: "votes/restore at once, late answers", by: "quorum sends no Restore before a majority renewed; hasp: the lease is over at its deadline, whatever is answered later",
		undo: &undone{late: true, anytime: true, sameTime: true}},
	{name: "votes/restore, late answers", by: "the same", undo: &undone{late: true, anytime: true, sameTime: true}},
	{name: "votes/no tombstone", by: "the node: it remembers who was released", undo: &undone{around: around(noTomb)}},
	{name: "votes/clock step", by: "nothing: a limit, as the model says"},
	{name: "again/blunt", by: "the node: a withdrawal leaves a vote with a larger fence (`UpTo`)", undo: &undone{around: around(withdrawAny)}},
	{name: "again/stood", by: "quorum: a later Try raises what stands; without that, a vote that is being withdrawn is not counted",
		undo: &undone{around: around(echoed)}, partly: []undone{{noRaise: true}}, other: []string{"A HOLDS (1) ! with fence 2"}},
	{name: "floor/forgotten early", elsewhere: "memdriver TestRememberedFences"},
	{name: "floor/two numbers", elsewhere: "memdriver TestProposalsOvertake"},
	{name: "floor/no double turn", elsewhere: "memdriver TestForgottenKey"},
	{name: "floor/a clock that goes and comes back", elsewhere: "memdriver TestForgottenKey"},
}

type member = broken.Node

// node is a node in memory, and its faults.
type node struct {
	*memdriver.Store
	off    time.Duration // of its clock
	old    time.Time     // what its clock shows while it is admitted; zero: the true time
	fixed  time.Time     // what its clock shows; zero: the time
	up     time.Time
	saved  *memdriver.Snapshot
	memory uint64 // see lowered
}

func newNode(maxTTL time.Duration) *node {
	n := &node{up: time.Now().Add(-time.Hour)}
	n.Store = memdriver.NewNode(memdriver.NodeOptions{MaxTTL: maxTTL, Now: n.now})
	return n
}

func (n *node) now() time.Time {
	if !n.fixed.IsZero() {
		return n.fixed
	}
	return time.Now().Add(n.off)
}

func (n *node) restart(from *memdriver.Snapshot) {
	n.Restart(from)
	n.up = n.now()
}

func (n *node) uptime() time.Duration { return n.now().Sub(n.up) }

// Admit admits the node. The stories of leases are not about fences: there its clock is set back
// meanwhile, so that no proposal is refused for the time since it was made.
func (n *node) Admit(ctx context.Context, r voting.Record, maxTTL time.Duration) error {
	n.fixed = n.old
	defer func() { n.fixed = time.Time{} }()
	return n.Store.Admit(ctx, r, maxTTL)
}

// vanish frees the key, as a Release by somebody else.
func (n *node) vanish() {
	info, err := n.Inspect(context.Background(), key)
	if err == nil && info.Held {
		_ = n.Release(context.Background(), driver.ReleaseRequest{Settled: true,
			Claim: driver.Claim{Key: key, Owner: info.Holder.Owner, Label: info.Holder.Label}})
	}
}

// Wrappers of nodes, each of which undoes a safeguard.

// around turns a wrapper into a rule that is the same for all nodes and clients.
func around(f func(n member) member) func(*player, member, int, int) member {
	return func(_ *player, n member, _, _ int) member { return f(n) }
}

func anyFence(n member) member { return broken.New(n, broken.AnyFence) }

func anyRestore(n member) member {
	return broken.New(n, broken.LowFences(func(r voting.VoteRequest) bool { return r.Restore }))
}

// echo answers a holder with the fence it proposes, which the node does not keep.
type echo struct{ member }

func (e echo) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	summary := r.Proposal
	r.Raise = false
	res, err := e.member.Vote(ctx, r)
	if res.Granted {
		res.Fence = summary
	}
	return res, err
}

// lowered makes a lower fence of the holder all that is remembered.
type lowered struct {
	member
	memory *uint64
}

func (l lowered) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	n := broken.New(l.member, broken.LowFences(func(r voting.VoteRequest) bool { return *l.memory != 0 && r.Proposal > *l.memory }))
	res, err := n.Vote(ctx, r)
	if res.Granted && res.Fence > r.Proposal {
		*l.memory = r.Proposal
	}
	return res, err
}

// fullRow answers with as many fences as were requested.
type fullRow struct{ member }

func (f fullRow) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	res, err := f.member.Vote(ctx, r)
	res.Fences = r.Fences
	return res, err
}

// atOnce makes restarted nodes vote; byUptime those that are up for long enough by their own clock.
func atOnce(_ *player, n member, _, _ int) member { return broken.New(n, broken.VotesAfter(0)) }

func byUptime(p *player, n member, _, i int) member {
	return broken.New(n, broken.VotesOnce(func(string) bool { return p.nodes[i].uptime() >= p.maxTTL(0) }))
}

// lowers makes nodes accept a lower fence.
func lowers(p *player, n member, _, i int) member { return lowered{n, &p.nodes[i].memory} }

func echoed(n member) member      { return echo{n} }
func full(n member) member        { return fullRow{n} }
func noTomb(n member) member      { return broken.New(n, broken.NoTombstones) }
func withdrawAny(n member) member { return broken.New(n, broken.AnyWithdrawn) }

// hidden hides from A's client which store a node is.
func hidden(_ *player, n member, owner, _ int) member {
	if owner == 0 {
		return broken.New(n, broken.Anonymous)
	}
	return n
}
