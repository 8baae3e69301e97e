// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package admission times how long nodes that may have lost leases are held back:
// the "delayed restarts" of the Redlock algorithm, done by clients.
//
// A wait belongs to one exact node record, which contains a fresh nonce, and is timed
// by this machine's own clock from when the record was received. The node's clock is
// not used.
package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

const (
	// rate is by how much the waiting client's clock may run faster than the nodes'
	// clocks, at most: one in so many.
	rate = 1000
	// clockError is how far off a node's clock may be, either way, without harm to the
	// order of fences.
	clockError = 3 * time.Second
)

// Wait is how long a record must have been seen before its node votes again: until
// every lease that it may have lost has expired, maxTTL being the longest, and its
// clock is above every fence that it may have granted.
//
//	W = maxTTL / (1 - rate) + 2 clockError + voting.MaxFenceSkew
func Wait(maxTTL time.Duration) time.Duration {
	return maxTTL + maxTTL/(rate-1) + 2*clockError + voting.MaxFenceSkew
}

// Waits remembers since when it has seen each record. All methods may be called
// by many goroutines at once.
type Waits struct {
	dir    string
	failed func(error)
	told   sync.Once

	mu   sync.Mutex
	seen map[string]time.Time
}

// New returns an empty memory. With dir, the waits that other processes of this
// machine began since it was booted count, too: they share a file there. failed, which
// may be nil, is told once why a wait was not kept there.
func New(dir string, failed func(error)) *Waits {
	return &Waits{dir: dir, failed: failed, seen: map[string]time.Time{}}
}

// Left is what is left of the wait for a record, zero or less when it was seen for
// long enough. The first call for a record begins its wait: it must be made after the
// record was received.
func (w *Waits) Left(record string, maxTTL time.Duration) time.Duration {
	now := time.Now()
	w.mu.Lock()
	since, known := w.seen[record]
	if !known {
		since = now
		w.seen[record] = now
	}
	w.mu.Unlock()
	if !known {
		age, err := age(w.dir, record)
		if err != nil && w.failed != nil {
			w.told.Do(func() { w.failed(err) })
		} else if age > 0 {
			since = now.Add(-age)
			w.mu.Lock()
			w.seen[record] = since
			w.mu.Unlock()
		}
	}
	return Wait(maxTTL) - now.Sub(since)
}

// Over drops a record that no longer exists.
func (w *Waits) Over(record string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, record)
}

// HeldBack is the error of a node that is held back: voting.ErrNotVoting, with what is
// left of the wait as far as that is known.
type HeldBack struct{ Left time.Duration }

func (e *HeldBack) Error() string {
	if e.Left <= 0 {
		return "held back (new, restarted or flushed)"
	}
	return fmt.Sprintf("held back (new, restarted or flushed), %v left", max(e.Left.Round(time.Second), time.Second))
}

// Is makes errors.Is(err, voting.ErrNotVoting) true.
func (e *HeldBack) Is(target error) bool { return target == voting.ErrNotVoting }

// Admit lets a node vote, for leases of maxTTL at most, when rec, which was just
// received from it, has been seen for long enough: until every lease of longest has
// expired. It returns nil once the node votes, and *HeldBack until then.
func (w *Waits) Admit(ctx context.Context, n voting.Recorded, rec voting.Record, maxTTL, longest time.Duration) error {
	if rec.Voting {
		return nil
	}
	if left := w.Left(rec.Text, longest); left > 0 {
		return &HeldBack{Left: left}
	}
	err := n.Admit(ctx, rec, maxTTL)
	if err == nil || errors.Is(err, driver.ErrNotHeld) { // another client was faster, or the node lost its data again
		w.Over(rec.Text)
	}
	if errors.Is(err, driver.ErrNotHeld) {
		return &HeldBack{}
	}
	return err
}
