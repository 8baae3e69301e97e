// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"regexp"
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

// thisMachine leaves out what cannot be determined.
func thisMachine(ctx context.Context) machine {
	find := func(pattern string, text []byte) string {
		m := regexp.MustCompile(`(?m)` + pattern).FindSubmatch(text)
		if m == nil {
			return ""
		}
		return string(m[1])
	}
	read := func(file, pattern string) string {
		text, _ := os.ReadFile(file)
		return find(pattern, text)
	}
	run := func(pattern string, line ...string) string {
		text, _ := exec.CommandContext(ctx, line[0], line[1:]...).Output()
		return find(pattern, text)
	}
	return machine{
		CPU:      read("/proc/cpuinfo", `^model name\s*: (.*)`),
		Cores:    runtime.NumCPU(),
		OS:       cmp.Or(read("/etc/os-release", `^PRETTY_NAME="?([^"\n]*)`), runtime.GOOS),
		Kernel:   run(`(.*)`, "uname", "-sr"),
		Go:       runtime.Version(),
		Redis:    run(`v=(\S+)`, "redis-server", "--version"),
		Etcd:     run(`^etcd Version: (.*)`, "etcd", "--version"),
		Revision: run(`(.*)`, "git", "describe", "--always", "--dirty", "--abbrev=12"),
		Load:     read("/proc/loadavg", `^(\S+ \S+ \S+)`),
	}
}

// modules are those of each family of peers, as tables call them.
var modules = map[string][]string{
	"hasp":         {"hasp", "go-redis"},
	"floor":        {"go-redis"},
	"counting":     {"go-redis"},
	"redislock":    {"redislock", "go-redis"},
	"redsync":      {"redsync", "go-redis"},
	"redsync,":     {"redsync", "go-redis"},
	"rueidislock":  {"rueidis"},
	"etcd":         {"etcd client"},
	"go-zookeeper": {"zk"},
}

// modulePath has the parts of a module's path: without host, owner and major version, or etcd's client.
var modulePath = regexp.MustCompile(`([^/]+?)(?:/v\d+)?$`)

// versions returns "redislock v0.9.4, go-redis v9.23.0": of the modules that
// this program was built with.
func versions(family string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var all []string
	for _, name := range modules[family] {
		for _, d := range info.Deps {
			if strings.ReplaceAll(modulePath.FindStringSubmatch(d.Path)[1], "client", "etcd client") == name {
				all = append(all, name+" "+d.Version)
			}
		}
	}
	return strings.Join(all, ", ")
}
