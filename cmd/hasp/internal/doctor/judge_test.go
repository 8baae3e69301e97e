// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
)

// well are the facts of a server about which there is nothing to say.
func well() Facts {
	return Facts{
		clock: clock{Trip: 200 * time.Microsecond},
		Info: map[string]string{"redis_version": "7.0.15", "role": "master", "maxmemory": "0", "maxmemory_policy": "noeviction",
			"aof_enabled": "1", "connected_slaves": "0", "cluster_enabled": "0", "config_file": ""},
		Config: map[string]string{"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "always", "save": ""},
	}
}

// skewed has one replica, whose clock is so far ahead of the master's.
func skewed(ahead time.Duration) func(*Facts) {
	return func(f *Facts) {
		f.Clocks = []replicaClock{{clock: clock{time.Millisecond, f.Ahead + ahead}, addr: "h:2"}}
	}
}

func TestJudge(t *testing.T) {
	const month = 30 * 24 * time.Hour
	votes := Vote{Record: true, Voting: true, MaxTTL: time.Minute}
	info := func(pairs ...string) func(*Facts) {
		return func(f *Facts) {
			for i := 0; i < len(pairs); i += 2 {
				f.Info[pairs[i]] = pairs[i+1]
			}
		}
	}
	replicas := func(needs, lag string) func(*Facts) {
		return func(f *Facts) {
			f.Info["connected_slaves"] = "2"
			f.Config["min-replicas-to-write"], f.Config["min-replicas-max-lag"] = needs, lag
		}
	}
	file := func(pairs ...string) func(*Facts) {
		return func(f *Facts) {
			f.Info["config_file"], f.File = "/f", maps.Clone(defaults)
			for i := 0; i < len(pairs); i += 2 {
				f.File[pairs[i]] = pairs[i+1]
			}
		}
	}
	record := func(f *Facts) { f.Record = "ok 0123 30000" }
	for name, c := range map[string]struct {
		change func(f *Facts)
		vote   Vote
		record bool
		enough bool
		waits  int // for so many replicas
		java   bool
		check  string
		level  operator.Level
		text   string
	}{
		"silent":           {change: func(f *Facts) { f.Err = errors.New("\x1b[2Jno") }, check: "answers", level: Fail, text: `\x1b[2Jno`},
		"one is silent":    {change: func(f *Facts) { f.Err = errors.New("no") }, enough: true, check: "answers", level: Warn, text: "no"},
		"votes":            {vote: votes, record: true, check: "votes", level: OK, text: "at most 1m0s"},
		"votes otherwise":  {vote: Vote{Record: true, Voting: true, MaxTTL: time.Second}, record: true, check: "votes", level: Warn, text: "1s, while max-ttl is 1m0s"},
		"held back":        {vote: Vote{Record: true, Left: 22100 * time.Millisecond}, record: true, check: "votes", level: Fail, text: "held back, 23s left"},
		"held back, cron":  {vote: Vote{Record: true, Left: time.Second}, record: true, check: "votes", level: Fail, text: "--admit. The wait is counted from the first request of each machine and user, so that a nightly job with -n fails once: from cron use -w 90 -E 0"},
		"one is held back": {vote: Vote{Record: true, Left: time.Second}, record: true, enough: true, check: "votes", level: Warn, text: "held back, 1s left"},
		"one refuses": {vote: Vote{Record: true, Voting: true, MaxTTL: time.Minute, Refuses: errors.New("it refuses")}, record: true, enough: true, check: "votes",
			level: Warn, text: "it votes, but it refuses"},
		"record, no max-ttl": {change: record, check: "votes", level: Warn, text: "Add max-ttl=30s to this URL, as every client of the same locks must; " +
			"or, if the record is not needed: end all that use this server, and run: by hand DEL hasp.node"},
		"record, replicas": {change: record, waits: 1, check: "votes", level: Warn, text: "Add max-ttl=30s to this URL, instead of replicas=1, as every"},
		"record waits":     {change: func(f *Facts) { f.Record = "wait 0123 \x1b" }, check: "votes", level: Warn, text: "Add max-ttl, as those clients have it"},
		"vote unknown":     {vote: Vote{Record: true, Err: errors.New("no")}, record: true, check: "votes", level: Fail, text: "whether it votes: no"},
		"old":              {change: info("redis_version", "6.2.1"), check: "version", level: Warn, text: "6.2.1"},
		"hostile":          {change: info("redis_version", "9\x1b[2J"), check: "version", level: Warn, text: `9\x1b[2J`},
		"valkey":           {change: info("valkey_version", "8.1.0"), check: "version", level: OK, text: "Valkey 8.1.0"},
		"replica":          {change: info("role", "slave", "master_host", "h", "master_port", "1"), check: "role", level: Fail, text: "replica of h:1"},
		"replicas":         {change: info("connected_slaves", "2"), check: "role", level: Warn, text: "2 replicas. One that is promoted may not"},
		"replicas, remedy": {change: replicas("0", "10"), check: "role", level: Warn,
			text: "in place of -n, and --hold-at-least where other hosts have the job, too), and run: by hand CONFIG SET min-replicas-to-write 2 and: by hand CONFIG SET min-replicas-max-lag 5, " +
				"and put it on the server's command line: it has no configuration file, and what CONFIG SET set is lost at a restart, and likewise on each replica. " +
				"While one of them is away, as after a failover, nothing is granted then"},
		"replicas, half of it": {change: replicas("2", "5"), check: "role", level: Warn, text: "where other hosts have the job, too). While one of them is away"},
		"replica, remedy": {change: info("connected_slaves", "1"), check: "role", level: Warn,
			text: "there can be two holders. With one replica rather take neither max-ttl nor replicas=, and a guard (docs/guards.md): with either, nothing is granted"},
		"replica confirms": {change: info("connected_slaves", "1", "slave0", "ip=h,port=2,state=online,offset=0,lag=0"), waits: 1,
			check: "role", level: OK, text: "before it is granted. With one replica rather take neither"},
		"replica, record":  {change: info("connected_slaves", "1"), vote: votes, record: true, check: "role", level: Warn, text: "there can be two holders. With one replica rather take neither"},
		"replicas, Java":   {change: info("connected_slaves", "2"), java: true, check: "role", level: Warn, text: "Redisson's layout has nothing against that"},
		"memory, Java":     {change: func(f *Facts) { f.Config["appendonly"] = "no" }, java: true, check: "persistence", level: Warn, text: "next renewal. Run: by hand CONFIG"},
		"no PUBLISH, Java": {change: func(f *Facts) { f.Denied = map[string]error{"PUBLISH": errors.New("NOPERM")} }, java: true, check: "rights", level: Warn, text: "those in Java sleep until"},
		"replicas, record": {change: info("connected_slaves", "2"), vote: votes, record: true, check: "role", level: Warn,
			text: "unknown (CONFIG is not allowed); if not, there can be two holders. Run: by hand CONFIG SET min-replicas-to-write 2 and: by hand"},
		"replicas, not all": {change: replicas("1", "5"), vote: votes, record: true, check: "role", level: Warn, text: "goes on renewing here"},
		"replicas, late":    {change: replicas("2", "8"), vote: votes, record: true, check: "role", level: Warn, text: "goes on renewing here"},
		"replicas, not set": {change: replicas("2", "0"), vote: votes, record: true, check: "role", level: Warn, text: "goes on renewing here"},
		"replicas, needed": {change: replicas("2", "7"), vote: votes, record: true, check: "role", level: OK,
			text: "stops granting and renewing (min-replicas-to-write 2, min-replicas-max-lag 7). While one of them is away"},
		"replica, fresh": {change: info("connected_slaves", "1", "master_repl_offset", "1000", "slave0", "ip=h,port=2,state=online,offset=1000,lag=0"),
			check: "replica", level: OK, text: "1 replica is up to date, heard of less than 1s ago"},
		"replicas, near": {change: info("connected_slaves", "2", "master_repl_offset", "3000", "slave0", "ip=h,port=2,state=online,offset=952,lag=1",
			"slave1", "ip=h,port=3,state=online,offset=3000,lag=0"), check: "replica", level: OK, text: "2 replicas are at most 2.0 KiB behind, heard of at most 2s ago"},
		"replica, far": {change: info("connected_slaves", "1", "master_repl_offset", "9000000", "slave0", "ip=h,port=2,state=online,offset=1,lag=0"),
			check: "replica", level: Warn, text: "h:2 lacks the latest 8.6 MiB"},
		"replica, silent": {change: info("connected_slaves", "1", "master_repl_offset", "1", "slave0", "ip=h,port=2,state=online,offset=1,lag=9"),
			check: "replica", level: Warn, text: "last heard of 9s ago"},
		"replica, no copy": {change: info("connected_slaves", "1", "slave0", "ip=\x1b[2J,port=2,state=wait_bgsave,offset=0,lag=0"),
			check: "replica", level: Warn, text: `\x1b[2J:2 has no copy yet (wait_bgsave)`},
		"replica confirms nothing": {change: info("connected_slaves", "1", "slave0", "ip=h,port=2,state=wait_bgsave,offset=0,lag=0"), waits: 1,
			check: "role", level: Fail, text: "a master with 0 replicas, and replicas=1"},
		"memory left":       {change: info("used_memory", "1048576", "maxmemory", "4194304"), check: "memory", level: OK, text: "3.0 MiB of maxmemory 4.0 MiB are left"},
		"memory full":       {change: info("used_memory", "4190000", "maxmemory", "4194304"), check: "memory", level: Warn, text: "4.2 KiB of maxmemory 4.0 MiB are left"},
		"buffers count not": {change: info("used_memory", "4190000", "mem_not_counted_for_evict", "2097152", "maxmemory", "4194304"), check: "memory", level: OK, text: "2.0 MiB of"},
		"no limit":          {change: info("used_memory", "100", "used_memory_rss", "1000", "total_system_memory", "4194304"), check: "memory", level: OK, text: "100 bytes; its machine has 4.0 MiB"},
		"machine full":      {change: info("used_memory", "100", "used_memory_rss", "4190000", "total_system_memory", "4194304"), check: "memory", level: Warn, text: "the machine may end it"},
		"log not written":   {change: info("aof_last_write_status", "err"), check: "persistence", level: Warn, text: "no lock is granted. Is its disk full"},
		"log grows":         {change: info("aof_last_bgrewrite_status", "err"), check: "persistence", level: Warn, text: "could not be rewritten"},
		"no snapshot":       {change: info("rdb_last_bgsave_status", "err"), check: "persistence", level: Warn, text: "stop-writes-on-bgsave-error"},
		"old snapshot": {change: func(f *Facts) {
			f.Config["appendonly"], f.Config["save"] = "no", "3600 1"
			info("rdb_last_save_time", "1000", "server_time_usec", "1090000000")(f)
		}, check: "persistence", level: Warn, text: "(it reads its snapshot, which is 1m30s old or older)"},
		"cluster":          {change: info("cluster_enabled", "1"), check: "cluster", level: Fail, text: "Redis Cluster"},
		"evicts":           {change: info("maxmemory_policy", "volatile-lru"), check: "maxmemory-policy", level: Warn, text: "Run: by hand CONFIG SET maxmemory-policy noeviction"},
		"evicts nothing":   {change: info("maxmemory_policy", "volatile-lru"), check: "maxmemory-policy", level: Warn, text: "nothing is evicted yet"},
		"has evicted":      {change: info("maxmemory_policy", "volatile-lru", "evicted_keys", "7"), check: "maxmemory-policy", level: Warn, text: "evicted 7 keys"},
		"bounded":          {change: info("maxmemory", "1000"), check: "maxmemory-policy", level: OK, text: "when maxmemory is reached, no lock"},
		"no INFO":          {change: func(f *Facts) { clear(f.Info); f.InfoErr = errors.New("NOPERM") }, check: "server", level: Warn, text: "INFO is not allowed"},
		"no INFO, policy":  {change: func(f *Facts) { clear(f.Info) }, check: "maxmemory-policy", level: OK, text: "maxmemory is unknown"},
		"no INFO, CONFIG":  {change: func(f *Facts) { clear(f.Info); clear(f.Config) }, check: "maxmemory-policy", level: Warn, text: "unknown (INFO and CONFIG are not allowed)"},
		"no CONFIG":        {change: func(f *Facts) { clear(f.Config) }, check: "persistence", level: Warn, text: "unknown (CONFIG is not allowed)"},
		"always":           {check: "persistence", level: OK, text: "as now configured, a restart loses nothing. It has no configuration file"},
		"always, no INFO":  {change: func(f *Facts) { clear(f.Info) }, check: "persistence", level: OK, text: "as now configured, a restart loses nothing (what it reads then is unknown"},
		"always, far":      {change: info("config_file", "/a\x1b"), check: "persistence", level: OK, text: `as now configured, a restart loses nothing. It reads /a\x1b then`},
		"always, and kept": {change: file("appendonly", "yes", "appendfsync", "always"), check: "persistence", level: OK, text: "and /f says the same: a restart loses nothing"},
		"always, not kept": {change: file("appendfsync", "always"), check: "persistence", level: Warn, text: "as now configured, but /f, which a restart reads, says appendonly no. Run: by hand CONFIG REWRITE"},
		"always, but":      {change: func(f *Facts) { f.Config["no-appendfsync-on-rewrite"] = "yes" }, check: "persistence", level: Warn, text: "while the log is rewritten"},
		"always, soon":     {change: info("aof_rewrite_in_progress", "1"), check: "persistence", level: Warn, text: "Look again then"},
		"evicts later":     {change: file("maxmemory-policy", "allkeys-lru"), check: "maxmemory-policy", level: Warn, text: "now, but /f, which a restart reads, says maxmemory-policy allkeys-lru. Run: by hand CONFIG REWRITE"},
		"evicts, rewrite":  {change: func(f *Facts) { info("maxmemory_policy", "volatile-lru", "config_file", "/f")(f) }, check: "maxmemory-policy", level: Warn, text: "noeviction, and: by hand CONFIG REWRITE, as a restart reads /f"},
		"rights":           {change: func(f *Facts) { f.Missing, f.User = []string{"+set", "~hasp.*"}, "bob" }, check: "rights", level: Fail, text: "run: ACL SETUSER bob +set ~hasp.*, and keep it"},
		"rights, one":      {change: func(f *Facts) { f.Missing = []string{"+set"} }, enough: true, check: "rights", level: Warn, text: "+set"},
		"no INFO, record":  {change: func(f *Facts) { f.Denied = map[string]error{"INFO": errors.New("NOPERM")} }, record: true, vote: votes, check: "rights", level: Fail, text: " +info,"},
		"no WAIT":          {change: func(f *Facts) { f.Denied = map[string]error{"WAIT": errors.New("NOPERM")} }, waits: 1, check: "rights", level: Fail, text: " +wait,"},
		"no SPUBLISH": {change: func(f *Facts) {
			f.Denied = map[string]error{"SPUBLISH": errors.New("NOPERM this user has no permissions to run the 'spublish' command")}
		}, check: "rights", level: Warn, text: "(it lacks +spublish)"},
		"no channel": {change: func(f *Facts) {
			f.Denied, f.Closed = map[string]error{"PUBLISH": errors.New("NOPERM to access a channel")}, map[string][]string{"PUBLISH": {"&hasp.*"}}
		}, check: "rights", level: Warn, text: "(it lacks &hasp.*)"},
		"cannot enter": {change: func(f *Facts) { f.Err = errors.New("NOPERM no permissions to run the 'select' command") }, check: "rights", level: Fail, text: "'select'"},
		"everysec":     {change: func(f *Facts) { f.Config["appendfsync"] = "everysec" }, check: "persistence", level: Warn, text: "locks of the last second"},
		"no":           {change: func(f *Facts) { f.Config["appendfsync"] = "no" }, check: "persistence", level: Warn, text: "recent locks"},
		"memory only":  {change: func(f *Facts) { f.Config["appendonly"] = "no" }, check: "persistence", level: Warn, text: "a restart loses locks"},
		"memory, remedy": {change: func(f *Facts) { f.Config["appendonly"] = "no" }, check: "persistence", level: Warn,
			text: "lost at a restart. Or, in place of that, set max-ttl=30s in the store's URL, for every client (its first use and each restart pause 40 s, counted from the first request of each machine and user, " +
				"so that a nightly job with -n fails once: from cron use -w 60 -E 0 in place of -n"},
		"memory, record": {change: func(f *Facts) { f.Config["appendonly"] = "no" }, vote: votes, record: true, check: "persistence", level: OK, text: "held back for 1m10s afterwards"},
		"same time":      {change: func(f *Facts) { f.Ahead = 40 * time.Microsecond }, check: "clock", level: OK, text: "give or take 100µs"},
		"ahead":          {change: func(f *Facts) { f.Ahead = 2 * time.Second }, vote: votes, record: true, check: "clock", level: Warn, text: "2s ahead of this"},
		"behind":         {change: func(f *Facts) { f.Ahead = -2 * time.Second }, check: "clock", level: Warn, text: "2s behind this"},
		"far behind":     {change: func(f *Facts) { f.Ahead = -month }, vote: votes, record: true, check: "clock", level: Fail, text: "720h0m0s behind"},
		"far, no record": {change: func(f *Facts) { f.Ahead = month }, check: "clock", level: Warn, text: "720h0m0s ahead"},
		"far, but slow":  {change: func(f *Facts) { f.Ahead = 4 * time.Second; f.Trip = 3 * time.Second }, vote: votes, record: true, check: "clock", level: Warn, text: "4s ahead"},
		"skew, little":   {change: skewed(-200 * time.Microsecond), check: "skew", level: OK, text: "clock of its replica h:2 is its own, give or take 600µs"},
		"skew, by hand":  {change: skewed(-499 * time.Millisecond), check: "skew", level: OK, text: "give or take 499ms: fences may fall only after a promotion by hand that is quicker"},
		"skew, behind":   {change: skewed(-600 * time.Millisecond), check: "skew", level: Warn, text: "h:2 is 600ms behind its own: fences may fall"},
		"skew, record":   {change: skewed(-time.Minute), record: true, vote: votes, check: "skew", level: OK, text: "give or take 1m0s"},
		"skew, more":     {change: skewed(-2 * time.Minute), record: true, vote: votes, check: "skew", level: Warn, text: "h:2 is 2m0s behind its own: fences may fall"},
		"skew, ahead":    {change: skewed(303 * time.Millisecond), check: "skew", level: Warn, text: "h:2 is 303ms ahead of its own: there can be two holders"},
		"skew, nearly":   {change: skewed(301 * time.Millisecond), check: "skew", level: OK, text: "give or take 301ms"},
		"skew, confirms": {change: skewed(20 * time.Second), waits: 1, check: "skew", level: Warn, text: "h:2 is 20s ahead of its own: there can be two holders after a failover"},
		"skew, Java":     {change: skewed(20 * time.Second), java: true, check: "skew", level: Warn, text: "there can be two holders"},
		"skew, held":     {change: skewed(20 * time.Second), record: true, vote: votes, check: "skew", level: Warn, text: "leases end early after a failover"},
		"skew, far": {change: func(f *Facts) { skewed(0)(f); f.Clocks[0].Trip = 1400 * time.Millisecond }, check: "skew", level: Warn,
			text: "give or take 700ms, and from here no better can be told: if it is more than 302ms ahead, there can be two holders after a failover; if it is more than 500ms behind, fences may fall. Ask"},
		"skew unknown": {change: func(f *Facts) { f.Clocks = []replicaClock{{addr: "h:2\x1b", err: errors.New("no\x1b")}} }, check: "skew", level: Warn, text: `h:2\x1b is not known (no\x1b)`},
		"no SUBSCRIBE": {change: func(f *Facts) { f.Denied = map[string]error{"SUBSCRIBE": errors.New("NOPERM")} }, check: "rights", level: Warn, text: "SUBSCRIBE: waiters poll"},
	} {
		f, a := well(), Asked{Enough: c.enough, Replicas: c.waits, Redisson: c.java, Command: func(s string) string { return "by hand " + s }, Says: Said}
		f.Info = maps.Clone(f.Info)
		if c.record {
			a.MaxTTL = time.Minute
		}
		if c.change != nil {
			c.change(&f)
		}
		found := false
		for _, got := range Judge("h:1", f, c.vote, a) {
			switch {
			case got.Check == c.check:
				found = found || got.Level == c.level && strings.Contains(got.Text, c.text) && got.Node == "h:1"
			case got.Level != OK && c.change == nil:
				t.Errorf("%s: besides, %+v", name, got)
			}
			if strings.Contains(got.Text, "\x1b") {
				t.Errorf("%s: not safe to print: %q", name, got.Text)
			}
		}
		if !found {
			t.Errorf("%s: no finding %s %s about %q in %+v", name, c.level, c.check, c.text, Judge("h:1", f, c.vote, a))
		}
	}
}

// Which findings have fences repeat: in hasp's own layout that a replica's clock is behind, as they go on above the server's clock.
func TestFencesRepeat(t *testing.T) {
	for _, java := range []bool{false, true} {
		f := well()
		f.Info["connected_slaves"], f.Info["maxmemory_policy"], f.Info["aof_last_write_status"] = "1", "allkeys-lru", "err"
		f.Config["appendfsync"] = "everysec"
		skewed(-time.Second)(&f)
		var repeat []string
		for _, got := range Judge("h:1", f, Vote{Voting: true}, Asked{Redisson: java, Command: func(s string) string { return s }}) {
			if got.FencesRepeat {
				repeat = append(repeat, got.Check)
			}
		}
		want := []string{"skew"}
		if java {
			want = []string{"role", "maxmemory-policy", "persistence", "persistence"}
		}
		if !slices.Equal(repeat, want) {
			t.Errorf("Redisson %v: %q, want %q", java, repeat, want)
		}
	}
}

// The state of a cluster is judged although INFO is not allowed.
func TestClusterIsJudged(t *testing.T) {
	for text, c := range map[string]struct {
		level operator.Level
		state map[string]string
	}{
		"is unknown":            {Warn, nil},
		"serves all":            {OK, map[string]string{"cluster_state": "ok", "cluster_slots_ok": "16384", "cluster_size": "3", "cluster_slots_pfail": "0"}},
		"master of 5461 of":     {Warn, map[string]string{"cluster_state": "ok", "cluster_slots_ok": "16384", "cluster_slots_pfail": "5461"}},
		"10923 of 16384 slots)": {Fail, map[string]string{"cluster_state": "fail", "cluster_slots_ok": "10923"}},
	} {
		f := well()
		f.Info, f.InfoErr, f.Cluster = nil, errors.New("NOPERM"), c.state
		found := Judge("h:1", f, Vote{Voting: true}, Asked{Cluster: true, Command: func(s string) string { return s }})
		if !slices.ContainsFunc(found, func(f Finding) bool {
			return f.Check == "cluster" && f.Level == c.level && strings.Contains(f.Text, text)
		}) {
			t.Errorf("no finding %q in %+v", text, found)
		}
	}
}

// What is promised follows from the traits alone.
func TestPromise(t *testing.T) {
	for _, c := range []struct {
		traits driver.Traits
		kind   Kind
		want   string
	}{
		{driver.Traits{Engine: "sqlite", Survives: driver.StoreRestart | driver.ClockStep}, Kind{Local: true}, "does not lead to two holders: a kill of any process; a reboot; a step of the wall clock"},
		{driver.Traits{Engine: "zookeeper"}, Kind{Nodes: 3, Session: 45 * time.Second}, "until its session expires, after up to 45s"},
		{driver.Traits{Engine: "redis"}, Kind{Nodes: 1}, "can lead to two holders: a restart of a server that loses leases; a server that is emptied or replaced; a step"},
		{driver.Traits{Engine: "redis", Survives: driver.StoreRestart | driver.StoreLoss}, Kind{Nodes: 1, Dangers: "eviction, DEL of lock keys"},
			"does not lead to two holders: a restart of a server that loses leases; a server that is emptied or replaced\n" +
				"can lead to two holders: a step of the clock that ends leases; a replica that takes over while the old server goes on; eviction, DEL of lock keys"},
		{driver.Traits{Engine: "redlock", Survives: driver.StoreRestart | driver.StoreLoss}, Kind{Nodes: 7}, "at most 3 of 7 nodes"},
		{driver.Traits{Engine: "redisson"}, Kind{Nodes: 1, Notes: []string{"a note"}}, "\na note"},
		{driver.Traits{Engine: "redlock", Fencing: true}, Kind{Nodes: 3, Clock: true}, "even then, unless a clock is set back, too"},
		{driver.Traits{Engine: "redis", Fencing: true}, Kind{Nodes: 1, Clock: true}, "set back, too, or a replica takes over whose clock is behind"},
		{driver.Traits{Engine: "redis"}, Kind{Nodes: 1, Replicas: 2}, "a replica that takes over, and is none of the 2 that confirm each lock, restarted"},
	} {
		if got := strings.Join(Promise(c.traits, c.kind), "\n"); !strings.Contains(got, c.want) {
			t.Errorf("%+v: %s; want %q", c.traits, got, c.want)
		}
	}
}
