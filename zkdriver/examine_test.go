// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"slices"
	"strings"
	"testing"

	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/testserver"
)

// finds examines servers, and fails unless there is such a finding.
func finds(t *testing.T, level operator.Level, check, part string, addrs ...string) {
	t.Helper()
	c := Connect(addrs, nil)
	defer c.Close()
	found, err := New(c, nil).Examine(t.Context())
	must(t, err)
	if !slices.ContainsFunc(found, func(f operator.Finding) bool {
		return f.Level == level && f.Check == check && strings.Contains(f.Text, part)
	}) {
		t.Errorf("no finding %s %s %q in %+v", level, check, part, found)
	}
}

func TestExamineOne(t *testing.T) {
	t.Parallel()
	one, other := testserver.ZooKeeper(t), testserver.ZooKeeper(t, "4lw.commands.whitelist=srvr,conf", "minSessionTimeout=5000")
	finds(t, operator.LevelOK, "mode", "standalone", one.Addr())
	finds(t, operator.LevelOK, "ensemble", "one server", one.Addr())
	finds(t, operator.LevelOK, "session", "from 5000 to ", other.Addr())
	finds(t, operator.LevelFail, "ensemble", "2 of the 2 servers are standalone", one.Addr(), other.Addr())
}

func TestExamineEnsemble(t *testing.T) {
	t.Parallel()
	all := testserver.ZooKeepers(t, 3)
	var addrs []string
	for _, s := range all {
		addrs = append(addrs, s.Addr())
	}
	leads := testserver.ZooKeeperLeader(t, all)
	finds(t, operator.LevelOK, "mode", "leader", addrs...)
	finds(t, operator.LevelOK, "mode", "follower", addrs...)
	finds(t, operator.LevelWarn, "ensemble", "none of the servers that answer is the leader", addrs[(leads+1)%3])
	all[(leads+1)%3].Kill()
	finds(t, operator.LevelWarn, "mode", "does not answer", addrs...)
}
