// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"sync"
	"time"

	"github.com/hasplock/hasp/internal/player"
)

// record is an event of a client.
type record struct {
	Client int `json:"client"` // numbers all processes of a run, from 0
	event
	Stalled time.Duration `json:"stalled,omitempty"` // for how long the campaign's own process has not got to run so far
}

// journal is what all clients of a run reported.
type journal struct {
	mu      sync.Mutex
	records []record
	more    chan struct{} // capacity 1

	registers map[string]*register // by key
	stalled   func() time.Duration
}

func (j *journal) add(r record) {
	r.Stalled = j.stalled()
	j.mu.Lock()
	j.records = append(j.records, r)
	j.mu.Unlock()
	select {
	case j.more <- struct{}{}:
	default: // already signalled
	}
}

// from returns what was reported since the first n records.
func (j *journal) from(n int) []record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.records[n:len(j.records):len(j.records)]
}

// hear records an event, and answers requests to the registers.
func (j *journal) hear(m *player.Process, e event) {
	j.add(record{Client: m.ID, event: e})
	if e.What == read || e.What == write || e.What == look {
		m.Send(j.registers[e.Key].serve(e))
	}
}
