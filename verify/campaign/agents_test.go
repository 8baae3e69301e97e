// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/engines"
)

// buildCommand builds hasp, and returns the command.
func buildCommand(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hasp")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/hasplock/hasp/cmd/hasp").CombinedOutput(); err != nil {
		t.Fatalf("go build of hasp: %v\n%s", err, out)
	}
	return path
}

// Rule: whatever happens to clients, agents, pipes and the store, two clients never believe that they hold one key, each learns of a
// loss before its deadline, and the key of a client that died is given on at once, as abandoned.
func TestQuickCampaignsOfAgents(t *testing.T) {
	t.Parallel()
	command := buildCommand(t)
	for _, of := range []Store{engines.SQLite, Redis} {
		t.Run(string(of), func(t *testing.T) {
			requireStore(t, of)
			checkCampaign(t, Options{Seeds: []uint64{1, 2, 5}, Of: of, Agent: command})
		})
	}
}

// agentVariants are clients, or agents as a client sees them, without a safeguard.
var agentVariants = []*sabotage{
	{name: "left_ms counts from the answer", variant: variant{lease: func(l agentLease) player.Lease { return lengthened{l, time.Since(l.asked)} }},
		oracle: TimelyEnd, plan: Schedule{Long: 3}},
	{name: "the end of file is not heard", variant: variant{lease: deafTo}, oracle: Told, plan: aimed(AgentKill, 3*time.Second, 0)},
	{name: "the end of a connection releases nothing", variant: variant{heir: 8 * time.Second}, oracle: Dead, plan: aimed(ClientKill, 6*time.Second, 0)},
	{name: "nothing lingers", variant: variant{hasty: true}, oracle: Exclusion, plan: aimed(ClientKill, 3*time.Second, 3*time.Second)},
	{name: "a lost lease has time left", variant: variant{lease: func(l agentLease) player.Lease { return endless{l} }}, on: Redis,
		oracle: Exclusion, plan: aimed(Partition, 1500*time.Millisecond, 0)},
	{name: "the next is not told", variant: variant{lease: func(l agentLease) player.Lease { return unsaid{l} }}, oracle: Dead, plan: aimed(ClientKill, time.Second, 0)},
}

// aimed is a schedule with a fault of a holder for longer than its lease. All hold alone, for twice as long.
func aimed(k Kind, ttl, linger time.Duration) Schedule {
	return Schedule{MaxTTL: ttl, Alone: true, Longest: 2 * ttl, Linger: linger, Actions: []Action{
		{Kind: k, Part: Begin, Nodes: []int{0}, Client: aHolder}, {At: ttl * 3 / 2, Kind: k, Part: End, Nodes: []int{0}, Client: aHolder}}}
}

func init() {
	for _, v := range agentVariants {
		variants[v.name] = &v.variant
	}
}

// Rule: without a safeguard the campaign of agents finds a violation, in one of a few runs of a schedule in which hasp as it is has none.
func TestBrokenAgentVariantsAreCaught(t *testing.T) {
	testserver.Require(t, "redis")
	t.Parallel()
	command := buildCommand(t)
	for _, v := range agentVariants {
		v.plan.Agent, v.on = command, cmp.Or(v.on, engines.SQLite)
	}
	checkVariants(t, agentVariants)
}

// lengthened has a lease last for as long as its answer took.
type lengthened struct {
	agentLease
	by time.Duration
}

func (l lengthened) Deadline() time.Time { return l.agentLease.Deadline().Add(l.by) }

// deaf hears of no loss but by the clock.
type deaf struct {
	agentLease
	done chan struct{}
}

func deafTo(l agentLease) player.Lease {
	d := deaf{l, make(chan struct{})}
	go func() {
		for d.Err() == nil {
			time.Sleep(time.Until(d.Deadline()))
		}
		close(d.done)
	}()
	return d
}

func (d deaf) Done() <-chan struct{} { return d.done }

func (d deaf) Err() error {
	if time.Now().Before(d.Deadline()) {
		return nil
	}
	return hasp.ErrLost
}

// endless hears of no loss, as its agent always says that there is time left.
type endless struct{ agentLease }

func (endless) Deadline() time.Time   { return time.Now().Add(time.Second) }
func (endless) Done() <-chan struct{} { return nil }
func (endless) Err() error            { return nil }

// unsaid does not say that a holder died.
type unsaid struct{ agentLease }

func (unsaid) Abandoned() bool { return false }
