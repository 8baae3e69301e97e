// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"os"
	"strings"
	"time"
)

// refusing has, for each refusal, the command that begins it, and the command that ends it.
//
// Redis checks only the first write of a script, so no script is interrupted halfway.
var refusing = map[string][2][]any{
	// It refuses commands that may take memory; DEL passes, and with it whatever follows it in a script.
	"OOM":        {{"config", "set", "maxmemory", "1"}, {"config", "set", "maxmemory", "0"}},
	"NOREPLICAS": {{"config", "set", "min-replicas-to-write", "1"}, {"config", "set", "min-replicas-to-write", "0"}},
	"MISCONF":    {{"config", "set", "save", "3600 1000000"}, {"config", "set", "save", ""}},
	"READONLY":   {{"replicaof", "127.0.0.1", "1"}, {"replicaof", "no", "one"}}, // a replica of a master that does not exist
}

// refuse makes the node refuse writes from now on.
func (n *node) refuse(how string) {
	misconf := how == "MISCONF" // a snapshot fails, because a directory has the file's name
	if misconf {
		n.t.Must(os.RemoveAll(n.file("dump.rdb")))
		n.t.Must(os.Mkdir(n.file("dump.rdb"), 0o700))
	}
	n.t.Must(n.do(n.server, refusing[how][0]))
	if misconf && n.writes() == nil { // none has failed before
		n.t.Must(n.do(n.server, []any{"bgsave", "schedule"}))
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
	n.t.Must(n.do(n.server, refusing[how][1]))
	if how == "MISCONF" {
		n.t.Must(os.RemoveAll(n.file("dump.rdb")))
	}
	n.t.Must(n.writes())
}

// writes returns nil if the server accepts a write.
func (n *node) writes() error { return n.do(n.server, []any{"set", "x", "y", "px", "1"}) }
