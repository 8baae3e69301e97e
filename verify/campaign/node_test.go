// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
)

// Rule: a server that refuses writes carries out all of a script or nothing, and takes writes again afterwards.
func TestRefusals(t *testing.T) {
	testserver.Require(t, "redis")
	t.Parallel()
	_, err := testserver.Perform(t.Context(), func(p *testserver.Program) any {
		n := newNode(p, KeepNothing, false, nil)
		rdb := direct(n.server)
		defer rdb.Close()
		get := func(key string) string {
			return rdb.Get(p.Context(), key).Val()
		}
		for _, how := range refusals {
			p.Must(n.do(n.server, []any{"mset", "a", "before", "b", "before"}))
			n.refuse(how)
			for script, whole := range map[string]bool{
				"redis.call('SET', 'b', 'after') redis.call('DEL', 'a')": false,
				"redis.call('DEL', 'a') redis.call('SET', 'b', 'after')": how == "OOM", // its first write takes no memory
			} {
				err := n.do(n.server, []any{"eval", script, 0})
				if (err == nil) != whole || err != nil && !strings.Contains(err.Error(), how) {
					t.Errorf("%s: %s: %v", how, script, err)
				}
				a, b := "before", "before"
				if whole {
					a, b = "", "after"
				}
				if get("a") != a || get("b") != b {
					t.Errorf("%s: %s leaves a=%q, b=%q", how, script, get("a"), get("b"))
				}
				n.accept(how)
				p.Must(n.do(n.server, []any{"mset", "a", "before", "b", "before"}))
				n.refuse(how)
			}
			n.accept(how)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// needWires skips the test where real links are not available.
func needWires(t *testing.T) {
	t.Helper()
	testserver.Require(t, "redis")
	if err := CanCutWires(); err != nil {
		t.Skipf("SKIPPED WITHOUT NETWORK NAMESPACES: %v", err)
	}
}

// cut is a fault of a client's links, from one moment to another.
type cut struct {
	from, to ms
	kind     Kind
	client   int
	nodes    []int
}

// everybody is a cut for each client.
func everybody(from, to ms, k Kind, on ...int) (all []cut) {
	for c := range clients {
		all = append(all, cut{from, to, k, c, on})
	}
	return all
}

// wired makes a schedule of cuts. With sides they are apart.
func wired(seed uint64, sides, strict bool, cuts ...[]cut) *Schedule {
	s := &Schedule{Seed: seed, Store: Redlock, MaxTTL: time.Second, Long: 2, Longest: 4 * time.Second, Strict: strict, Wired: true}
	g := &generator{s: s}
	for _, c := range slices.Concat(cuts...) {
		g.act(c.from, c.kind, Begin, c.nodes, c.client, 0)
		g.act(c.to, c.kind, End, c.nodes, c.client, 0)
	}
	byTime(s.Actions)
	if sides {
		*s = apart(*s)
	}
	return s
}

// Two sides that have one node in common.
var (
	everywhere = []int{0, 1, 2, 3, 4}
	left       = []int{0, 1, 2}
	right      = []int{2, 3, 4}
)

var realPartitions = map[string]*Schedule{
	"a client from a majority, for longer than a lease and shorter": wired(1, false, false, []cut{
		{400, 2100, Partition, 0, left},
		{700, 2400, Partition, 1, everywhere},
		{2200, 2800, Partition, 0, left},
		{2300, 4000, Partition, 2, right},
		{2700, 4400, Partition, 3, left},
	}),
	"requests alone": wired(2, true, true, []cut{
		{300, 600, LoseRequests, 0, left},
		{500, 2100, LoseRequests, 1, []int{2}},
		{900, 2500, LoseRequests, 0, []int{1, 2}},
		{2200, 2500, LoseRequests, 2, []int{2}},
		{2600, 4200, LoseRequests, 3, right},
		{2900, 4400, LoseRequests, 2, []int{0, 2}},
	}),
	"replies alone": wired(3, true, false, []cut{
		{300, 600, LoseReplies, 0, left},
		{500, 2100, LoseReplies, 1, []int{2}},
		{900, 2500, LoseReplies, 0, []int{1, 2}},
		{2200, 2500, LoseReplies, 2, []int{2}},
		{2600, 4200, LoseReplies, 3, right},
		{2900, 4400, LoseReplies, 2, []int{0, 2}},
	}),
	"a node from everybody": wired(4, true, true,
		everybody(500, 2000, Partition, 2),
		everybody(2600, 2900, Partition, 2),
		[]cut{{3000, 4300, Partition, 1, []int{2}}}),
}

// Rule: a real partition, with all that it does to TCP, breaks nothing: requests that arrive after it, when their sender is gone,
// neither grant another's lease nor take one away.
func TestRealPartitions(t *testing.T) {
	needWires(t)
	t.Parallel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, s := range realPartitions {
		wg.Go(func() {
			o, err := perform(t.Context(), "", s)
			mu.Lock()
			defer mu.Unlock()
			t.Run(name, func(t *testing.T) {
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%+v in %v, back after %v, stalled for %v; %d packets were dropped, and %d segments sent again",
					o.Counts, o.Took, o.Back, o.Stalled, o.Dropped, o.Resent)
				if o.Dropped == 0 || o.Resent == 0 {
					t.Error("nothing was cut")
				}
				if o.Violated() {
					var text strings.Builder
					o.Explain(&text)
					t.Error(text.String())
				}
			})
		})
	}
	wg.Wait()
}

// Rule: a request that was lost in a partition is carried out after it, though its
// sender is gone; one whose reply is lost, at once.
func TestWires(t *testing.T) {
	needWires(t)
	t.Parallel()
	_, err := testserver.Perform(t.Context(), func(p *testserver.Program) any {
		w := newWires(p)
		n := newNode(p, KeepNothing, false, w.node(0))
		for _, kind := range []Kind{Partition, LoseRequests, LoseReplies} {
			a := Action{Kind: kind, Part: Begin, Nodes: []int{0}}
			send := speaker(p, w, n)
			w.play(a)
			send("SET late " + string(kind[0]) + "\n")
			if kind != LoseReplies {
				if got := late(p, n); got != "" {
					t.Errorf("%s: the request came call", kind)
				}
				a.Part = End
				w.play(a)
			}
			for begun := now(); late(p, n) != string(kind[0]); time.Sleep(10 * time.Millisecond) {
				if now().Sub(begun) > hangLimit {
					p.Fatalf("%s: the request never came", kind)
				}
			}
			a.Part = End
			w.play(a)
			p.Must(n.do(n.server, []any{"del", "late"}))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// late reads the value that the late request sets.
func late(p *testserver.Program, n *node) string {
	rdb := direct(n.server)
	defer rdb.Close()
	got, err := rdb.Do(p.Context(), "eval", "return redis.call('GET', 'late') or ''", 0).Text()
	p.Must(err)
	return got
}

// speaker connects to a node from the namespace of client 0. The function that it
// returns sends one request, and returns once no client waits for the reply.
func speaker(p *testserver.Program, w *wires, n *node) func(string) {
	line := append(w.client(0), "bash", "-c", fmt.Sprintf(
		`exec 3<>/dev/tcp/%s/%d && echo connected && read -r ask && printf '%%s\r\n' "$ask" >&3`, nodeAddr(0), n.server.Port()))
	cmd := exec.Command(line[0], line[1:]...)
	in, err := cmd.StdinPipe()
	p.Must(err)
	out, err := cmd.StdoutPipe()
	p.Must(err)
	p.Must(cmd.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	p.Must(err)
	return func(request string) {
		_, err := io.WriteString(in, request)
		p.Must(err)
		p.Must(cmd.Wait())
	}
}

// A schedule knows whether it can have real links.
func TestWhatWiresCannot(t *testing.T) {
	for k, want := range map[Kind]bool{Partition: true, LoseReplies: true, RestartRDB: true, ClockBack: true, Delay: false, Late: false, Promote: false} {
		s := Schedule{Actions: []Action{act(Flush, Begin, 0, 1), act(k, Begin, 0, 1)}}
		if got := s.canBeWired(); got != want {
			t.Errorf("%s: %v", k, got)
		}
	}
}
