// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package testserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Variables are added to the environment of the test.
func TestEnvironmentOfAServer(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	t.Setenv("HASP_TESTSERVER_OURS", "ours")
	p, err := startProcess("/bin/sh", []string{"-c", "echo $HASP_TESTSERVER_OURS $HASP_TESTSERVER_ADDED"},
		[]string{"HASP_TESTSERVER_ADDED=added"}, dir, log)
	if err != nil {
		t.Fatal(err)
	}
	<-p.done
	got, err := os.ReadFile(log)
	if err != nil || strings.TrimSpace(string(got)) != "ours added" {
		t.Errorf("the server sees %q, %v", got, err)
	}
}
