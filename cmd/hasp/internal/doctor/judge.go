// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
)

// How far a server's clock may be from ours. The order of fences counts on the
// larger.
const (
	warnSkew = time.Second
	failSkew = 3 * time.Second
)

// judge makes the findings about one server.
type judge struct {
	name string
	f    *Facts
	a    Asked
	all  []Finding
}

func (j *judge) say(l Level, check, format string, args ...any) {
	j.all = append(j.all, Finding{Level: l, Node: j.name, Check: check, Text: fmt.Sprintf(format, args...)})
}

// Judge says what the facts about a server mean.
func Judge(name string, f Facts, v Vote, a Asked) []Finding {
	j := &judge{name: name, f: &f, a: a}
	missing := Fail
	if a.Enough {
		missing = Warn // the others do without it
	}
	if f.Err != nil {
		j.say(missing, "answers", "it does not answer as it should: %s. Does it run, are its address, user and password right?", Said(f.Err))
		return j.all
	}
	j.say(OK, "answers", "it answers, within %v", f.Trip.Round(10*time.Microsecond))
	j.vote(v, missing)
	j.server()
	j.memory()
	j.persistence()
	j.clock()
	for _, right := range []struct{ name, without string }{
		{"TIME", "nothing is known of its clock"},
		{"SUBSCRIBE", "waiters poll instead of being told that a key is free"},
		{"PUBLISH", "waiters are not told that a key is free, and poll"},
		{"SCAN", "hasp ls does not work"},
	} {
		if f.Denied[right.name] != nil {
			j.say(Warn, "rights", "this user may not use %s: %s", right.name, right.without)
		}
	}
	return j.all
}

func (j *judge) vote(v Vote, missing Level) {
	switch {
	case v.Err != nil:
		j.say(missing, "votes", "it does not say whether it votes: %s", Said(v.Err))
	case !v.Record:
	case !v.Voting:
		j.say(missing, "votes", "held back, %v left: it may have forgotten leases when it was started or emptied. Wait and use hasp then; "+
			"or, if nobody holds a lock of this store: hasp doctor --admit", left(v.Left))
		j.all[len(j.all)-1].Left = v.Left.Seconds()
	case v.MaxTTL != j.a.MaxTTL:
		j.say(Warn, "votes", "it votes, for leases of at most %v, while max-ttl is %v here: it must be the same on every client "+
			"(how to change it: hasp doctor --help)", v.MaxTTL, j.a.MaxTTL)
	default:
		j.say(OK, "votes", "it votes, for leases of at most %v", v.MaxTTL)
	}
}

// left is what is left of a wait, in whole seconds.
func left(d time.Duration) time.Duration {
	return max(d+time.Second-1, time.Second).Truncate(time.Second)
}

func (j *judge) server() {
	info := j.f.Info
	if j.f.InfoErr != nil {
		j.say(Warn, "server", "version and role are unknown (INFO is not allowed: %s)", Said(j.f.InfoErr))
		return
	}
	product, version := "Redis", info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		product, version = "Valkey", v
	}
	if major, _, _ := strings.Cut(version, "."); atoi(major) < 7 {
		j.say(Warn, "version", "%s %s is older than what hasp is tested with: take 7 or later", product, driver.Printable(version))
	} else {
		j.say(OK, "version", "%s %s", product, driver.Printable(version))
	}
	replicas := atoi(info["connected_slaves"])
	switch {
	case info["role"] == "slave":
		j.say(Fail, "role", "it is a replica of %s:%s, which no lock can be had from: name its master", driver.Printable(info["master_host"]),
			driver.Printable(info["master_port"]))
	case replicas > 0 && j.a.MaxTTL == 0:
		j.say(Warn, "role", "it is a master with %d replicas. One that is promoted may not have received every lock, and there can be "+
			"two holders: set max-ttl=30s in the store's URL, for every client", replicas)
	case replicas > 0:
		j.say(OK, "role", "it is a master with %d replicas; one that is promoted is held back at first", replicas)
	default:
		j.say(OK, "role", "it is a master")
	}
	if info["cluster_enabled"] == "1" {
		j.say(Fail, "cluster", "it is a node of a Redis Cluster, which has only a part of the keys: name a server without cluster-enabled")
	}
}

func (j *judge) memory() {
	policy, most := cmp.Or(j.f.Info["maxmemory_policy"], j.f.Config["maxmemory-policy"]), j.f.Info["maxmemory"]
	if policy == "" {
		j.say(Warn, "maxmemory-policy", "maxmemory-policy is unknown (INFO and CONFIG are not allowed): it must be noeviction")
		return
	}
	if policy != "noeviction" {
		text := fmt.Sprintf("maxmemory-policy is %s: locks may be evicted, and then there are two holders. Run: %s, and set it in the "+
			"server's configuration, too", driver.Printable(policy), j.a.Command("CONFIG SET maxmemory-policy noeviction"))
		if most == "0" {
			text += " (maxmemory is 0, so nothing is evicted yet)"
		}
		if n := atoi(j.f.Info["evicted_keys"]); n > 0 {
			text += fmt.Sprintf(". It has evicted %d keys since it was started", n)
		}
		j.say(Warn, "maxmemory-policy", "%s", text)
		return
	}
	switch most {
	case "", "0":
		j.say(OK, "maxmemory-policy", "nothing is evicted; maxmemory is %s", cmp.Or(most, "unknown"))
	default:
		j.say(OK, "maxmemory-policy", "nothing is evicted; when maxmemory (%s bytes) is reached, no lock is granted", driver.Printable(most))
	}
}

func (j *judge) persistence() {
	aof, fsync, save := j.f.Config["appendonly"], j.f.Config["appendfsync"], j.f.Config["save"]
	if aof == "" {
		aof = map[string]string{"1": "yes", "0": "no"}[j.f.Info["aof_enabled"]]
	}
	_, known := j.f.Config["save"]
	settings := fmt.Sprintf("appendonly %s, appendfsync %s, save %q", cmp.Or(driver.Printable(aof), "unknown"),
		cmp.Or(driver.Printable(fsync), "unknown"), save)
	switch {
	case aof == "":
		settings = "persistence is unknown (INFO and CONFIG are not allowed)"
	case !known:
		settings = fmt.Sprintf("appendonly %s, the rest of persistence is unknown (CONFIG is not allowed)", driver.Printable(aof))
	}
	switch {
	case j.a.MaxTTL > 0:
		j.say(OK, "persistence", "%s: whatever it forgets in a restart, it is held back for %v then", settings,
			admission.Wait(j.a.MaxTTL).Round(time.Second))
	case aof == "yes" && fsync == "always":
		j.say(OK, "persistence", "%s: a restart forgets nothing", settings)
	case aof == "yes" && fsync == "everysec":
		j.say(Warn, "persistence", "%s: when the machine dies, locks of the last second are forgotten, and there can be two holders. %s", settings, j.remedy())
	case aof == "yes":
		j.say(Warn, "persistence", "%s: when the machine dies, recent locks may be forgotten, and there can be two holders. %s", settings, j.remedy())
	default:
		j.say(Warn, "persistence", "%s: a restart forgets locks, and there can be two holders, until the first one's next renewal. %s",
			settings, j.remedy())
	}
}

func (j *judge) remedy() string {
	return "Set max-ttl=30s in the store's URL, for every client; or run: " + j.a.Command("CONFIG SET appendonly yes") + " and: " +
		j.a.Command("CONFIG SET appendfsync always")
}

func (j *judge) clock() {
	if j.f.Trip == 0 {
		return
	}
	off, side := j.f.Ahead, "ahead of"
	if off < 0 {
		off, side = -off, "behind"
	}
	least := max(off-j.f.Trip/2, 0) // the answer was made at any moment of the round trip
	text := fmt.Sprintf("its clock is %v %s this machine's", off.Round(time.Millisecond), side)
	switch {
	case least > failSkew && j.a.MaxTTL > 0:
		j.say(Fail, "clock", "%s: after a restart, fences rise only while clocks are within %v. Synchronise both with NTP, by slewing", text, failSkew)
	case least > warnSkew:
		j.say(Warn, "clock", "%s: synchronise both with NTP, by slewing: a step forward ends leases early", text)
	default:
		j.say(OK, "clock", "its clock is this machine's, give or take %v", max(off, j.f.Trip/2).Round(10*time.Microsecond))
	}
}

// Said is an error in words that are safe to print: a server may have written it.
func Said(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return "no answer in time"
	}
	return driver.Printable(err.Error())
}

// atoi reads a number; what is none is 0.
func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}
