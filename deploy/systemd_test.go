// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systemd reads each unit without a complaint of it, notices a wrong setting, and finds page and agent confined.
func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	dir := t.TempDir()
	// systemd wants the programs to be there.
	there := strings.NewReplacer("/usr/bin/hasp", "/bin/true", "/usr/local/bin/report", "/bin/true")
	write := func(name, old, text string) {
		b, err := os.ReadFile("systemd/" + name)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(there.Replace(strings.Replace(string(b), old, text, 1))), 0o600))
	}
	names := []string{"hasp-agent.service", "hasp-agent.socket", "hasp-serve.service", "nightly.service", "nightly.timer"}
	for _, name := range names { // one may name another
		write(name, "", "")
	}
	verify := func(name, old, text string) (about string) {
		write(name, old, text)
		verified := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", filepath.Join(dir, name))
		verified.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
		out, _ := verified.CombinedOutput()
		for line := range strings.Lines(string(out)) { // other lines are about units of this machine
			if strings.Contains(line, name) {
				about += line
			}
		}
		return about
	}
	for _, name := range names {
		if verify(name, "[Unit]", "[Unit]\nWrong=yes") == "" {
			t.Errorf("%s: a wrong setting is not noticed", name)
		}
		if said := verify(name, "", ""); said != "" {
			t.Errorf("systemd-analyze verify:\n%s", said)
		}
	}
	for _, name := range []string{"hasp-agent", "hasp-serve"} {
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--threshold=20", dir+"/"+name+".service").CombinedOutput() // of 100
		if err != nil {
			t.Errorf("systemd-analyze security: %v\n%s", err, out)
		}
	}
}
