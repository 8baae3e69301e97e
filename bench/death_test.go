// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/player"
)

// The holder that is killed is this program, and here that is the test binary.
func init() { player.Main(childEnv, runChild) }

func TestS6(t *testing.T) { smoke(t, &s6, variant{n: 2}, baseline, "etcd") }

// A holder that is not granted its key is an error.
func TestHolderFails(t *testing.T) {
	h, err := task{"hold", "unknown", target{}, "k"}.start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the child process ended") {
		t.Errorf("start: %v, %v", h, err)
	}
}

// The holder ends when its parent does, or when that kills it.
func TestHolderIsKilled(t *testing.T) {
	h, err := task{"hold", localPeers[0].name, target{}, "k"}.start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.Kill()
	if last := h.Last(); !strings.Contains(last, "killed") {
		t.Errorf("its end is %v", last)
	}
	h.Kill() // again
}
