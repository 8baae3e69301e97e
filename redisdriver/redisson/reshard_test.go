// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// While a hash slot moves from one master of a cluster to another, nobody loses a lease, however long that takes, and no key is
// granted to another.
func TestResharding(t *testing.T) {
	t.Parallel()
	c := testserver.NewRedisCluster(t, 3, testserver.RedisGroup{Timeout: calm})
	for kind := range Kind(len(kinds)) {
		rdb := clusterClient(c.Addrs())
		d := New(rdb, unbounded(kind, ""))
		const n = 8
		var held []contend.Owner
		for i := range n {
			r := ask(fmt.Sprintf("{%v}%d", kind, i))
			if kind == ReadWrite && i%2 == 0 {
				r = shared(r)
			}
			if res, err := contend.Try(t.Context(), d, r); err != nil || !res.Granted {
				t.Fatalf("%v: %+v, %v", kind, res, err)
			}
			held = append(held, r)
		}
		slot := wire.HashSlot(held[0].Key)
		from, to := c.Master(slot), c.Masters[0]
		for from == nil { // it did not answer at once
			from = c.Master(slot)
		}
		if to == from {
			to = c.Masters[1]
		}
		c.Move(slot, from, to, func(step int) {
			ttl := time.Duration(step+1) * 10 * time.Minute
			for i, r := range held {
				r.TTL = ttl
				contend.Renew(t.Context(), d, []contend.Owner{r}, func(_ int, a driver.Renewal) {
					failIf(t, a.Err != nil || a.TTL != ttl, "%v, step %d: renewal %d: %+v", kind, step, i, a)
				})
				if left := rdb.PTTL(t.Context(), r.Key).Val(); left < ttl-time.Minute {
					t.Errorf("%v, step %d: %d lasts for %v", kind, step, i, left)
				}
				if res, err := contend.Try(t.Context(), d, ask(r.Key)); err == nil && res.Granted {
					t.Errorf("%v, step %d: %d was granted to another", kind, step, i)
				}
			}
			gone := ask(held[0].Key) // an owner who has nothing
			contend.Renew(t.Context(), d, []contend.Owner{gone}, func(_ int, a driver.Renewal) {
				failIf(t, a.Err == nil, "%v, step %d: a lease that nobody has was renewed", kind, step)
			})
		})
		for i, r := range held {
			if err := contend.Release(t.Context(), d, r); err != nil {
				t.Errorf("%v: Release of %d: %v", kind, i, err)
			}
			if err := contend.Release(t.Context(), d, r); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("%v: second Release of %d: %v", kind, i, err)
			}
		}
		_ = d.Close()
		_ = rdb.Close()
	}
}
