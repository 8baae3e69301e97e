// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package releasetest makes a release of this tree, and installs it like a user.
package releasetest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const (
	version = "v0.1.0"
	home    = "https://github.com/hasplock/hasp"
)

// run runs a program, which must succeed, and returns its output.
func run(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, said.String())
	}
	return string(out)
}

// tree is a repository of its own with the files as they are here.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run(t, "../..", []string{"TO=" + dir}, "bash", "-euc", `git ls-files -z --cached --others --exclude-standard |
		while IFS= read -r -d '' f; do [ ! -e "$f" ] || printf '%s\0' "$f"; done | tar --null -T - -cf - | tar -xf - -C "$TO"`) // a deleted file may not be committed yet
	run(t, dir, nil, "git", "init", "-q")
	run(t, dir, nil, "git", "config", "user.name", "test")
	run(t, dir, nil, "git", "config", "user.email", "test@example.com")
	run(t, dir, nil, "git", "add", "-A")
	run(t, dir, nil, "git", "commit", "-q", "-m", "a tree")
	return dir
}

// A release can be made, its tags are those of the modules that users get, the command
// can be installed from a proxy, and from each file of make dist.
func TestReleaseCanBeInstalled(t *testing.T) {
	t.Setenv("CGO_ENABLED", "0") // as make dist builds: what all builds need is compiled once
	dir := tree(t)
	head := run(t, dir, nil, "git", "rev-parse", "HEAD")
	run(t, dir, nil, "make", "release", "VERSION="+version)
	if tags := run(t, dir, nil, "git", "tag"); tags != "" {
		t.Fatalf("without TAG=yes there are tags:\n%s", tags)
	}
	run(t, dir, nil, "make", "release", "VERSION="+version, "TAG=yes")
	tags := strings.Fields(run(t, dir, nil, "git", "tag"))
	if got, want := strings.Join(tags, " "), "adapters/asynq/v0.1.0 adapters/certmagic/v0.1.0 adapters/gocron/v0.1.0 adapters/goose/v0.1.0 adapters/river/v0.1.0 adapters/tusd/v0.1.0 cmd/hasp/v0.1.0 etcddriver/v0.1.0 open/v0.1.0 redisdriver/rueidis/v0.1.0 redisdriver/v0.1.0 sqldriver/pgxlisten/v0.1.0 sqldriver/v0.1.0 telemetry/otel/v0.1.0 telemetry/prometheus/v0.1.0 v0.1.0 zkdriver/v0.1.0"; got != want {
		t.Errorf("the tags are %s, want %s", got, want)
	}
	if run(t, dir, nil, "git", "rev-parse", "HEAD") != head || run(t, dir, nil, "git", "status", "--porcelain") != "" {
		t.Error("the tree has changed")
	}
	if log := run(t, dir, nil, "git", "show", version+":CHANGELOG.md"); strings.Contains(log, "unreleased") {
		t.Errorf("the changelog of the release says:\n%.500s", log)
	}

	// Third-party modules, from this machine's cache.
	run(t, filepath.Join(dir, "cmd", "hasp"), []string{"GOWORK=off"}, "go", "list", "-deps", ".")
	others := "file://" + filepath.Join(strings.TrimSpace(run(t, dir, nil, "go", "env", "GOMODCACHE")), "cache", "download")
	outside := t.TempDir() // outside of go.work

	// The proxy: the tags as go packs them.
	proxy := filepath.Join(outside, "proxy")
	config := filepath.Join(outside, "gitconfig")
	if err := os.WriteFile(config, fmt.Appendf(nil, "[url %q]\n\tinsteadOf = %s\n", "file://"+dir, home), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"GOWORK=off", "GOFLAGS=-modcacherw", "GOSUMDB=off", "GONOPROXY=github.com/hasplock", "GOPROXY=" + others, "GOMODCACHE=" + proxy,
		"GIT_CONFIG_GLOBAL=" + config}
	for _, tag := range tags {
		path := "github.com/hasplock/hasp"
		if in := strings.TrimSuffix(strings.TrimSuffix(tag, version), "/"); in != "" {
			path += "/" + in
		}
		run(t, outside, env, "go", "mod", "download", path+"@"+version)
	}

	bin := filepath.Join(outside, "bin")
	env = []string{"GOWORK=off", "GOFLAGS=-modcacherw", "GOSUMDB=off", "GOPROXY=file://" + filepath.Join(proxy, "cache", "download") + "," + others,
		"GOMODCACHE=" + filepath.Join(outside, "modules"), "GOBIN=" + bin}
	run(t, outside, env, "go", "install", "-trimpath", "github.com/hasplock/hasp/cmd/hasp@"+version)
	if said := run(t, outside, nil, filepath.Join(bin, "hasp"), "version"); !strings.HasPrefix(said, "hasp "+version) {
		t.Errorf("it says %q", said)
	}
	store := []string{"HASP_STORE=sqlite:" + filepath.Join(outside, "locks.db")}
	if said := run(t, outside, store, filepath.Join(bin, "hasp"), "run", "k", "--", "echo", "held"); said != "held\n" {
		t.Errorf("hasp run says %q", said)
	}

	run(t, dir, nil, "git", "checkout", "-q", version)
	runsAlone(t, dir)
}

// runsAlone makes the files of the release in dir, and tries what is packed for Linux, each from an empty folder.
func runsAlone(t *testing.T, dir string) {
	t.Helper()
	run(t, dir, nil, "make", "dist", "VERSION="+version, "TARGETS=linux/"+runtime.GOARCH, "WARM=yes")
	out := filepath.Join(dir, ".bin", "dist")
	run(t, out, nil, "sha256sum", "--check", "--strict", "SHA256SUMS")
	for _, c := range []struct{ kind, tool, unpack, program string }{
		{"tar.gz", "tar", `tar -xzf "$FILE" --strip-components=1`, "hasp"},
		{"deb", "dpkg-deb", `dpkg-deb -x "$FILE" .`, "usr/bin/hasp"},
		{"rpm", "bsdtar", `bsdtar -xf "$FILE"`, "usr/bin/hasp"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			if _, err := exec.LookPath(c.tool); err != nil {
				t.Skip(err)
			}
			root := t.TempDir()
			run(t, root, []string{"FILE=" + filepath.Join(out, "hasp_0.1.0_linux_"+runtime.GOARCH+"."+c.kind)}, "sh", "-ec", c.unpack)
			alone := []string{"env", "-i", "HASP_STORE=sqlite:" + filepath.Join(root, "locks.db"), filepath.Join(root, c.program)}
			if said := run(t, root, nil, append(alone, "version")...); !strings.HasPrefix(said, "hasp "+version+" ") {
				t.Errorf("it says %q", said)
			}
			run(t, root, nil, append(alone, "doctor")...)
		})
	}
	clientsInstall(t, out)
}

// The clients install from their files without a network, and start the hasp that is beside them.
func clientsInstall(t *testing.T, out string) {
	t.Helper()
	cpu, wheel := "x64", "x86_64"
	if runtime.GOARCH == "arm64" {
		cpu, wheel = "arm64", "aarch64"
	}
	file := func(name string) string { return filepath.Join(out, name) }
	for _, c := range []struct{ kind, tool, install, use string }{
		{"python", "python3", `python3 -m venv --without-pip v && python3 -m pip --python v/bin/python install -q --no-index --no-cache-dir "$FILE"`,
			`exec v/bin/python -c 'import hasplock
with hasplock.Client() as locks, locks.lock("k", wait=5) as lease: print(lease.fence > 0)'`},
		{"node", "npm", `npm install --silent --offline --no-audit --no-fund "$FILE" "$BINARY"`,
			`exec node --input-type=module -e 'import { Client } from "hasplock"
const locks = new Client(), lease = await locks.lock("k", { wait: 5000 })
console.log(lease.fence > 0n), await lease.release(), await locks.close()'`},
	} {
		t.Run(c.kind, func(t *testing.T) {
			if _, err := exec.LookPath(c.tool); err != nil {
				t.Skip(err)
			}
			root := t.TempDir()
			env := []string{"FILE=" + file("hasplock-0.1.0-py3-none-manylinux_2_17_"+wheel+".musllinux_1_1_"+wheel+".whl"), "HOME=" + root, "HASP_STORE=sqlite:" + filepath.Join(root, "locks.db")}
			if c.kind == "node" {
				env = append(env, "FILE="+file("hasplock-0.1.0.tgz"), "BINARY="+file("hasplock-linux-"+cpu+"-0.1.0.tgz"))
			}
			run(t, root, env, "sh", "-ec", c.install)
			if said := run(t, root, env, "sh", "-ec", c.use); strings.ToLower(strings.TrimSpace(said)) != "true" {
				t.Errorf("it says %q", said)
			}
		})
	}
}
