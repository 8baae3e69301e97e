// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
)

// waits is a command that prints what it sees of its lock, and never ends by
// itself.
const waits = `echo "$HASP_FENCE slot=$HASP_SLOT abandoned=$HASP_ABANDONED" >$0; while :; do read x <>never; done`

// A reader that was killed with -9 keeps a writer waiting for its TTL and no
// longer, and leaves nothing to repair.
func TestKilledReader(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	p := s.hasp("run", "--shared", "--ttl", ttl, "k", "--", "sh", "-c", waits, "reader")
	reader := fenceOf(t, s.read("reader"))
	w := s.hasp("run", "k", "--", "sh", "-c", waits, "writer")
	p.signal(syscall.SIGKILL)
	writer := s.read("writer")
	if reader >= fenceOf(t, writer) {
		t.Errorf("the writer's fence is %s, that of the reader before %d", writer, reader)
	}
	if !strings.HasSuffix(writer, "abandoned=") {
		t.Errorf("a reader changes nothing, yet the writer is told to repair: %s", writer)
	}
	w.signal(syscall.SIGTERM)
	w.ends(143)
}

// The slot of a holder that was killed with -9 comes back.
func TestKilledSlot(t *testing.T) {
	t.Parallel()
	slots := func(ttl, name string) []string {
		return []string{"run", "--slots", "2", "--ttl", ttl, "k", "--", "sh", "-c", waits, name}
	}
	s := onSQLite(t)
	p := s.hasp(slots(ttl, "first")...)
	s.read("first")
	s.hasp(slots("1m", "second")...)
	if got := s.read("second"); !strings.Contains(got, "slot=1 ") {
		t.Errorf("the second one sees %s", got)
	}
	s.hasp(slots("1m", "third")...)
	p.signal(syscall.SIGKILL)
	if got := s.read("third"); !strings.HasSuffix(got, " slot=0 abandoned=1") {
		t.Errorf("who has the slot of one that was killed sees %s", got)
	}
}

// When the leader is killed with -9 the next candidate leads, with a larger
// fence, and is told.
func TestKilledLeader(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	p := s.hasp("elect", "--ttl", ttl, "k", "--", "sh", "-c", waits, "one")
	one := fenceOf(t, s.read("one"))
	next := s.hasp("elect", "k", "--", "sh", "-c", waits, "two")
	p.signal(syscall.SIGKILL)
	two := s.read("two")
	if one >= fenceOf(t, two) {
		t.Errorf("the fence of the second leader is %s, of the first %d", two, one)
	}
	if !strings.HasSuffix(two, "abandoned=1") {
		t.Errorf("the second leader sees %s", two)
	}
	next.signal(syscall.SIGTERM)
	next.ends(143)
}

// A candidate outlives its store: the command ends with the lead, and is begun
// again once the store is back.
func TestElectionOutlivesTheStore(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newSandbox(t, "redis://"+server.Addr())
	p := s.hasp("elect", "--ttl", ttl, "k", "--", "sh", "-c", `echo $HASP_FENCE >>leads; while :; do read x <>never; done`)
	s.read("leads")
	server.Kill()
	p.says(`^hasp: LOST "k": not renewed in time`)
	p.says(`^hasp: waiting for the store redis://.*`)
	server.Restart()
	if err := eventually(func() bool { return strings.Count(s.read("leads"), "\n") == 1 }); err != nil {
		t.Fatalf("it leads no more: %v; it said:\n%s", err, p.err.String())
	}
	p.signal(syscall.SIGINT)
	p.ends(130)
}

// A signal while keys are released at a store that does not answer has an effect:
// hasp ends at once, and the keys expire.
func TestSignalsWhileKeysAreGivenBack(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, testserver.Redis(t).Addr())
	s := newSandbox(t, "redis://"+proxy.Addr())
	s.hasp("run", "b", "--", "sh", "-c", "echo >ready; exec sleep 1000")
	s.read("ready")
	p := s.hasp("run", "a", "b", "--", "true")
	p.says(`waiting for "b"`)
	proxy.Swallow(true, true)
	gives := make(chan bool, 1)
	proxy.Hook(func(c faultproxy.Chunk) bool {
		if release := regexp.MustCompile(`\r\n(release|releaseAny|withdraw)\r\n`); c.Dir == faultproxy.Up && release.Match(c.Data) {
			select {
			case gives <- true:
			default:
			}
		}
		return false
	})
	p.signal(syscall.SIGINT)
	<-gives
	p.signal(syscall.SIGTERM)
	p.ends(130)
	matches(t, p.err.String(), `^hasp: gave up waiting for "a", "b": signal 2 \(interrupt\)\n\z`)
}

func fenceOf(t testing.TB, line string) int {
	t.Helper()
	fence, _, _ := strings.Cut(line, " ")
	return number(t, fence)
}
