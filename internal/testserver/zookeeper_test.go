// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import "testing"

func TestZooKeeperAnswersAndKeepsItsPort(t *testing.T) {
	s := ZooKeeper(t)
	for range 2 {
		if mode, err := s.ZooKeeperMode(t.Context()); err != nil || mode != "standalone" {
			t.Errorf("it is %q: %v", mode, err)
		}
		s.Restart()
	}
}

// Exactly one of an ensemble leads, and one does again when it was killed and came back.
func TestZooKeepersHaveALeader(t *testing.T) {
	all := ZooKeepers(t, 3)
	for range 2 {
		all[ZooKeeperLeader(t, all)].Restart()
	}
	ZooKeeperLeader(t, all)
}
