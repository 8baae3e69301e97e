// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/people"
)

const (
	// lateReplica is how long nothing may have been heard of a replica, which reports every second.
	lateReplica = 3 * time.Second
	// farReplica is how many bytes it may lack.
	farReplica = 1 << 20
	// nearlyFull is the part of the memory that has to be left, as 1 over it.
	nearlyFull = 10
)

// replica is one of a master's, as INFO has it.
type replica struct {
	addr, state string
	behind      int           // bytes that it lacks
	silent      time.Duration // since it said what it has
}

// replicas are those of a master.
func (f *Facts) replicas() []replica {
	var all []replica
	for i := 0; ; i++ {
		line, ok := f.Info[fmt.Sprintf("slave%d", i)]
		if !ok {
			return all
		}
		field := map[string]string{}
		for part := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(part, "=")
			field[name] = value
		}
		all = append(all, replica{
			addr: driver.Printable(field["ip"] + ":" + field["port"]), state: field["state"],
			behind: max(atoi(f.Info["master_repl_offset"])-atoi(field["offset"]), 0), silent: time.Duration(atoi(field["lag"])) * time.Second,
		})
	}
}

// online counts the replicas that receive what is written.
func (f *Facts) online() int {
	all := f.replicas()
	if all == nil { // an older server, or a fork
		return atoi(f.Info["connected_slaves"])
	}
	return len(slices.DeleteFunc(all, func(r replica) bool { return r.state != "online" }))
}

// lag is about the replicas of a master: how far behind they are.
func (j *judge) lag() {
	const lacks = "promoted now, it would lack locks. Look at its load, its disk and its network"
	all, fine := j.f.replicas(), replica{}
	late := 0
	for _, r := range all {
		switch {
		case r.state != "online":
			j.say(Warn, "replica", "its replica %s has no copy yet (%s): %s", r.addr, driver.Printable(r.state), lacks)
		case r.behind > farReplica || r.silent > lateReplica:
			j.say(Warn, "replica", "its replica %s lacks the latest %s, and was last heard of %v ago: %s", r.addr, size(r.behind), r.silent, lacks)
		default:
			fine.behind, fine.silent = max(fine.behind, r.behind), max(fine.silent, r.silent)
			continue
		}
		late++
	}
	switch {
	case len(all) == late:
	case fine.behind == 0:
		j.say(OK, "replica", "%s up to date, heard of %s ago", people.Count(len(all)-late, "replica is", "replicas are"), within(fine.silent))
	default:
		j.say(OK, "replica", "%s at most %s behind, heard of %s ago", people.Count(len(all)-late, "replica is", "replicas are"), size(fine.behind), within(fine.silent))
	}
}

// within rounds a time that is given in whole seconds.
func within(d time.Duration) string {
	if d == 0 {
		return "less than 1s"
	}
	return "at most " + (d + time.Second).String()
}

// left is about the memory that a server has left.
func (j *judge) left() {
	used, most := atoi(j.f.Info["used_memory"]), atoi(j.f.Info["maxmemory"])
	if used == 0 {
		return // INFO is not allowed, as is said elsewhere
	}
	if most > 0 {
		left := max(most-used+atoi(j.f.Info["mem_not_counted_for_evict"]), 0)
		if left < most/nearlyFull {
			j.say(Warn, "memory", "%s of maxmemory %s are left: when none is, no lock is granted, or keys are evicted. Find what fills it "+
				"(redis-cli --bigkeys), or raise maxmemory", size(left), size(most))
			return
		}
		j.say(OK, "memory", "%s of maxmemory %s are left", size(left), size(most))
		return
	}
	resident, machine := atoi(j.f.Info["used_memory_rss"]), atoi(j.f.Info["total_system_memory"])
	switch {
	case machine == 0:
		j.say(OK, "memory", "it uses %s, with no limit of its own (maxmemory)", size(used))
	case machine-resident < machine/nearlyFull:
		j.say(Warn, "memory", "it uses %s of the %s that its machine has, with no limit of its own (maxmemory): the machine may end it. "+
			"Find what fills it (redis-cli --bigkeys)", size(resident), size(machine))
	default:
		j.say(OK, "memory", "it uses %s; its machine has %s, and it has no limit of its own (maxmemory)", size(used), size(machine))
	}
}

// size is a number of bytes, for people.
func size(n int) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d %s", n, units[0])
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}
