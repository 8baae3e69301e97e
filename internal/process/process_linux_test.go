// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if os.Getenv("PROCESS_TEST_CHILD") != "" { // says who it is, and runs until its input ends
		if os.Getpid() == 1 { // where it may not, the /proc of others stays
			_ = syscall.Mount("proc", "/proc", "proc", 0, "")
		}
		fmt.Println(Self(), os.Getpid())
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	os.Exit(m.Run())
}

// other is a process that names itself.
type other struct {
	*exec.Cmd
	in   io.Closer
	name string
	pid  int // as it sees itself
}

func start(t *testing.T, attr *syscall.SysProcAttr) *other {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.SysProcAttr, cmd.Stderr = append(os.Environ(), "PROCESS_TEST_CHILD=1"), attr, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	o := &other{Cmd: cmd, in: in}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	o.name, _, _ = strings.Cut(line, " ")
	if _, err := fmt.Sscan(line[len(o.name):], &o.pid); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return o
}

func TestEnded(t *testing.T) {
	if Self() == "" || len(Self()) > 40 || Ended(Self(), os.Getpid()) {
		t.Fatalf("this process is %q, ended: %v", Self(), Ended(Self(), os.Getpid()))
	}
	o := start(t, nil)
	if Ended(o.name, o.pid) {
		t.Errorf("%q lives, and is said to have ended", o.name)
	}
	world, begun, _ := strings.Cut(o.name, "-")
	for what, name := range map[string]string{"of another world": "0123456789abcdef-" + begun, "of no world": "-" + begun, "without a start": world, "unnamed": ""} {
		if Ended(name, o.pid) || Ended(name, 1<<30) {
			t.Errorf("a process %s (%q) is said to have ended", what, name)
		}
	}
	for _, pid := range []int{0, -1, -o.pid} {
		if Ended(o.name, pid) {
			t.Errorf("%d is said to be the number of a process that has ended", pid)
		}
	}
	if !Ended(world+"-1"+begun, o.pid) {
		t.Error("the number belongs to a process with another start, and nothing is said")
	}
	o.in.Close()
	if err := unix.Waitid(unix.P_PID, o.pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil { // and leaves it unreaped
		t.Fatal(err)
	}
	if !Ended(o.name, o.pid) {
		t.Error("a process that waits to be reaped is said to run")
	}
	_ = o.Wait()
	if !Ended(o.name, o.pid) {
		t.Error("it was reaped, and is said to run")
	}
}

// A number means another process in each namespace of process ids.
func TestEndedInAnotherNamespace(t *testing.T) {
	apart := func(flags uintptr) *syscall.SysProcAttr {
		return &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | flags,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
	}
	probe := exec.Command("/proc/self/exe")
	probe.Env, probe.SysProcAttr = []string{"PROCESS_TEST_CHILD=1"}, apart(syscall.CLONE_NEWNS)
	if err := probe.Run(); err != nil {
		t.Skipf("SKIPPED WITHOUT NAMESPACES: %v", err)
	}
	if o := start(t, apart(0)); o.pid != 1 || o.name != "" {
		t.Errorf("process %d calls itself %q under a /proc in which it has another number", o.pid, o.name)
	}
	o := start(t, apart(syscall.CLONE_NEWNS)) // with its own /proc, if permitted
	if o.pid != 1 || strings.HasPrefix(o.name, Self()[:17]) {
		t.Errorf("process %d of a namespace of its own calls itself %q, this one is %q", o.pid, o.name, Self())
	}
	o.in.Close()
	_ = o.Wait()
	if Ended(o.name, o.pid) || Ended(o.name, 1<<30) {
		t.Error("something is said of a process of another namespace")
	}
}
