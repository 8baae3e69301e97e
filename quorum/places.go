// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/ballot"
)

// placeTime stands for the TTL where a place is kept, for how long a node may
// take.
const placeTime = 10 * time.Second

// keepPlaces gives the places in the queue their sign of life.
func (d *Driver) keepPlaces(ctx context.Context, rs []driver.RenewRequest, places []int, done func(i int, r driver.Renewal)) {
	at := map[*node][]int{}
	for _, i := range places {
		o := d.owners.get(rs[i].Claim)
		if o == nil {
			done(i, driver.Renewal{Err: driver.ErrNotHeld})
			continue
		}
		o.mu.Lock()
		place, reserved := o.Place()
		o.mu.Unlock()
		switch {
		case reserved: // its own Try prolongs the queue node's vote
			done(i, driver.Renewal{})
		case place == ballot.None || d.nodes[place] != d.queue.Load():
			done(i, driver.Renewal{Err: driver.ErrNotHeld}) // it must ask, and joins the queue where that is now
		default:
			at[d.nodes[place]] = append(at[d.nodes[place]], i)
		}
	}
	for n, is := range at {
		reqs := make([]driver.RenewRequest, len(is))
		for k, i := range is {
			reqs[k] = rs[i]
		}
		var one ballot.Set
		one.Add(n.index)
		f := d.fanout(ctx, one, placeTime, 0, nil)
		answered := make([]bool, len(is))
		var mu sync.Mutex
		n.drv.Renew(f.ctx, reqs, func(k int, r driver.Renewal) {
			f.hears(n, r.Err)
			mu.Lock()
			answered[k] = true
			mu.Unlock()
			done(is[k], r)
		})
		f.over(n)
		for k, ok := range answered {
			if !ok {
				done(is[k], driver.Renewal{Err: errSilent})
			}
		}
	}
}
