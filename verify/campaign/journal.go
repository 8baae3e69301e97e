// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import "github.com/hasplock/hasp/internal/player"

// Mono is an instant of the clock that all processes share.
type Mono = player.Mono

func now() Mono { return player.Now() }

// record is an event of a client.
type record struct {
	Client int `json:"client"` // numbers all processes of a run, from 1
	player.Event
}
