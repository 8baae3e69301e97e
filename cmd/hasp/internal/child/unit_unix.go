// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"
)

// unit finds the unit of systemd in /proc/self/cgroup, and whether a user's manager has it.
var unit = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^\d+:(?:name=systemd)?:(.*/user@.*)?.*/([^/\n]+\.service)(?:/|$)`)
})

// unitQuestion is for pass; another one in a test.
var unitQuestion = unitOf

// unitOf returns nil unless this process and another one are in one unit of systemd. The question that it returns asks systemd
// whether it is stopping the unit and has signalled all that is in it (KillMode=control-group, the default). systemd answers only
// once it has signalled them all. No answer within a second means no.
func unitOf(pid int) (question func() bool) {
	if os.Getenv("INVOCATION_ID") == "" {
		return nil
	}
	cgroup, _ := os.ReadFile("/proc/self/cgroup")
	theirs, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	args := unitArgs(cgroup)
	if args == nil || !bytes.Equal(cgroup, theirs) {
		return nil
	}
	return func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second) // hasp waits for it, whatever ends meanwhile
		defer cancel()
		for ctx.Err() == nil { // systemctl is in the unit, too, and systemd signals what is new there until nothing is
			text, err := exec.CommandContext(ctx, "systemctl", args...).Output() // its status may go to hasp's own look at all children
			if len(text) > 0 || errors.Is(err, exec.ErrNotFound) {
				return strings.Contains(string(text), "KillMode=control-group\n") && strings.Contains(string(text), "ActiveState=deactivating\n")
			}
			time.Sleep(10 * time.Millisecond)
		}
		return false
	}
}

// unitArgs are the arguments of systemctl, nil where a process is in no unit.
func unitArgs(cgroup []byte) []string {
	found := unit().FindSubmatch(cgroup)
	switch {
	case found == nil:
		return nil
	case len(found[1]) > 0:
		return []string{"--user", "show", "--property=KillMode,ActiveState", "--", string(found[2])}
	}
	return []string{"show", "--property=KillMode,ActiveState", "--", string(found[2])}
}
