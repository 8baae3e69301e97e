// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/internal/player"
	"github.com/redis/go-redis/v9/logging"
)

// jobEnv marks a process that is a client of an overlap.
const jobEnv = "HASP_VERIFY_OVERLAP"

// job is what such a process needs to know.
type job struct {
	Subject string
	Addrs   []string
	TTL     time.Duration
	Deaf    bool // it never notices a loss: the measurement must
}

// believes answers an order to a holder: it holds the key still. At is then, and in player.Ended, the
// last instant at which the client asked its library and the answer was that it does.
const believes player.What = "believes"

// step is how long a piece of a holder's work takes: it asks before each.
const step = time.Millisecond

// clientMain turns this process into a client when it was started as one, and does not return then. The client connects, acquires
// the key when it is told to, and works as its holder, until the process is killed.
func clientMain() {
	player.Main(jobEnv, func(in io.Reader, out io.Writer) error {
		logging.Disable()
		orders, events := json.NewDecoder(in), json.NewEncoder(out)
		tell := func(w player.What, at player.Mono) { _ = events.Encode(player.Event{What: w, At: at}) } // if no process reads it, this one is about to be killed
		var j job
		if err := orders.Decode(&j); err != nil {
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
		tell(player.Ready, player.Now())
		var o player.Order
		if err := orders.Decode(&o); err != nil {
			return err
		}
		holds, err := lock(ctx)
		at := player.Now()
		if err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		tell(player.Granted, at)
		if j.Deaf {
			holds = func() bool { return true }
		}
		var wanted atomic.Bool
		go func() {
			for orders.Decode(&o) == nil {
				wanted.Store(true)
			}
		}()
		work(holds, at, &wanted, tell)
		select {}
	})
}

// work asks before each step whether the key is held, until it is not.
func work(holds func() bool, last player.Mono, wanted *atomic.Bool, tell func(player.What, player.Mono)) {
	for {
		reply := wanted.Swap(false)
		begun := player.Now() // before the question: a process that is stopped in between has begun nothing since
		if !holds() {
			tell(player.Ended, last)
			return
		}
		last = begun
		if reply {
			tell(believes, last)
		}
		time.Sleep(step)
	}
}
