// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/verify/internal/child"
	"github.com/redis/go-redis/v9"
)

// jobEnv carries the job of a process that is a client.
const jobEnv = "HASP_VERIFY_OVERLAP"

// job is what such a process needs to know.
type job struct {
	Subject string
	Addrs   []string
	TTL     time.Duration
	Deaf    bool // it never notices a loss: the measurement must
}

// order is what the program tells a client to do: lock, or report whether it still believes.
type order struct{ Do string }

// event is what a client says. It is ready, then it holds the key, at some instant, until it has
// ended, that is, its library said that it no longer holds the key. Last is the last instant at which it
// asked and the answer was that it does.
type event struct {
	What     string
	At, Last child.Mono
	Text     string
}

const (
	ready    = "ready"
	held     = "held"
	believes = "believes"
	ended    = "ended"
	failed   = "failed"
)

// step is how long a piece of a holder's work takes: it asks before each.
const step = time.Millisecond

// clientMain turns this process into a client when it was started as one, and does not return then.
func clientMain() {
	text := os.Getenv(jobEnv)
	if text == "" {
		return
	}
	redis.SetLogger(silent{})
	tell(event{What: failed, Text: serve(text).Error()})
	os.Exit(1)
}

// silent drops what go-redis says of every connection that breaks.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// tell writes an event. If nobody reads it, the process is about to be killed.
func tell(e event) { _ = json.NewEncoder(os.Stdout).Encode(e) }

// serve connects, acquires the key when it is told to, and works as its holder, until the process is
// killed. It returns only an error.
func serve(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	s := find(j.Subject)
	if s == nil {
		return fmt.Errorf("there is no %q", j.Subject)
	}
	ctx := context.Background()
	lock, err := s.open(ctx, j)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	tell(event{What: ready})
	orders := json.NewDecoder(os.Stdin)
	var o order
	if err := orders.Decode(&o); err != nil {
		return err
	}
	holds, err := lock(ctx)
	at := child.Now()
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	tell(event{What: held, At: at})
	if j.Deaf {
		holds = func() bool { return true }
	}
	var asked atomic.Bool
	go func() {
		for orders.Decode(&o) == nil {
			asked.Store(true)
		}
	}()
	work(holds, at, &asked)
	select {}
}

// work asks before each step whether the key is held, until it is not.
func work(holds func() bool, last child.Mono, asked *atomic.Bool) {
	for {
		reply := asked.Swap(false)
		begun := child.Now() // before the question: a process that is stopped in between has begun nothing since
		if !holds() {
			tell(event{What: ended, Last: last})
			return
		}
		last = begun
		if reply {
			tell(event{What: believes, Last: last})
		}
		time.Sleep(step)
	}
}
