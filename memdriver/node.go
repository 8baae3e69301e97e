// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// NodeOptions are for a [Store] that is one node of several.
type NodeOptions struct {
	// MaxTTL is the longest lease. With it the store keeps a node record, and is held
	// back until it is admitted, when it is new and whenever it may have lost leases.
	// 0: no bound and no record.
	MaxTTL time.Duration
	// Now is the store's clock, by which leases expire: it may be stepped, and run
	// faster or slower than others, as a server's wall clock may. It must not call
	// the store. nil: time.Now.
	Now func() time.Time
}

// NewNode returns an empty store.
func NewNode(o NodeOptions) *Store {
	s := &Store{options: o, watchers: make(map[driver.ID]map[chan driver.Hint]struct{}), alarms: make(map[string]*alarm)}
	s.epoch = s.now().Add(-time.Second) // before all that is told
	s.Restart(nil)
	return s
}

func (s *Store) now() time.Time {
	if s.options.Now != nil {
		return s.options.Now()
	}
	return time.Now()
}

// A Snapshot is the data of a store at one moment. It does not change.
type Snapshot struct{ data data }

// Snapshot returns the store's present data, including its node record.
func (s *Store) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Snapshot{s.data.clone()}
}

// Restart does what happens when a server is killed and started again: the store has
// the data of the snapshot, which may be of any age, or none when from is nil, and its
// clients reconnect. A store with a node record is held back then.
func (s *Store) Restart(from *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run = rand.Text()
	s.data = newData()
	if from != nil {
		s.data = from.data.clone()
	}
	s.hintAll()
}

// Flush makes the store lose all its data, including its node record and its fences,
// without a restart.
func (s *Store) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = newData()
}

// data is what a snapshot contains.
type data struct {
	keys    map[string]*entry
	tombs   map[driver.ID]time.Time // released owners, and until when they are refused
	fences  floors
	record  voting.Record // the zero value: there is none
	sweepAt int           // the size at which to drop what has expired
}

func newData() data {
	return data{keys: make(map[string]*entry), tombs: make(map[driver.ID]time.Time)}
}

func (d data) clone() data {
	d.tombs = maps.Clone(d.tombs)
	keys := make(map[string]*entry, len(d.keys))
	for key, e := range d.keys {
		c := *e
		c.holders, c.queue = clones(e.holders), clones(e.queue)
		keys[key] = &c
	}
	d.keys = keys
	return d
}

// voting reports whether the store may grant: its record is of its present run,
// and was admitted.
func (s *Store) voting() bool {
	return s.options.MaxTTL == 0 || s.record.Voting && s.record.Run == s.run
}

// maxTTL is the longest lease of a store that votes, 0 for no bound.
func (s *Store) maxTTL() time.Duration { return min(s.options.MaxTTL, s.record.MaxTTL) }

// tooLong says whether a store that votes refuses a TTL.
func (s *Store) tooLong(ttl time.Duration) bool { return s.options.MaxTTL > 0 && ttl > s.maxTTL() }

// Record implements [voting.Recorded]. It is driver.ErrUnsupported without
// NodeOptions.MaxTTL.
func (s *Store) Record(ctx context.Context) (voting.Record, error) {
	if err := s.enterNode(ctx); err != nil {
		return voting.Record{}, err
	}
	defer s.mu.Unlock()
	if s.record.Run != s.run {
		s.record = voting.Record{Text: "wait " + s.run + " " + rand.Text(), Run: s.run}
	}
	return s.record, nil
}

// Admit implements [voting.Recorded]. The bound counts in whole milliseconds.
func (s *Store) Admit(ctx context.Context, r voting.Record, maxTTL time.Duration) error {
	maxTTL = maxTTL.Truncate(time.Millisecond)
	if maxTTL <= 0 {
		return fmt.Errorf("the longest TTL is %v: it must be a millisecond or more", maxTTL)
	}
	if err := s.enterNode(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.record.Run != s.run || s.record.Voting || s.record.Text != r.Text {
		return driver.ErrNotHeld
	}
	text := fmt.Sprintf("ok %s %d", s.run, maxTTL.Milliseconds())
	s.record = voting.Record{Text: text, Voting: true, MaxTTL: maxTTL, Run: s.run}
	now := micros(s.now())
	s.fences.rise(now)
	s.fences.at = now
	s.fences.keep(now)
	return nil
}

func (s *Store) enterNode(ctx context.Context) error {
	if s.options.MaxTTL == 0 {
		return fmt.Errorf("a store without MaxTTL has no node record: %w", driver.ErrUnsupported)
	}
	return s.enter(ctx)
}

var (
	_ voting.Node     = (*Store)(nil)
	_ voting.Recorded = (*Store)(nil)
)
