// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// systemd boots in namespaces of its own, with units of hasp.
const booted = `
mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs tmpfs /run && mkdir -p /run/lock /run/systemd/system || exit
umount -R /sys/fs/cgroup
mount -t tmpfs tmpfs /sys/fs/cgroup && mkdir /sys/fs/cgroup/unified /sys/fs/cgroup/systemd || exit
mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified && mount -t cgroup -o none,name=systemd systemd /sys/fs/cgroup/systemd || exit
printf '[Unit]\nDefaultDependencies=no\n' >/run/systemd/system/only.target
mkdir /sys/fs/cgroup/unified/elsewhere /sys/fs/cgroup/systemd/elsewhere
elsewhere='for f in unified systemd; do echo $$$$ >/sys/fs/cgroup/$$f/elsewhere/cgroup.procs; done; exec'
for mode in control-group mixed elsewhere; do
	command=$TERMS
	[ $mode != elsewhere ] || command="sh -c '$elsewhere $TERMS'"
	cat >/run/systemd/system/$mode.service <<UNIT
[Unit]
DefaultDependencies=no
[Service]
KillMode=$([ $mode = mixed ] && echo mixed || echo control-group)
StandardOutput=append:$DIR/$mode
StandardError=append:$DIR/$mode.err
Environment=HASP_STORE=$STORE
ExecStart=$HASP run $mode -- $command
UNIT
done
cd / && exec env container=other /lib/systemd/systemd --system --unit=only.target --log-target=null
`

// A command gets one TERM when systemd stops its unit, be it sent to all of its processes or to hasp alone; also one that has
// left the unit, as systemd-run does, which systemd signals in no case.
func TestStopOfAUnit(t *testing.T) {
	t.Parallel()
	s, exe, path := onFile(t)
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil {
		t.Skipf("systemd is not installed: %v", err)
	}
	terms := filepath.Join(s.dir, "terms")
	must(t, os.Symlink(exe, terms))
	boot := exec.Command("unshare", "--pid", "--fork", "--mount", "--cgroup", "--kill-child", "sh", "-c", booted)
	boot.Env = append(os.Environ(), "DIR="+s.dir, "HASP="+exe, "STORE=sqlite:"+path, "TERMS="+terms)
	out := &strings.Builder{}
	boot.Stdout, boot.Stderr = out, out
	must(t, boot.Start())
	over := make(chan struct{})
	go func() { defer close(over); _ = boot.Wait() }()
	t.Cleanup(func() { _ = boot.Process.Kill(); <-over })
	var pid string
	systemctl := func(words ...string) (string, error) {
		text, err := exec.Command("nsenter", append([]string{"--target=" + pid, "--mount", "--pid", "--cgroup", "systemctl"}, words...)...).CombinedOutput()
		return string(text), err
	}
	if err := eventually(func() bool {
		children, _ := exec.Command("ps", "-o", "pid=", "--ppid", strconv.Itoa(boot.Process.Pid)).Output()
		pid = strings.TrimSpace(string(children))
		text, _ := systemctl("is-system-running")
		return pid != "" && strings.TrimSpace(text) == "running" || closed(over)
	}); err != nil || closed(over) {
		t.Fatalf("systemd does not run: %v\n%s", err, out)
	}
	for _, mode := range []string{"control-group", "mixed", "elsewhere"} {
		file := filepath.Join(s.dir, mode)
		text := func() string { b, _ := os.ReadFile(file); return string(b) }
		for range 8 { // the second came in 4 of 10
			_ = os.Remove(file)
			said, err := systemctl("start", mode)
			if err == nil {
				err = eventually(func() bool { return text() == "ready\n" })
			}
			if err == nil {
				said, err = systemctl("stop", mode)
			}
			if errors, _ := os.ReadFile(file + ".err"); err != nil || text() != "ready\nTERM\nover\n" {
				t.Fatalf("%s: the command says %q, hasp %q, systemctl %q (%v)", mode, text(), errors, said, err)
			}
		}
	}
}
