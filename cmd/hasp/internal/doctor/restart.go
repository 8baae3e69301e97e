// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/people"
)

// defaults are what a server takes for settings that its file does not have.
var defaults = map[string]string{"maxmemory-policy": "noeviction", "appendonly": "no", "appendfsync": "everysec", "no-appendfsync-on-rewrite": "no"}

// maxFile bounds a configuration file.
const maxFile = 1 << 20

// local says whether a server is on this machine, so that the path of its file
// may mean the same here.
func local(network, addr string) bool {
	if network == "unix" {
		return true
	}
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// readFile reads the settings of a server's configuration file; nil when that is
// not possible, or other files belong to it.
func readFile(path string) map[string]string {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	file := maps.Clone(defaults)
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch name := strings.ToLower(words[0]); {
		case name == "include":
			return nil
		case defaults[name] != "":
			file[name] = strings.ToLower(strings.Trim(words[1], `"'`))
		}
	}
	return file
}

// differs describes the settings that differ in the file that a restart reads, and
// what to do; empty when they agree, or the file is not known.
func (j *judge) differs(must map[string]string) string {
	var other []string
	for _, name := range slices.Sorted(maps.Keys(must)) {
		if j.f.File != nil && j.f.File[name] != must[name] {
			other = append(other, name+" "+driver.Printable(j.f.File[name]))
		}
	}
	if len(other) == 0 {
		return ""
	}
	return fmt.Sprintf("%s, which a restart reads, says %s. Run: %s", driver.Printable(j.f.Info["config_file"]), strings.Join(other, ", "),
		j.a.Command("CONFIG REWRITE"))
}

// keep says how what was set with CONFIG SET outlasts a restart.
func (j *judge) keep() string {
	switch file, known := j.f.Info["config_file"]; {
	case !known:
		return "and put it into the server's configuration, or it is lost at a restart"
	case file == "":
		return "and put it on the server's command line: it has no configuration file, and what CONFIG SET set is lost at a restart"
	default:
		return fmt.Sprintf("and: %s, as a restart reads %s", j.a.Command("CONFIG REWRITE"), driver.Printable(file))
	}
}

// lasting are the settings with which a restart loses nothing.
var lasting = map[string]string{"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}

func (j *judge) persistence() {
	defer func() { j.repeats(j.a.Redisson) }()
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
		j.say(OK, "persistence", "%s: whatever a restart loses, the server is held back for %v afterwards", settings,
			admission.Wait(j.a.MaxTTL).Round(time.Second))
	case aof == "yes" && fsync == "always" && j.f.Config["no-appendfsync-on-rewrite"] == "yes":
		j.say(Warn, "persistence", "%s, no-appendfsync-on-rewrite yes: when the machine dies while the log is rewritten, recent locks may be lost, and "+
			"there can be two holders. Run: %s, %s", settings, j.a.Command("CONFIG SET no-appendfsync-on-rewrite no"), j.keep())
	case aof == "yes" && fsync == "always":
		j.lasts(settings)
	case aof == "yes" && fsync == "everysec":
		j.say(Warn, "persistence", "%s: when the machine dies, locks of the last second are lost, and there can be two holders. %s", settings, j.remedy())
	case aof == "yes":
		j.say(Warn, "persistence", "%s: when the machine dies, recent locks may be lost, and there can be two holders. %s", settings, j.remedy())
	default:
		j.say(Warn, "persistence", "%s: a restart loses locks, and there can be two holders, until the first one's next renewal%s. %s",
			settings, j.snapshot(), j.remedy())
	}
}

// snapshot says which one a restart reads that has no log; empty when that is not known, or there is none.
func (j *judge) snapshot() string {
	saved, now := atoi(j.f.Info["rdb_last_save_time"]), atoi(j.f.Info["server_time_usec"])/1e6
	if j.f.Config["save"] == "" || saved == 0 || now < saved {
		return ""
	}
	return fmt.Sprintf(" (it reads its snapshot, which is %v old or older)", time.Duration(now-saved)*time.Second)
}

// written is about a server that could not write to its disk what a restart reads: it may grant nothing, and what it has granted may be lost.
func (j *judge) written() {
	const look = ". Is its disk full, or read-only? Its log says why"
	if j.f.Info["aof_last_write_status"] == "err" {
		j.say(Warn, "persistence", "its latest write to the append-only file failed, and while that lasts no lock is granted%s", look)
		j.repeats(j.a.Redisson)
	}
	if j.f.Info["aof_last_bgrewrite_status"] == "err" {
		j.say(Warn, "persistence", "its append-only file could not be rewritten (aof_last_bgrewrite_status err), and grows%s", look)
	}
	if j.f.Info["rdb_last_bgsave_status"] == "err" {
		j.say(Warn, "persistence", "its latest snapshot failed (rdb_last_bgsave_status err). Unless stop-writes-on-bgsave-error is no, no lock is granted "+
			"until one succeeds%s", look)
	}
}

// lasts is about a server that loses nothing as it is configured now. What it reads at
// its next start may be something else.
func (j *judge) lasts(settings string) {
	if j.f.Info["aof_rewrite_in_progress"] == "1" || j.f.Info["aof_rewrite_scheduled"] == "1" {
		j.say(Warn, "persistence", "%s, and the log is being rewritten: where appendonly was switched on just now, a restart loses locks until that is "+
			"done. Look again then", settings)
		return
	}
	if other := j.differs(lasting); other != "" {
		j.say(Warn, "persistence", "%s as now configured, but %s", settings, other)
		return
	}
	switch file, known := j.f.Info["config_file"]; {
	case !known:
		j.say(OK, "persistence", "%s: as now configured, a restart loses nothing (what it reads then is unknown: INFO is not allowed)", settings)
	case file == "":
		j.say(OK, "persistence", "%s: as now configured, a restart loses nothing. It has no configuration file: its command line must say the same, "+
			"as what CONFIG SET set is lost at a restart", settings)
	case j.f.File == nil:
		j.say(OK, "persistence", "%s: as now configured, a restart loses nothing. It reads %s then, which cannot be read from here: after CONFIG SET, run: %s",
			settings, driver.Printable(file), j.a.Command("CONFIG REWRITE"))
	default:
		j.say(OK, "persistence", "%s, and %s says the same: a restart loses nothing", settings, driver.Printable(file))
	}
}

// advised is the max-ttl to set where there is none, and what it costs.
var advised = "max-ttl=30s in the store's URL, for every client (its first use and each restart pause 40 s, " + counted(30*time.Second)

// counted says from when on each client waits, and what that does to a job that waits for nothing.
func counted(maxTTL time.Duration) string {
	return fmt.Sprintf("counted from the first request of each machine and user, so that a nightly job with -n fails once: from cron use -w %.0f -E 0 in place of -n, "+
		"and --hold-at-least where other hosts have the job, too", (admission.Wait(maxTTL) + 20*time.Second).Truncate(time.Second).Seconds())
}

func (j *judge) remedy() string {
	text := "Run: " + j.a.Command("CONFIG SET appendonly yes") + " and: " + j.a.Command("CONFIG SET appendfsync always") + ", " + j.keep()
	if j.a.Cluster || j.a.Replicas > 0 || j.a.Redisson { // max-ttl is not for them
		return text
	}
	return text + ". Or, in place of that, set " + advised + "; hasp doctor --admit ends the first pause)"
}

// A promoted replica is held back for the longest TTL and ten seconds. The master
// that it replaces must have stopped renewing by then less that TTL. It does so
// when too few replicas confirm, up to two seconds after min-replicas-max-lag.
const (
	maxLag    = 7 // seconds
	adviseLag = 5
)

// stops says whether a master that lost one of so many replicas then stops in time.
func (j *judge) stops(n int) bool {
	lag := atoi(j.f.Config["min-replicas-max-lag"])
	return atoi(j.f.Config["min-replicas-to-write"]) >= n && lag > 0 && lag <= maxLag
}

// stopping has it stop, by commands.
func (j *judge) stopping(n int) string {
	return fmt.Sprintf(": %s and: %s, %s, and likewise on each replica. %s", j.a.Command(fmt.Sprintf("CONFIG SET min-replicas-to-write %d", n)),
		j.a.Command(fmt.Sprintf("CONFIG SET min-replicas-max-lag %d", adviseLag)), j.keep(), price(n))
}

// price is what it costs that all of so many replicas are needed, by these settings or by replicas=.
func price(n int) string {
	if n == 1 {
		return "With one replica rather take neither max-ttl nor replicas=, and a guard (docs/guards.md): with either, nothing is granted after a failover until the " +
			"other machine is back"
	}
	return "While one of them is away, as after a failover, nothing is granted then"
}

// replicas is about a master with a node record: one of its replicas may be promoted
// while clients still reach the master.
func (j *judge) replicas(n int) {
	level, why, remedy := Warn, "but whoever still reaches this one goes on renewing here, and there can be two holders", price(n)
	needs, known := j.f.Config["min-replicas-to-write"]
	switch {
	case j.stops(n):
		level, why = OK, fmt.Sprintf("and without it this one stops granting and renewing (min-replicas-to-write %d, min-replicas-max-lag %d)",
			atoi(needs), atoi(j.f.Config["min-replicas-max-lag"]))
	case n > 1:
		remedy = "Run" + j.stopping(n)
	}
	if !known {
		why = "but whether this one then stops renewing is unknown (CONFIG is not allowed); if not, there can be two holders"
	}
	j.say(level, "role", "it is a master with %s. One that is promoted is held back at first, %s. %s", people.Count(n, "replica", "replicas"), why, remedy)
}
