// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/redis/go-redis/v9"
)

// A program that closes its Redis client before hasp's: every waiter gets an error at
// once, in whatever way it waits, and so does every later call.
func TestApplicationClosedItsClient(t *testing.T) {
	for name, change := range map[string][]string{"told": nil, "polls": {"-subscribe"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			holder := w.driver(nil)
			w.grant(holder, ask("k"))
			d := w.as("bob", change...)
			m := newClient(t, d).Mutex("k", &hasp.LockOptions{TTL: time.Hour})
			ended := make(chan error, 1)
			go func() {
				_, err := m.Lock(w.ctx)
				ended <- err
			}()
			w.until("it waits", func() bool { return w.inspect(holder, "k").Waiters == 1 })
			must(t, d.client.(io.Closer).Close())
			hinted := func(err error) {
				t.Helper()
				var e *hasp.Error
				if !errors.As(err, &e) || e.Class != driver.ClassImpossible || !errors.Is(err, redis.ErrClosed) || errors.Is(err, hasp.ErrClosed) ||
					!strings.Contains(err.Error(), "closed") || strings.Contains(err.Error(), "no good answer") {
					t.Errorf("it says %v", err)
				}
			}
			select {
			case err := <-ended:
				hinted(err)
			case <-w.ctx.Done():
				t.Fatal("it still waits")
			}
			_, err := m.TryLock(w.ctx)
			hinted(err)
		})
	}
}

// Nothing begins once Close has begun, which waits for all that did.
func TestNothingBeginsAfterClose(t *testing.T) {
	_, d := newPlain(t)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	d.boxes.Beside(func() { t.Error("it began") })
	d.running.Wait()
}
