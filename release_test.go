// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// A lease that was lost since the store's client was closed under it is no lease
// of a closed client: Release tells the store of its end.
func TestReleaseOfALeaseLostToAClosedPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var end driver.End
		d := &hooked{Driver: newStore()}
		d.renew = func(_ context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), _ renewFunc) {
			for i := range rs {
				done(i, driver.Renewal{Err: fmt.Errorf("the pool: %w", driver.ErrClosed)})
			}
		}
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			end = r.End
			return next(ctx, r)
		}
		lease := lock(t, newClient(t, d, nil), "k", nil)
		time.Sleep(hasp.DefaultTTL)
		wantIs(t, lease.Release(), hasp.ErrLost)
		if d.releases.Load() != 1 || end != driver.Unfinished {
			t.Errorf("the store was told %d times, of the end %d", d.releases.Load(), end)
		}
	})
}
