// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"sync"
	"time"

	"github.com/hasplock/hasp/verify/internal/crew"
)

// record is an event and whose it is.
type record struct {
	Client int `json:"client"` // counts every process of a run, from 0
	event
	Stalled time.Duration `json:"stalled,omitempty"` // what the machine took from the campaign itself so far
}

// journal is what all clients of a run reported.
type journal struct {
	mu      sync.Mutex
	records []record
	more    chan struct{} // has room for one

	registers map[string]*register // by key; they answer clients
	stalled   func() time.Duration
}

func (j *journal) add(r record) {
	r.Stalled = j.stalled()
	j.mu.Lock()
	j.records = append(j.records, r)
	j.mu.Unlock()
	select {
	case j.more <- struct{}{}:
	default: // a signal is there already
	}
}

// from returns what was reported since the first n records.
func (j *journal) from(n int) []record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.records[n:len(j.records):len(j.records)]
}

// hear records what a client says, and answers for the registers.
func (j *journal) hear(m *crew.Member, e event) {
	j.add(record{Client: m.ID, event: e})
	if e.What == read || e.What == write || e.What == look {
		m.Say(j.registers[e.Key].serve(e))
	}
}
