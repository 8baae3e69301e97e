// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/player"
	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

// tried is a duel whose holder has no time to lose the key on a busy machine before the fault.
func tried(f fault, deaf bool) *duel {
	return &duel{trial: trial{find("hasp, Redis"), f}, ttl: 10 * time.Second, watch: 100 * time.Millisecond, deaf: deaf}
}

// Rule: a holder that was cut off or stopped does not believe that it holds the key once another does. A holder that never
// notices its loss does, and is caught.
func TestOverlap(t *testing.T) {
	for _, f := range []fault{partition, pause} {
		for _, deaf := range []bool{false, true} {
			name := string(f)
			if deaf {
				name += ", deaf"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				out := tried(f, deaf).measure(t)
				if !out.granted || (out.overlap > 0) != deaf || out.whole != deaf {
					t.Errorf("%+v", out)
				}
			})
		}
	}
}

// Rule: when the server's clock is stepped, the key is granted at once, and a holder that never notices is caught.
func TestOverlapAfterAStep(t *testing.T) {
	t.Parallel()
	out := tried(clockStep, true).measure(t)
	if !out.granted || out.overlap <= 0 || !out.whole {
		t.Errorf("%+v", out)
	}
}

// Rule: the holder of each lock that is measured says that it holds the key while nothing is wrong.
func TestEachLockIsHeld(t *testing.T) {
	for _, s := range subjects {
		if s.faults != nil {
			continue // the same lock as another's, under fewer faults
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			d := &duel{trial: trial{subject: s}, ttl: 30 * time.Second}
			p := d.client(t, "the client", s.start(t, nil).Addrs(), false)
			p.asks()
			p.says(player.Granted)
			if _, whole := p.believed(0); !whole {
				t.Error("it holds the key no longer")
			}
		})
	}
}

func lasted(all ...time.Duration) (outs []outcome) {
	for _, d := range all {
		outs = append(outs, outcome{granted: true, overlap: d})
	}
	return outs
}

func TestCell(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		runs []outcome
		want string
	}{
		{nil, "-"},
		{lasted(0, 0, 0), "**0**"},
		{[]outcome{{}, {}}, "**0**, refused"},
		{lasted(3*ms, 1200*ms, 40*ms), "40, at most 1200"},
		{lasted(50*time.Microsecond, 50*time.Microsecond), "< 0.1"},
		{lasted(0, 0, 2500*time.Microsecond), "0, at most 2.5 (in 1 of 3)"},
		{[]outcome{{granted: true, overlap: watch + ms, whole: true}}, "all 10 s"},
	} {
		if got := cell(c.runs); got != c.want {
			t.Errorf("%+v: %q, want %q", c.runs, got, c.want)
		}
	}
}

// Rule: an overlap of hasp under a partition or a pause misses its bar, however short; under a stepped clock, or of another
// lock, it does not.
func TestMissed(t *testing.T) {
	ours, other := find("hasp, etcd"), find("etcd `concurrency`")
	both := []*subject{ours, other}
	a := results{trial{ours, clockStep}: lasted(time.Second), trial{other, pause}: lasted(time.Second), trial{ours, pause}: {{granted: true}}}
	if missed := a.missed(both); len(missed) > 0 {
		t.Errorf("%q", missed)
	}
	a[trial{ours, pause}] = append(a[trial{ours, pause}], lasted(1)...)
	if missed := a.missed(both); len(missed) != 1 || missed[0] != "hasp, etcd, overlap under pause, ms: < 0.1 (in 1 of 2), and not 0" {
		t.Errorf("%q", missed)
	}
	if table := a.table(both); strings.Count(table, "\n") != 4 || !strings.Contains(table, "| hasp, etcd | `Lease.Err` | - | < 0.1 (in 1 of 2) | 1000 |") {
		t.Errorf("%s", table)
	}
}
