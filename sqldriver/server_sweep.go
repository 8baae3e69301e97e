// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"sync"
	"time"
)

// A sweeper deletes keys of which everything is over for a while, a few at a time and
// more than were made: nothing is permanent, and no clean-up job is needed. It works
// beside the calls that made rows, in one goroutine, which lives while there is work.
type sweeper struct {
	s *Server

	mu      sync.Mutex
	made    int // rows made since the last sweep
	running bool
}

// sweepLimit bounds a sweep: whoever closes the driver waits for it.
const sweepLimit = 2 * time.Second

func (w *sweeper) due(made int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made += made
	if !w.running {
		w.running = true
		w.s.under.Go(w.loop)
	}
}

// take returns how many rows were made, and 0 when the goroutine ends.
func (w *sweeper) take() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	made := w.made
	w.made, w.running = 0, made > 0
	return made
}

func (w *sweeper) loop() {
	for made := w.take(); made > 0; made = w.take() {
		ctx, cancel := context.WithTimeout(context.Background(), sweepLimit)
		// What fails is left to the next who makes rows.
		_, _ = w.s.once(ctx, w.s.db.Conn, func(c *conn) error { return c.sweep(2*made + 8) })
		cancel()
	}
}

// sweep passes over keys that somebody has locked. No lock of its own outlasts a statement: it may
// stop at any moment. So what it deletes may have changed since it looked, and is looked at again.
func (c *conn) sweep(most int) error {
	rows, err := c.query(sDead, most)
	if err != nil {
		return err
	}
	defer rows.Close()
	var keys [][]byte
	var newest int64
	for rows.Next() {
		var key []byte
		var fence int64
		if err := rows.Scan(&key, &fence); err != nil {
			return err
		}
		keys, newest = append(keys, key), max(newest, fence)
	}
	if err := rows.Err(); err != nil || len(keys) == 0 {
		return err
	}
	if !c.s.eng.sequence { // before a row goes that has a fence, what others must be above
		if _, err := c.exec(sRaise, newest); err != nil {
			return err
		}
	}
	for _, key := range keys {
		if _, err := c.exec(sBury, key, newest); err != nil {
			return err
		}
	}
	return nil
}
