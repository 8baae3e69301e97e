// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/hasplock/hasp/internal/testserver"
)

// wires is a real network: the servers in one namespace, each client in one of its own, and a third that has nothing but the bridge
// between them, which drops packets. It does what a proxy cannot: no end gets an error, connects hang, connections are half open,
// and TCP retransmits what was lost, so that requests arrive after the partition, when their sender is gone.
//
// Namespaces have no name, and each ends with the process that it belongs to.
type wires struct {
	t       *testserver.Program
	bridge  *namespace
	servers *namespace
	clients [clients]*namespace
	lost    map[link]bool // what the bridge drops
}

// link is one direction between a client and a node, by addresses.
type link struct{ from, to string }

// location is a node's place in the network.
type location struct {
	enter []string // the command that runs another one there
	addr  string
}

// namespace is a network namespace, and the process that keeps it.
type namespace struct{ cmd *exec.Cmd }

// The addresses mean something within the namespaces only.
func nodeAddr(i int) string   { return fmt.Sprintf("10.77.0.%d", 1+i) }
func clientAddr(i int) string { return fmt.Sprintf("10.77.0.%d", 101+i) }

// tool finds a program, also in folders that are not in an ordinary user's PATH.
func tool(name, pkg string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	if err != nil {
		return "", fmt.Errorf("%s is not installed (apt-get install %s)", name, pkg)
	}
	return path, nil
}

// CanCutWires returns nil if schedules can have real links, or says what is missing.
func CanCutWires() error {
	var errs []error
	for _, t := range [][2]string{{"ip", "iproute2"}, {"nstat", "iproute2"}, {"nft", "nftables"}, {"nsenter", "util-linux"}} {
		_, err := tool(t[0], t[1])
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := testserver.Perform(context.Background(), func(t *testserver.Program) *wires { return newWires(t) })
	return err
}

// newWires makes the network, without faults.
func newWires(t *testserver.Program) *wires {
	w := &wires{t: t, lost: map[link]bool{}}
	w.bridge, w.servers = newNamespace(t), newNamespace(t)
	var bridge, servers strings.Builder
	fmt.Fprintln(&bridge, "link add name bridge type bridge")
	fmt.Fprintln(&bridge, "link set bridge up")
	plug := func(name string, n *namespace) {
		fmt.Fprintf(&bridge, "link add name %s type veth peer name eth netns %d\n", name, n.pid())
		fmt.Fprintf(&bridge, "link set %s master bridge\nlink set %s up\n", name, name)
	}
	plug("servers", w.servers)
	for c := range w.clients {
		w.clients[c] = newNamespace(t)
		plug(fmt.Sprintf("client%d", c), w.clients[c])
	}
	w.run(w.bridge, bridge.String(), "ip", "-batch", "-")
	const up = "link set lo up\nlink set eth up\n"
	for i := range nodes {
		fmt.Fprintf(&servers, "addr add %s/24 dev eth\n", nodeAddr(i))
	}
	w.run(w.servers, servers.String()+up, "ip", "-batch", "-")
	for c, n := range w.clients {
		w.run(n, fmt.Sprintf("addr add %s/24 dev eth\n", clientAddr(c))+up, "ip", "-batch", "-")
	}
	w.run(w.bridge, `table bridge wires {
		set lost { type ipv4_addr . ipv4_addr; }
		chain forward {
			type filter hook forward priority 0;
			ip saddr . ip daddr @lost counter drop
		}
	}`, "nft", "-f", "-")
	return w
}

// newNamespace makes an empty namespace. It ends when its process and all that were
// started in it have ended; that process reads a pipe of this one, and ends with it.
func newNamespace(t *testserver.Program) *namespace {
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	_, err := cmd.StdinPipe()
	t.Must(err)
	if err := cmd.Start(); err != nil {
		t.Fatalf("a network namespace is not permitted: %w", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &namespace{cmd}
}

func (n *namespace) pid() int { return n.cmd.Process.Pid }

// enter returns the command that executes another one in the namespace.
func (n *namespace) enter() []string {
	return []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", n.pid()), "--"}
}

// run runs a program in a namespace.
func (w *wires) run(n *namespace, input, name string, args ...string) string {
	path, err := tool(name, name)
	w.t.Must(err)
	line := append(append(n.enter(), path), args...)
	ctx, cancel := context.WithTimeout(w.t.Context(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s in a network namespace: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return string(out)
}

// node returns the location of a node; w may be nil.
func (w *wires) node(i int) *location {
	if w == nil {
		return nil
	}
	return &location{w.servers.enter(), nodeAddr(i)}
}

// client returns the command that runs another one in a client's namespace; w may be nil.
func (w *wires) client(slot int) []string {
	if w == nil {
		return nil
	}
	return w.clients[slot].enter()
}

// play cuts or restores links, all at one moment.
func (w *wires) play(a Action) {
	for _, n := range a.Nodes {
		up, down := link{clientAddr(a.Client), nodeAddr(n)}, link{nodeAddr(n), clientAddr(a.Client)}
		switch {
		case a.Part == End:
			delete(w.lost, up)
			delete(w.lost, down)
		case a.Kind == Partition:
			w.lost[up], w.lost[down] = true, true
		case a.Kind == LoseRequests:
			w.lost[up] = true
		case a.Kind == LoseReplies:
			w.lost[down] = true
		default:
			w.t.Fatalf("real links cannot have the fault %q", a.Kind)
		}
	}
	rules := "flush set bridge wires lost\n"
	for l := range w.lost {
		rules += fmt.Sprintf("add element bridge wires lost { %s . %s }\n", l.from, l.to)
	}
	w.run(w.bridge, rules, "nft", "-f", "-")
}

var (
	packets = regexp.MustCompile(`counter packets (\d+) `)
	resends = regexp.MustCompile(`TcpRetransSegs +(\d+) `)
)

// traffic returns how many packets were dropped, and how many segments TCP has retransmitted.
func (w *wires) traffic() (dropped, resent int) {
	dropped = w.counts(w.bridge, packets, "nft", "list", "chain", "bridge", "wires", "forward")
	for _, n := range append(w.clients[:], w.servers) {
		resent += w.counts(n, resends, "nstat", "-asz", "TcpRetransSegs")
	}
	return dropped, resent
}

// counts reads a counter that a program prints in a namespace.
func (w *wires) counts(n *namespace, counter *regexp.Regexp, name string, args ...string) int {
	found := counter.FindStringSubmatch(w.run(n, "", name, args...))
	if found == nil {
		w.t.Fatalf("%s does not count", name)
	}
	count, err := strconv.Atoi(found[1])
	w.t.Must(err)
	return count
}
