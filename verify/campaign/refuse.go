// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"os"
	"strings"
	"time"
)

// refuse makes the node refuse writes from now on.
//
// Redis checks only the first write of a script, so no script is interrupted halfway.
func (n *node) refuse(how string) {
	switch how {
	case "OOM": // refuses commands that may take memory; DEL passes, and with it whatever follows it in a script
		n.t.Must(n.do(n.server, []any{"config", "set", "maxmemory", "1"}))
	case "NOREPLICAS":
		n.t.Must(n.do(n.server, []any{"config", "set", "min-replicas-to-write", "1"}))
	case "MISCONF": // a snapshot fails, because a directory has the file's name
		n.t.Must(os.RemoveAll(n.file("dump.rdb")))
		n.t.Must(os.Mkdir(n.file("dump.rdb"), 0o700))
		n.t.Must(n.do(n.server, []any{"config", "set", "save", "3600 1000000"}))
		if n.writes() == nil { // none has failed before
			n.t.Must(n.do(n.server, []any{"bgsave", "schedule"}))
		}
	case "READONLY": // a replica of a master that does not exist
		n.t.Must(n.do(n.server, []any{"replicaof", "127.0.0.1", "1"}))
	}
	for begun := now(); ; time.Sleep(10 * time.Millisecond) { // the snapshot is made in the background
		err := n.writes()
		if err != nil && strings.Contains(err.Error(), ": "+how+" ") {
			return
		}
		if now().Sub(begun) > commandLimit {
			n.t.Fatalf("the node does not refuse writes with %s: %v", how, err)
		}
	}
}

// accept makes the node accept writes again.
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

// writes returns nil if the server accepts a write.
func (n *node) writes() error { return n.do(n.server, []any{"set", "x", "y", "px", "1"}) }
