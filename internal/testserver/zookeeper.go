// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// zookeeperJars is where Debian's packages have ZooKeeper; its manifest names all that it needs.
const zookeeperJars = "/usr/share/java"

// ZooKeeperTick is the unit of a ZooKeeper's times: sessions last for two of them at
// least, and an ensemble notices within some of them that a server is gone.
const ZooKeeperTick = 500 * time.Millisecond

// ZooKeeper starts a ZooKeeper of one server for the test, on a free loopback port.
// Sessions may last for up to ten hours, and empty containers go within a second. It skips
// or fails the test where ZooKeeper is missing, see Require. lines are added to its configuration.
func ZooKeeper(t testing.TB, lines ...string) *Server {
	t.Helper()
	return ZooKeeperIn(t, nil, lines...)
}

// ZooKeeperIn is ZooKeeper with more in the environment, each "NAME=value", over every
// Restart.
func ZooKeeperIn(t testing.TB, env []string, lines ...string) *Server {
	t.Helper()
	sp := zookeeper(t, func(*Server) []string { return lines })
	sp.env = env
	return launch(t, sp, freePort)
}

// ZooKeepers starts an ensemble of n ZooKeepers, and returns once each has a leader.
func ZooKeepers(t testing.TB, n int) []*Server {
	t.Helper()
	Variant(t, "an ensemble of ZooKeepers")
	for range attempts {
		if all := ensemble(t, n); all != nil {
			return all
		}
	}
	t.Fatalf("testserver: the ports of an ensemble were taken %d times", attempts)
	return nil
}

// ensemble is nil when a port was taken in between.
func ensemble(t testing.TB, n int) []*Server {
	t.Helper()
	ports := freePorts(t, 3*n)
	lines := []string{"initLimit=10", "syncLimit=4"}
	for i := range n {
		lines = append(lines, fmt.Sprintf("server.%d=127.0.0.1:%d:%d;127.0.0.1:%d", i+1, ports[3*i], ports[3*i+1], ports[3*i+2]))
	}
	var all []*Server
	for i := range n {
		s := newServer(t, zookeeper(t, func(*Server) []string { return lines }))
		s.port = ports[3*i+2]
		must(t, os.WriteFile(filepath.Join(s.dir, "myid"), []byte(strconv.Itoa(i+1)), 0o600))
		all = append(all, s)
	}
	if !startAll(t, all) {
		return nil
	}
	return all
}

// freePorts returns n different ports.
func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for len(ports) < n {
		port, err := freePort()
		must(t, err)
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// ZooKeeperLeader returns which of an ensemble leads, once each has a leader.
func ZooKeeperLeader(t testing.TB, all []*Server) int {
	t.Helper()
	for limit := time.Now().Add(startLimit); ; {
		leads, modes := -1, make([]string, len(all))
		for i, s := range all {
			modes[i], _ = s.ZooKeeperMode(t.Context())
			if modes[i] == "leader" {
				leads = i
			}
		}
		if leads >= 0 && !slices.Contains(modes, "") {
			return leads
		}
		if time.Now().After(limit) {
			t.Fatalf("testserver: after %v they are %q", startLimit, modes)
		}
		time.Sleep(20 * time.Millisecond) // no event says so
	}
}

// RequireZooKeeper is Require, and looks for the jars, too.
func RequireZooKeeper(t testing.TB) {
	t.Helper()
	Require(t, "zookeeper")
	RequireFile(t, "zookeeper", filepath.Join(zookeeperJars, "zookeeper.jar"))
}

// HasZooKeeper reports whether one can be started.
func HasZooKeeper() bool {
	_, java := look(binaries["zookeeper"])
	_, jar := os.Stat(filepath.Join(zookeeperJars, "zookeeper.jar"))
	return java == nil && jar == nil
}

// zookeeper is what starts one, with more lines in its configuration.
func zookeeper(t testing.TB, more func(*Server) []string) spec {
	t.Helper()
	path := require(t, "zookeeper", binaries)
	RequireZooKeeper(t)
	return spec{
		path: path,
		args: func(s *Server) []string {
			file := filepath.Join(s.dir, "zoo.cfg")
			must(s.t, os.WriteFile(file, []byte(zookeeperConfig(s, more(s))), 0o600))
			return []string{
				"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
				"-Dzookeeper.admin.enableServer=false", "-Dznode.container.checkIntervalMs=500", "-Dznode.container.maxPerMinute=1000000",
				"-Djava.awt.headless=true",
				"-cp", zookeeperJars + "/zookeeper.jar:" + zookeeperJars + "/slf4j-simple.jar", "org.apache.zookeeper.server.quorum.QuorumPeerMain", file,
			}
		},
		ready: leaderOf,
		taken: "Address already in use",
	}
}

func zookeeperConfig(s *Server, more []string) string {
	lines := []string{
		"dataDir=" + s.dir, fmt.Sprintf("tickTime=%d", ZooKeeperTick.Milliseconds()), "maxSessionTimeout=36000000",
		"maxClientCnxns=0", "4lw.commands.whitelist=srvr,mntr,dump,cons", "admin.enableServer=false",
	}
	lines = append(lines, more...)
	for _, line := range more {
		if strings.HasPrefix(line, "server.") {
			return strings.Join(lines, "\n") + "\n" // an ensemble's lines have the ports
		}
	}
	lines = append(lines, "clientPortAddress=127.0.0.1", fmt.Sprintf("clientPort=%d", s.port))
	return strings.Join(lines, "\n") + "\n"
}

// leaderOf is nil when the server has a leader, or is alone.
func leaderOf(ctx context.Context, s *Server) error {
	mode, err := s.ZooKeeperMode(ctx)
	if err == nil && mode == "" {
		err = fmt.Errorf("it has no leader")
	}
	return err
}

// ZooKeeperMode is what a ZooKeeper says it is now: "leader", "follower", "standalone", or "" when it
// knows no leader.
func (s *Server) ZooKeeperMode(ctx context.Context) (string, error) {
	answer, err := s.FourLetters(ctx, "srvr")
	if err != nil {
		return "", err
	}
	for line := range strings.SplitSeq(answer, "\n") {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode), nil
		}
	}
	return "", nil
}

// FourLetters asks a ZooKeeper by one of its words for administrators.
func (s *Server) FourLetters(ctx context.Context, word string) (answer string, err error) {
	err = talk(ctx, "tcp", s.Addr(), []byte(word), 2*time.Second, func(r net.Conn) error {
		b, err := io.ReadAll(r)
		answer = string(b)
		return err
	})
	return answer, err
}
