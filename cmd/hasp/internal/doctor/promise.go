// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
)

var faults = []struct {
	fault driver.Fault
	words string
}{
	{driver.StoreRestart, "a restart of a server that loses leases"},
	{driver.StoreLoss, "a server that is emptied or replaced"},
	{driver.ClockStep, "a step of the clock that ends leases"},
	{driver.Failover, "a replica that takes over while the old server goes on"},
}

// Kind is what the traits of an engine do not say about a store.
type Kind struct {
	Nodes   int           // the number of its servers
	Local   bool          // it is a file, for the processes of this machine
	Dangers string        // faults that the engine cannot notice
	Session time.Duration // what a process that dies held may last for about so long; 0: no longer than its TTL
	Clock   bool          // a store that lost its fences begins again at its clock

	Replicas int // that confirm each lock

	// NoFences says what to change where there are no fences: the end of a sentence.
	NoFences string

	Notes []string // what else a person has to know
}

// Promise describes what a store with these traits promises.
func Promise(t driver.Traits, k Kind) []string {
	var lines []string
	var yes, no []string
	for _, f := range faults {
		if t.Survives&f.fault != 0 {
			yes = append(yes, f.words)
		} else {
			no = append(no, f.words)
		}
	}
	if k.Local {
		yes, no = []string{"a kill of any process", "a reboot", "a step of the wall clock"}, nil
		lines = append(lines, "for the processes of this machine only")
	}
	replica := "a replica"
	if k.Replicas > 0 {
		replica = "such a replica"
		no[len(no)-1] = fmt.Sprintf("a replica that takes over, and is none of the %d that confirm each lock, restarted without its data, or has a clock that is ahead", k.Replicas)
	}
	if k.Dangers != "" {
		no = append(no, k.Dangers)
	}
	if len(yes) > 0 {
		lines = append(lines, "does not lead to two holders: "+strings.Join(yes, "; "))
	}
	lines = append(lines, "can lead to two holders: "+strings.Join(no, "; "))
	if k.Nodes > 1 {
		lines = append(lines, fmt.Sprintf("grants locks while at most %d of %d nodes are down or held back", k.Nodes-k.Nodes/2-1, k.Nodes))
	}
	if k.Session > 0 {
		lines = append(lines, fmt.Sprintf("keeps what a process that dies held until its session expires, after up to %v, even if its TTL is shorter", k.Session))
	}
	switch {
	case t.Fencing && k.Clock && !k.Local && k.Nodes <= 1 && t.MaxTTL == 0: // Redis without a node record
		lines = append(lines, "fences rise from holder to holder even then, unless a clock is set back, too, or "+replica+" takes over whose clock is behind")
	case t.Fencing && k.Clock:
		lines = append(lines, "fences rise from holder to holder even then, unless a clock is set back, too")
	case t.Fencing:
		lines = append(lines, "fences rise from holder to holder, provided that the store loses no data")
	}
	return append(lines, k.Notes...)
}
