// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

// machine is where a run took place.
type machine struct {
	CPU      string `json:"cpu"`
	Cores    int    `json:"cores"`
	OS       string `json:"os"`
	Kernel   string `json:"kernel"`
	Go       string `json:"go"`
	Redis    string `json:"redis"`
	Etcd     string `json:"etcd,omitempty"`
	Revision string `json:"revision,omitempty"` // of hasp
	Load     string `json:"load,omitempty"`     // before the run, over 1, 5 and 15 minutes
}

func thisMachine(ctx context.Context) machine {
	m := machine{
		CPU:    field("/proc/cpuinfo", "model name"),
		Cores:  runtime.NumCPU(),
		OS:     field("/etc/os-release", "PRETTY_NAME"),
		Kernel: firstLine(ctx, "uname", "-sr"),
		Go:     runtime.Version(),
		Redis:  firstLine(ctx, "redis-server", "--version"),
		Etcd:   firstLine(ctx, "etcd", "--version"),
	}
	if m.OS == "" {
		m.OS = runtime.GOOS
	}
	// "Redis server v=7.0.15 sha=…"
	if _, v, ok := strings.Cut(m.Redis, "v="); ok {
		m.Redis, _, _ = strings.Cut(v, " ")
	}
	m.Etcd = strings.TrimPrefix(m.Etcd, "etcd Version: ")
	m.Revision = firstLine(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12")
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(b))[:3], " ")
	}
	return m
}

// field returns the value of the first line of a file that begins with name.
func field(file, name string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.Trim(rest, " \t\n:=\"")
		}
	}
	return ""
}

// firstLine returns the first line of a command's output, or "" if it cannot be run.
func firstLine(ctx context.Context, name string, args ...string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		path = filepath.Join("/usr/sbin", name)
	}
	out, err := exec.CommandContext(ctx, path, args...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

// versions returns "redislock v0.9.4, go-redis v9.23.0": of the modules that
// this program was built with.
func versions(modules []string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var all []string
	for _, path := range modules {
		for _, d := range info.Deps {
			if d.Path == path {
				all = append(all, shortName(path)+" "+d.Version)
			}
		}
	}
	return strings.Join(all, ", ")
}

// shortName is a module's path without its host, owner and major version.
func shortName(path string) string {
	parts := strings.Split(path, "/")
	last := parts[len(parts)-1]
	if len(parts) > 1 && len(last) == 2 && last[0] == 'v' {
		last = parts[len(parts)-2]
	}
	if last == "client" || last == "v3" {
		return "etcd client"
	}
	return last
}
