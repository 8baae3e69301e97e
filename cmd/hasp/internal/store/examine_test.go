// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/testserver"
)

// looks opens a store, and returns what is found besides what its engine knows.
func looks(t *testing.T, url string) []operator.Finding {
	t.Helper()
	u, err := Parse(url)
	must(t, err)
	s, err := u.Open()
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s.Examine(t.Context())
}

func has(t *testing.T, found []operator.Finding, level operator.Level, check, part string) {
	t.Helper()
	if !slices.ContainsFunc(found, func(f operator.Finding) bool {
		return f.Level == level && f.Check == check && strings.Contains(f.Text, part)
	}) {
		t.Errorf("no finding %s %s %q in %+v", level, check, part, found)
	}
}

func TestPoolerIsNoticed(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	if found := looks(t, "postgres://postgres@"+server.Addr()+"/postgres?sslmode=disable"); len(found) > 0 {
		t.Errorf("without a pooler: %+v", found)
	}
	pooler := testserver.PgBouncer(t, server, "pool_mode=transaction")
	has(t, looks(t, "postgres://postgres@"+pooler.Addr()+"/postgres?sslmode=disable"), operator.LevelOK, "pooler", "a pooler of connections in between")
}

func TestSentinelsAreAsked(t *testing.T) {
	t.Parallel()
	g := testserver.NewRedisSentinel(t, testserver.RedisGroup{Timeout: time.Minute})
	at := g.Addrs()
	found := looks(t, "redis+sentinel://"+testserver.MasterName+"@"+strings.Join(at, ","))
	for _, addr := range at {
		has(t, found, operator.LevelOK, "sentinel", "the Sentinel "+addr+" knows the master as "+g.Master.Addr())
	}
	if len(found) != len(at) {
		t.Errorf("besides: %+v", found)
	}
	has(t, looks(t, "redis+sentinel://other@"+at[0]), operator.LevelWarn, "sentinel", "knows no master by the name other")
	g.Sentinels[1].Kill()
	has(t, looks(t, "redis+sentinel://"+testserver.MasterName+"@"+strings.Join(at, ",")), operator.LevelWarn, "sentinel", "the Sentinel "+at[1]+" cannot be reached: ")
	lone := testserver.NewRedisSentinel(t, testserver.RedisGroup{Timeout: time.Minute})
	has(t, looks(t, "redis+sentinel://"+testserver.MasterName+"@"+at[0]+","+lone.Addrs()[0]), operator.LevelWarn, "sentinel", "different masters")
}
