// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
)

// lookLimit bounds how long a node may take to describe a key.
const lookLimit = 500 * time.Millisecond

// Inspect asks all nodes; see [driver.Driver]. The holder is whom a majority
// names, or may name, as far as the nodes answered.
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if d.bad != nil {
		return driver.Info{}, d.bad
	}
	infos := make([]*driver.Info, len(d.nodes))
	var errs [maxNodes]error
	var wg sync.WaitGroup
	for _, n := range d.nodes {
		if errs[n.index] = n.trouble(); errs[n.index] != nil && !errors.Is(errs[n.index], driver.ErrNotVoting) {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, max(lookLimit, d.o.NodeTimeout))
			defer cancel()
			begun := mono()
			info, err := n.drv.Inspect(ctx, key)
			if err != nil {
				if errs[n.index] = err; ctx.Err() == nil {
					n.failed(begun, err)
				}
				return
			}
			n.heard.Store(mono())
			errs[n.index], infos[n.index] = nil, &info
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return driver.Info{}, err
	}
	known := slices.DeleteFunc(slices.Clone(infos), func(i *driver.Info) bool { return i == nil })
	if len(known) < d.need {
		return driver.Info{}, d.tooFew(errs)
	}
	return d.together(key, known), nil
}

// together makes one description of those of at least a majority.
func (d *Driver) together(key string, known []*driver.Info) driver.Info {
	res := driver.Info{Key: key}
	votes := map[string][]*driver.Info{}
	var most []*driver.Info
	for _, i := range known {
		if i.Waiters > res.Waiters { // the line is on one node
			res.Waiters, res.Line = i.Waiters, i.Line
		}
		res.ByHand = append(res.ByHand, i.ByHand...)
		if i.Held {
			id := i.Holder.Owner + "\x00" + i.Holder.Label
			votes[id] = append(votes[id], i)
			if len(votes[id]) > len(most) {
				most = votes[id]
			}
		}
	}
	slices.Sort(res.ByHand)
	res.ByHand = slices.Compact(res.ByHand)
	if len(most) == 0 || len(most)+len(d.nodes)-len(known) < d.need {
		return res
	}
	lefts := make([]time.Duration, 0, len(most))
	fences := make([]uint64, 0, len(most))
	res.Held, res.Holder = true, most[0].Holder
	for _, i := range most {
		fences = append(fences, i.Fence)
		lefts = append(lefts, i.Left)
	}
	// What a majority has: one node may have another proposal's fence.
	slices.SortFunc(lefts, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	slices.SortFunc(fences, func(a, b uint64) int { return cmp.Compare(b, a) })
	last := min(d.need, len(most)) - 1
	res.Left, res.Fence = lefts[last], fences[last]
	return res
}

// List yields what a majority has; see [driver.Driver].
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if d.bad != nil {
			yield(driver.Info{}, d.bad)
			return
		}
		found, err := d.collect(ctx, prefix)
		for key, known := range found {
			info := d.together(key, known)
			if (info.Held || info.Waiters > 0) && !yield(info, nil) {
				return
			}
		}
		if err != nil {
			yield(driver.Info{}, err)
		}
	}
}

// collect gathers what each node lists.
func (d *Driver) collect(ctx context.Context, prefix string) (map[string][]*driver.Info, error) {
	found := map[string]map[int]*driver.Info{}
	var errs [maxNodes]error
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, n := range d.nodes {
		if errs[n.index] = n.trouble(); errs[n.index] != nil && !errors.Is(errs[n.index], driver.ErrNotVoting) {
			continue
		}
		errs[n.index] = nil
		wg.Go(func() {
			for info, err := range n.drv.List(ctx, prefix) {
				if err != nil {
					errs[n.index] = err
					return
				}
				mu.Lock()
				if found[info.Key] == nil {
					found[info.Key] = map[int]*driver.Info{}
				}
				found[info.Key][n.index] = &info
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	silent := 0
	for _, err := range errs {
		if err != nil {
			silent++
		}
	}
	if silent > len(d.nodes)-d.need {
		return nil, d.tooFew(errs)
	}
	all := make(map[string][]*driver.Info, len(found))
	for key, by := range found {
		for _, n := range d.nodes {
			switch {
			case by[n.index] != nil:
				all[key] = append(all[key], by[n.index])
			case errs[n.index] == nil:
				all[key] = append(all[key], &driver.Info{Key: key}) // it has nothing
			}
		}
	}
	return all, nil
}
