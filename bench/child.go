// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/hasplock/hasp/internal/player"
)

// childEnv is set for a child process, which is this program, too.
const childEnv = "HASP_BENCH_CHILD"

// task is what a child process does.
type task struct {
	Do   string // of children
	Peer string
	To   target
	Key  string
}

// report is what a child process says: that it is ready, or what became of its turns.
type report struct{ Turns []turn }

// children are what a child process can do with a client: in has what it is told after the task, and say reports. The process ends
// when the function returns; most of them wait to be killed.
var children = map[string]func(l locker, key string, in *json.Decoder, say func(report) error) error{"hold": holdInChild, "contend": contendInChild, "hold many": holdManyInChild}

// runChild does a task in this process.
func runChild(in io.Reader, out io.Writer) error {
	dec, enc := json.NewDecoder(in), json.NewEncoder(out)
	var t task
	if err := dec.Decode(&t); err != nil {
		return err
	}
	known := peers
	switch {
	case t.To.Dir != "":
		known = filePeers
	case t.To.Agent != nil:
		known = agentPeers
	}
	i := slices.IndexFunc(known, func(p *peer) bool { return p.name == t.Peer })
	if i < 0 || children[t.Do] == nil {
		return fmt.Errorf("there is no task %q for a peer %q", t.Do, t.Peer)
	}
	l, err := known[i].open(context.Background(), t.To)
	if err != nil {
		return err
	}
	return children[t.Do](l, t.Key, dec, func(r report) error { return enc.Encode(r) })
}

// process is a child process, and what it says.
type process struct {
	*player.Process
	said chan report
}

// start starts a child process, which ends with ctx, and returns once it is ready.
func (t task) start(ctx context.Context) (*process, error) {
	c := &process{said: make(chan report, 2)}
	var err error
	if c.Process, err = player.Spawn(0, childEnv, t, func(r report) { c.said <- r }); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, c.Kill)
	_, err = c.hear()
	return c, err
}

// hear returns what the process says next.
func (c *process) hear() (report, error) {
	select {
	case r := <-c.said:
		return r, nil
	case <-c.Ended:
	}
	select { // it may have said so before
	case r := <-c.said:
		return r, nil
	default:
		return report{}, fmt.Errorf("the child process ended: %s", c.Last())
	}
}
