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
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/people"
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

func (j *judge) say(l operator.Level, check, format string, args ...any) {
	j.all = append(j.all, Finding{Level: l, Node: j.name, Check: check, Text: fmt.Sprintf(format, args...)})
}

// repeats marks the latest finding, where it is so: fences may repeat because of it. In hasp's own layout they go on above the server's clock.
func (j *judge) repeats(is bool) {
	if f := &j.all[len(j.all)-1]; is && f.Level != OK {
		f.FencesRepeat = true
	}
}

// Judge returns the findings about a server.
func Judge(name string, f Facts, v Vote, a Asked) []Finding {
	j := &judge{name: name, f: &f, a: a}
	missing := Fail
	if a.Enough {
		missing = Warn // the others do without it
	}
	if f.Err != nil {
		if denied(f.Err) { // of what every connection begins with
			j.say(missing, "rights", "it does not let this user do anything: %s. Give it that right, and keep it (ACL SAVE, or CONFIG REWRITE)", Said(f.Err))
			return j.all
		}
		j.say(missing, "answers", "%s", a.Says(f.Err))
		return j.all
	}
	j.say(OK, "answers", "it answers, within %v", f.Trip.Round(10*time.Microsecond))
	if j.f.Large != nil {
		j.say(missing, j.f.Large.Check, "%s", j.f.Large.Text)
		return j.all
	}
	j.vote(v, missing)
	j.server()
	j.lag()
	j.skew()
	j.cluster()
	j.memory()
	j.left()
	j.persistence()
	j.written()
	j.clock()
	j.rights(missing)
	return j.all
}

// rights are what the user lacks.
func (j *judge) rights(missing operator.Level) {
	lacks := j.f.Missing
	if j.f.Denied["INFO"] != nil && j.a.MaxTTL > 0 {
		lacks = append(lacks, "+info")
	}
	if j.f.Denied["WAIT"] != nil && j.a.Replicas > 0 {
		lacks = append(lacks, "+wait")
	}
	if len(lacks) > 0 {
		j.say(missing, "rights", "this user may not do what every lock needs. As an administrator, run: ACL SETUSER %s %s, and keep it (ACL SAVE, or CONFIG REWRITE)",
			driver.Printable(j.f.User), strings.Join(lacks, " "))
	}
	told, tells := "waiters poll instead of being notified that a key is free", "waiters are not notified that a key is free, and poll"
	if j.a.Redisson {
		tells += "; those in Java sleep until the lease would have expired"
	}
	for _, right := range []struct{ name, without string }{
		{"SUBSCRIBE", told}, {"PUBLISH", tells}, {"SSUBSCRIBE", told}, {"SPUBLISH", tells},
		{"UNSUBSCRIBE", told}, {"SUNSUBSCRIBE", told}, {"SCAN", "hasp ls does not work"},
	} {
		if err := j.f.Denied[right.name]; err != nil {
			j.say(Warn, "rights", "this user may not use %s: %s (it lacks %s)", right.name, right.without, j.f.grants(right.name))
		}
	}
}

func (j *judge) vote(v Vote, missing operator.Level) {
	switch {
	case v.Err != nil:
		j.say(missing, "votes", "it does not say whether it votes: %s", Said(v.Err))
	case !v.Record:
		j.passedBy()
	case !v.Voting:
		j.say(missing, "votes", "held back, %v left: it may have lost leases when it was started or emptied. Wait and use hasp then; "+
			"or, if nobody holds a lock in this store: hasp doctor --admit. The wait is %s", leftOf(v.Left), counted(j.a.MaxTTL))
		j.all[len(j.all)-1].Left = people.Seconds(v.Left)
	case v.Refuses != nil:
		j.say(missing, "votes", "it votes, but %s. It is no help to the others until that is past", Said(v.Refuses))
	case v.MaxTTL != j.a.MaxTTL:
		j.say(Warn, "votes", "it votes, for leases of at most %v, while max-ttl is %v here: it must be the same on every client "+
			"(how to change it: hasp doctor --help)", v.MaxTTL, j.a.MaxTTL)
	default:
		j.say(OK, "votes", "it votes, for leases of at most %v", v.MaxTTL)
	}
}

// passedBy warns of a node record that locks of this URL ignore.
func (j *judge) passedBy() {
	if j.f.Record == "" || j.a.MaxTTL > 0 || j.a.Redisson || j.a.Cluster {
		return
	}
	most, instead := "max-ttl, as those clients have it,", ""
	if f := strings.Fields(j.f.Record); len(f) == 3 && f[0] == "ok" && atoi(f[2]) > 0 {
		most = fmt.Sprintf("max-ttl=%v", time.Duration(atoi(f[2]))*time.Millisecond)
	}
	if j.a.Replicas > 0 {
		instead = fmt.Sprintf(", instead of replicas=%d", j.a.Replicas)
	}
	j.say(Warn, "votes", "some of its clients keep a node record (%s), and this URL has no max-ttl: it locks without regard to the record, "+
		"and right after a restart that lost leases there can be two holders. Add %s to this URL%s, as every client of the same locks must; "+
		"or, if the record is not needed: end all that use this server, and run: %s", recordKey, most, instead, j.a.Command("DEL "+recordKey))
}

// leftOf is what is left of a wait, in whole seconds.
func leftOf(d time.Duration) time.Duration {
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
	defer j.repeats(j.a.Redisson && replicas > 0)
	switch {
	case info["role"] == "slave":
		j.say(Fail, "role", "it is a replica of %s:%s, which grants no locks: name its master", driver.Printable(info["master_host"]),
			driver.Printable(info["master_port"]))
	case j.a.Replicas > 0:
		j.confirming(j.f.online())
	case replicas > 0 && j.a.MaxTTL > 0:
		j.replicas(replicas)
	case replicas > 0:
		text := fmt.Sprintf("it is a master with %s. One that is promoted may not have received every lock, and there can be two holders", people.Count(replicas, "replica", "replicas"))
		switch {
		case j.a.Redisson:
			text += ". Redisson's layout has nothing against that (hasp's own has max-ttl= and replicas=)"
		case replicas == 1:
			text += ". " + price(replicas)
		case j.a.Cluster:
			text += fmt.Sprintf(": set replicas=%d in the store's URL, for every client", replicas)
		case j.stops(replicas):
			text += ": set " + advised + "). " + price(replicas)
		default:
			text += ": set " + advised + "), and run" + j.stopping(replicas)
		}
		j.say(Warn, "role", "%s", text)
	default:
		j.say(OK, "role", "it is a master")
	}
}

// cluster is about a node of a Redis Cluster.
func (j *judge) cluster() {
	switch state := j.f.Cluster["cluster_state"]; {
	case !j.a.Cluster && j.f.Info["cluster_enabled"] != "1":
	case !j.a.Cluster:
		j.say(Fail, "cluster", "it is a node of a Redis Cluster, which has only a part of the keys: write redis+cluster: in the store's URL")
	case state == "":
		j.say(Warn, "cluster", "the state of the cluster is unknown (CLUSTER INFO is not allowed)")
	case state != "ok" || j.f.Cluster["cluster_slots_ok"] != "16384":
		j.say(Fail, "cluster", "keys of some slots cannot be locked (cluster_state %s, %s of 16384 slots): look at CLUSTER NODES",
			driver.Printable(state), driver.Printable(j.f.Cluster["cluster_slots_ok"]))
	case atoi(j.f.Cluster["cluster_slots_pfail"]) > 0:
		j.say(Warn, "cluster", "the cluster serves all of its slots, but the master of %s of them does not answer this node, and may be down: look at CLUSTER NODES",
			driver.Printable(j.f.Cluster["cluster_slots_pfail"]))
	default:
		j.say(OK, "cluster", "the cluster serves all of its slots, by %s masters", driver.Printable(j.f.Cluster["cluster_size"]))
	}
}

// confirming is what to say of replicas that must confirm each lock.
func (j *judge) confirming(connected int) {
	switch want := j.a.Replicas; {
	case connected < want:
		j.say(Fail, "role", "it is a master with %s, and replicas=%d: too few can confirm a lock, and none is granted", people.Count(connected, "replica", "replicas"), want)
	case connected > want:
		j.say(Warn, "role", "it is a master with %s, of which %d must confirm a lock. One that did not may be promoted, and there can be "+
			"two holders: set replicas=%d in the store's URL, for every client", people.Count(connected, "replica", "replicas"), want, connected)
	default:
		j.say(OK, "role", "it is a master with %s, and all confirm a lock before it is granted. %s", people.Count(connected, "replica", "replicas"), price(connected))
	}
}

func (j *judge) memory() {
	policy, most := cmp.Or(j.f.Info["maxmemory_policy"], j.f.Config["maxmemory-policy"]), j.f.Info["maxmemory"]
	if policy == "" {
		j.say(Warn, "maxmemory-policy", "maxmemory-policy is unknown (INFO and CONFIG are not allowed): it must be noeviction")
		return
	}
	if policy != "noeviction" {
		text := fmt.Sprintf("maxmemory-policy is %s: locks may be evicted, and then there are two holders. Run: %s, %s",
			driver.Printable(policy), j.a.Command("CONFIG SET maxmemory-policy noeviction"), j.keep())
		if most == "0" {
			text += " (maxmemory is 0, so nothing is evicted yet)"
		}
		if n := atoi(j.f.Info["evicted_keys"]); n > 0 {
			text += fmt.Sprintf(". It has evicted %d keys since it was started", n)
		}
		j.say(Warn, "maxmemory-policy", "%s", text)
		j.repeats(j.a.Redisson && strings.HasPrefix(policy, "allkeys")) // the counter of a fenced lock has no TTL
		return
	}
	if other := j.differs(map[string]string{"maxmemory-policy": "noeviction"}); other != "" {
		j.say(Warn, "maxmemory-policy", "nothing is evicted now, but %s", other)
		return
	}
	switch most {
	case "", "0":
		j.say(OK, "maxmemory-policy", "nothing is evicted; maxmemory is %s", cmp.Or(most, "unknown"))
	default:
		j.say(OK, "maxmemory-policy", "nothing is evicted; when maxmemory is reached, no lock is granted")
	}
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
	n, _ := strconv.Atoi(s)
	return n
}
