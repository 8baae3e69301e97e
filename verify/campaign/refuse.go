// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"os"
	"strings"
	"time"
)

// refusals are the ways to have a server answer and write nothing: how its
// errors begin.
var refusals = []string{"OOM", "NOREPLICAS", "MISCONF", "READONLY"}

func (g *generator) refuseWrites(at ms) bool {
	to := at + g.between(300, 2400)
	n := g.node(at, to)
	if n < 0 {
		return false
	}
	g.act(at, RefuseWrites, Begin, []int{n}, -1, 0)
	g.act(to, RefuseWrites, End, []int{n}, -1, 0)
	how, last := refusals[g.IntN(len(refusals))], len(g.s.Actions)-1
	g.s.Actions[last-1].How, g.s.Actions[last].How = how, how
	return true
}

// refuse has the node refuse writes from now on.
//
// Redis looks at the first write of a script only, and lets a script that has
// written go on: none is cut in the middle.
func (n *node) refuse(how string) {
	switch how {
	case "OOM": // refuses what may take memory; DEL passes, and whatever comes behind it in a script
		n.t.Must(n.do(n.server, []any{"config", "set", "maxmemory", "1"}))
	case "NOREPLICAS":
		n.t.Must(n.do(n.server, []any{"config", "set", "min-replicas-to-write", "1"}))
	case "MISCONF": // a snapshot fails: a directory is where it should go
		n.t.Must(os.RemoveAll(n.file("dump.rdb")))
		n.t.Must(os.Mkdir(n.file("dump.rdb"), 0o700))
		n.t.Must(n.do(n.server, []any{"config", "set", "save", "3600 1000000"}))
		if n.writes() == nil { // none has failed before
			n.t.Must(n.do(n.server, []any{"bgsave", "schedule"}))
		}
	case "READONLY": // the master that it asks for data is not there
		n.t.Must(n.do(n.server, []any{"replicaof", "127.0.0.1", "1"}))
	}
	for begun := now(); ; time.Sleep(10 * time.Millisecond) { // a snapshot is made in the background
		err := n.writes()
		if err != nil && strings.Contains(err.Error(), ": "+how+" ") {
			return
		}
		if now().Sub(begun) > commandLimit {
			n.t.Fatalf("the node does not refuse writes with %s: %v", how, err)
		}
	}
}

// accept has the node take writes again.
func (n *node) accept(how string) {
	switch how {
	case "OOM":
		n.t.Must(n.do(n.server, []any{"config", "set", "maxmemory", "0"}))
	case "NOREPLICAS":
		n.t.Must(n.do(n.server, []any{"config", "set", "min-replicas-to-write", "0"}))
	case "MISCONF":
		n.t.Must(n.do(n.server, []any{"config", "set", "save", ""}))
		n.t.Must(os.RemoveAll(n.file("dump.rdb")))
	case "READONLY":
		n.t.Must(n.do(n.server, []any{"replicaof", "no", "one"}))
	}
	n.t.Must(n.writes())
}

// writes is nil when the server takes a write.
func (n *node) writes() error { return n.do(n.server, []any{"set", "x", "y", "px", "1"}) }
