// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
)

// The holder that is killed is this program, and here that is the test binary.
func init() {
	if len(os.Args) > 2 && os.Args[1] == "child" {
		if err := runChild(context.Background(), os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func TestS6(t *testing.T) { smoke(t, &s6, variant{n: 2}, baseline, "etcd") }

// A holder that is not granted its key is an error.
func TestHolderFails(t *testing.T) {
	h, err := startHolder(t.Context(), &peer{name: "nobody"}, target{}, "k")
	if err == nil || !strings.Contains(err.Error(), "the child process said") {
		t.Errorf("startHolder: %v, %v", h, err)
	}
}

// The holder ends when its parent does, or when that kills it.
func TestHolderIsKilled(t *testing.T) {
	h, err := startHolder(t.Context(), localPeers[0], target{}, "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.kill(); err != nil {
		t.Error(err)
	}
	if state := h.cmd.ProcessState; state == nil || state.Success() {
		t.Errorf("its end is %v", state)
	}
	if err := h.kill(); err != nil {
		t.Errorf("again: %v", err)
	}
}
