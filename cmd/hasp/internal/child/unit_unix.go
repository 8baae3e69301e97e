// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package child

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// unit finds the unit of systemd in a line of /proc/self/cgroup, and whether it is of a user's manager.
var unit = regexp.MustCompile(`(?m)^\d+:(?:name=systemd)?:(.*/user@.*)?.*/([^/\n]+\.service)(?:/|$)`)

// unitStops says whether systemd is stopping the unit of this process, and has signalled all that is in it (KillMode=control-group, the
// default). systemd answers only once it has signalled them all. No answer means no.
func unitStops() bool {
	if os.Getenv("INVOCATION_ID") == "" {
		return false
	}
	cgroup, _ := os.ReadFile("/proc/self/cgroup")
	found := unit.FindSubmatch(cgroup)
	if found == nil {
		return false
	}
	args := []string{"show", "--property=KillMode,ActiveState", string(found[2])}
	if len(found[1]) > 0 {
		args = append(args, "--user")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for range 3 { // it may be in the unit early enough to be signalled, too
		text, _ := exec.CommandContext(ctx, "systemctl", args...).Output() // its status may go to our own look at all children
		if len(text) > 0 {
			return strings.Contains(string(text), "KillMode=control-group\n") && strings.Contains(string(text), "ActiveState=deactivating\n")
		}
	}
	return false
}
