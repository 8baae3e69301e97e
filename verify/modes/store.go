// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/verify/broken"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/redis/go-redis/v9/logging"
)

// workerEnv marks a process that is a client.
const workerEnv = "HASP_MODES_WORKER"

// WorkerMain turns this process into a client when it was started as one, and
// does not return then.
func WorkerMain() {
	player.Main(workerEnv, func(in io.Reader, out io.Writer) error {
		return player.Work(in, out, func(j player.Job, observe func(context.Context, *event.Event)) (player.Locks, error) {
			return open(j, observe)
		})
	})
}

// faults are what a client can do without, by name, to show that each oracle notices.
var faults = map[string]broken.Fault{
	"":                        nil,
	"one more than the limit": broken.OneMore,
	"one slot for all":        broken.OneSlot,
	"writers share":           broken.EverybodyShares,
	"fences fall":             broken.FallingFences,
	"leases too long":         broken.TooLong,
	"deaths hidden":           broken.DeathsHidden,
	"deaths made up":          broken.DeathsMadeUp,
	"nothing released":        broken.All(broken.Outliving, broken.NoRelease),
	"no hints":                broken.All(broken.NoHints, broken.NoRetry),
	"the dead hold on":        broken.Outliving,
}

// job is what a client is told.
func (o *Options) job() player.Job {
	return player.Job{Store: string(o.Store.Kind) + "=" + strings.Join(o.Store.Addrs(), ","), TTL: o.TTL, Broken: o.broken}
}

// open connects a client, with a fault of its driver when the job names one.
func open(j player.Job, observe func(context.Context, *event.Event)) (*engines.Client, error) {
	logging.Disable()
	fault, ok := faults[j.Broken]
	if !ok {
		return nil, fmt.Errorf("no fault is called %q", j.Broken)
	}
	kind, addrs, _ := strings.Cut(j.Store, "=")
	conn, err := engines.OpenFor(engines.Kind(kind), strings.Split(addrs, ","), j.TTL)
	if err != nil {
		return nil, err
	}
	conn.Driver = broken.Around(conn.Driver, fault)
	return conn.Client(&hasp.Options{Observe: observe})
}
