// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"

	"github.com/hasplock/hasp/internal/player"
)

// Mono is an instant of the clock that all processes share.
type Mono = player.Mono

func now() Mono { return player.Now() }

// record is an event of a client.
type record struct {
	Client int `json:"client"` // numbers all processes of a run, from 1
	player.Event
}

// attempt is one order of a client, and when each of its events came; 0: it did not.
type attempt struct {
	client, n int
	key       string
	shared    bool
	fence     uint64

	asked, queued, granted, failed Mono
	renewed                        Mono // first
	lowered, ended, gone           Mono
	told                           bool // the holder was told that its lease had ended
}

// attemptsOf extracts the attempts from what the clients reported.
func attemptsOf(records []record) (all []*attempt) {
	type order struct{ client, n int }
	byOrder := map[order]*attempt{}
	for _, e := range records {
		a := byOrder[order{e.Client, e.N}]
		if a == nil {
			if e.What != player.Asked {
				continue
			}
			a = &attempt{client: e.Client, n: e.N, key: e.Key, shared: e.Shared}
			byOrder[order{e.Client, e.N}] = a
			all = append(all, a)
		}
		switch e.What {
		case player.Asked:
			a.asked = e.At
		case player.Waiting:
			a.queued = e.At
		case player.Granted:
			a.granted, a.fence = e.At, e.Fence
		case player.Failed:
			a.failed = e.At
		case player.Renewed:
			a.renewed = cmp.Or(a.renewed, e.At)
		case player.Shares:
			if e.Err == "" {
				a.lowered = e.At
			}
		case player.Ended:
			a.ended, a.told = e.At, e.Closed != 0
		case player.Gone:
			a.gone = cmp.Or(a.gone, e.At)
		}
	}
	return all
}
