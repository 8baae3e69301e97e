// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"slices"
	"strings"
	"testing"

	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/testserver"
)

// finds examines, and fails unless there is such a finding.
func finds(t *testing.T, d *Driver, level operator.Level, check, part string) {
	t.Helper()
	found, err := d.Examine(t.Context())
	must(t, err)
	if !slices.ContainsFunc(found, func(f operator.Finding) bool {
		return f.Level == level && f.Check == check && strings.Contains(f.Text, part)
	}) {
		t.Errorf("no finding %s %s %q in %+v", level, check, part, found)
	}
}

// examined is a driver as most programs have it.
func examined(t *testing.T, addrs ...string) *Driver {
	t.Helper()
	d := New(connect(t, addrs...), nil)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestExamineOne(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t)
	d := examined(t, s.Addr())
	finds(t, d, operator.LevelOK, "member", "and the leader")
	finds(t, d, operator.LevelOK, "cluster", "one member")
	finds(t, d, operator.LevelOK, "election", "leases of 2s")
	if leases, err := d.client.Leases(t.Context()); err != nil || len(leases.Leases) > 0 {
		t.Errorf("it left %v, %v", leases, err)
	}
	slow := testserver.Etcd(t, "--heartbeat-interval=300", "--election-timeout=3000", "--initial-cluster-token=other")
	finds(t, examined(t, slow.Addr()), operator.LevelWarn, "election", "5s at least")
	finds(t, open(t, s.Addr(), slow.Addr()), operator.LevelFail, "cluster", "2 clusters")
}

func TestExamineCluster(t *testing.T) {
	t.Parallel()
	c := testserver.NewEtcdCluster(t)
	d := open(t, c.Addrs()...)
	finds(t, d, operator.LevelOK, "cluster", "its 3 members answer, and 1 of them may fail")
	finds(t, open(t, c.Addrs()[0]), operator.LevelWarn, "cluster", "Name all of them")
	c.Members[2].Kill()
	finds(t, d, operator.LevelWarn, "member", "does not answer")
	finds(t, d, operator.LevelWarn, "cluster", "2 of its 3 members answer, and it takes 2")
}

func TestExamineFull(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd36(t, "--quota-backend-bytes=1048576")
	d := open(t, s.Addr())
	for range 100 {
		if _, err := d.client.Put(t.Context(), "filler", strings.Repeat("x", 100_000)); err != nil {
			break
		}
	}
	finds(t, d, operator.LevelFail, "space", "NOSPACE")
	finds(t, d, operator.LevelWarn, "space", "MiB")
}

func TestVersionsThatRevokeRenewedLeases(t *testing.T) {
	for version, want := range map[string]bool{
		"3.4.23": true, "3.4.30": true, "3.4.31": false, "3.5.12": true, "3.5.13": false, "3.6.8": false, "3.3.27": true, "4.0.0": false, "": false, "x": false,
	} {
		if got := revokesRenewed(version); got != want {
			t.Errorf("%q: %v, want %v", version, got, want)
		}
	}
}
