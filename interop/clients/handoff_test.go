// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clients

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
)

// handed is the median of the handoffs of one way on one kind of deployment.
type handed struct{ deployment, lock, way, took string }

// ways are the kinds of lock whose handoffs are measured.
var ways = []struct {
	lock string
	use
}{
	{"lock", both("lock")},
	{"fair lock", both("fair")},
	{"fenced lock", both("fenced")},
	{"write lock", both("write")},
	{"write lock, a reader waits", use{"write", "read"}},
	{"read lock, a writer waits", use{"read", "write"}},
}

// missTTL is for how long a waiter sleeps that has missed a message.
const missTTL = 5 * time.Second

// misses are those who slept.
func misses(took []time.Duration) (n int) {
	for _, d := range took {
		if d > missTTL/4 {
			n++
		}
	}
	return n
}

// Rule: an unlock of either side is a message to a waiter of either side. How long it takes is measured, and not judged.
func TestHandoffOfRedisson(t *testing.T) {
	s := testserver.Redis(t)
	handoffs(t, "one server", []*testserver.Server{s}, s.Addr())
}

func TestHandoffOfRedissonInCluster(t *testing.T) {
	if !*long {
		t.Skip("a cluster is part of the long form: -long")
	}
	c := testserver.NewRedisCluster(t, 3, testserver.RedisGroup{Timeout: 10 * time.Second})
	handoffs(t, "cluster of three masters", c.Masters, "cluster:"+strings.Join(c.Addrs(), ","))
}

func handoffs(t *testing.T, deployment string, masters []*testserver.Server, address string) {
	var of [2][2]*peer // hasp's two, and Java's two: one holds, and one waits
	for i := range 2 {
		of[1][i] = start(t, java, missTTL, address)
		of[0][i] = start(t, haspPeer, missTTL, address)
	}
	names := [2]string{"hasp", "Redisson"}
	m := watch(t, masters...)
	for _, w := range ways {
		for from := range of {
			for to := range of {
				a, b := side{of[from][0], w.use, ""}, side{of[to][1], w.use, ""}
				key := fmt.Sprintf("handoff.%s.%s.%d.%d", w.hold, w.wait, from, to)
				var took []time.Duration
				for range pick(50, 10) {
					took = append(took, handoff(t, m, a, b, key, false))
				}
				text := ms(median(took))
				if missed := misses(took); missed > 0 {
					text += fmt.Sprintf("; %d of %d not told", missed, len(took))
				}
				way := names[from] + " to " + names[to]
				t.Logf("%s, %s, %s: %s, of %v", deployment, w.lock, way, text, took)
				results.handed = append(results.handed, handed{deployment, w.lock, way, text})
			}
		}
	}
}
