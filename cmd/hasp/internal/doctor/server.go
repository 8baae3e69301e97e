// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"strings"

	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// Facts are what a Redis server reports about itself.
type Facts struct {
	Err error // it does not answer
	clock

	Large *operator.Finding // it answers small requests, and not a large one

	Clocks []replicaClock // of a master's replicas

	Info    map[string]string // INFO
	InfoErr error

	Record string // the node record as it is stored; empty without one, and without the right to read it

	Cluster map[string]string // CLUSTER INFO, of a node of a cluster

	Config map[string]string // the settings that could be read
	File   map[string]string // those of the file that a restart reads; nil when it cannot be read from here

	User    string           // that asks
	Missing []string         // rights without which no lock can be acquired, as ACL SETUSER has them
	Denied  map[string]error // optional commands that are not allowed
	// Closed are the channels on which one of those is not allowed, as ACL SETUSER has them; none where the command is not allowed at all.
	Closed map[string][]string
}

// recordKey is where a server has its node record: see redisdriver/lua/node.lua.
const recordKey = "hasp.node"

// settings are those that matter here. CONFIG GET * would bring the password.
var settings = []string{"maxmemory-policy", "appendonly", "appendfsync", "no-appendfsync-on-rewrite", "save", "min-replicas-to-write", "min-replicas-max-lag"}

// Look collects the facts about a server, and which of the rights that are needed its user lacks. It changes nothing. dial connects to
// its replicas.
func Look(ctx context.Context, rdb *redis.Client, needed Rights, dial Dialer) Facts {
	f := Facts{Denied: map[string]error{}, Closed: map[string][]string{}, Config: map[string]string{}, User: cmp.Or(rdb.Options().Username, "default")}
	if err := rdb.Ping(ctx).Err(); err != nil && !strings.Contains(err.Error(), "run the 'ping'") {
		f.Err = redisdriver.Explained(err)
		return f
	}
	f.clock, _ = clockOf(ctx, rdb) // zero without the right
	if f.Large = large(ctx, rdb); f.Large != nil {
		return f // what else there is to ask is large, too
	}
	text, err := rdb.Info(ctx).Result()
	f.Info, f.InfoErr = parseInfo(text), err
	f.Record, _ = rdb.Get(ctx, recordKey).Result()
	if needed.Cluster || f.Info["cluster_enabled"] == "1" {
		if text, err := rdb.ClusterInfo(ctx).Result(); err == nil {
			f.Cluster = parseInfo(text)
		}
	}
	for _, name := range settings {
		if got, err := rdb.ConfigGet(ctx, name).Result(); err == nil && len(got) == 1 {
			f.Config[name] = got[name]
		}
	}
	if o := rdb.Options(); local(o.Network, o.Addr) {
		f.File = readFile(f.Info["config_file"])
	}
	f.rights(ctx, rdb, needed)
	f.Clocks = f.clocks(ctx, rdb.Options(), dial)
	return f
}

// large sends a large request, which comes back as large.
func large(ctx context.Context, rdb *redis.Client) *operator.Finding {
	conn := rdb.Conn()
	defer conn.Close()
	return operator.AskLarge(ctx, func(ctx context.Context, text string) error { return conn.Do(ctx, "PING", text).Err() })
}

// parseInfo reads the answer to INFO.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}
