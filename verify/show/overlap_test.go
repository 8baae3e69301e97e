// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
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
