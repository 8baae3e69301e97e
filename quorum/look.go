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
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/ballot"
)

// lookLimit bounds how long a node may take to describe a key.
const lookLimit = 500 * time.Millisecond

// Inspect asks all nodes; see [driver.Driver]. The holder is the owner that a majority
// names, or may name, as far as the nodes answered.
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if d.bad != nil {
		return driver.Info{}, d.bad
	}
	infos, errs := d.inspect(ctx, key)
	if err := ctx.Err(); err != nil {
		return driver.Info{}, err
	}
	known := slices.DeleteFunc(slices.Clone(infos), func(i *driver.Info) bool { return i == nil })
	if len(known) < d.need {
		return driver.Info{}, d.tooFew(errs)
	}
	for _, n := range d.nodes { // one that may have lost what it had does not say that a key is free
		if i := infos[n.index]; i != nil && !i.Held && i.Waiters == 0 && errors.Is(n.trouble(), voting.ErrNotVoting) {
			known = slices.DeleteFunc(known, func(k *driver.Info) bool { return k == i })
		}
	}
	return d.together(key, known), nil
}

// inspect asks all nodes, those that are held back too: what they have is still there.
func (d *Driver) inspect(ctx context.Context, key string) ([]*driver.Info, [maxNodes]error) {
	var asked ballot.Set
	var errs [maxNodes]error
	for _, n := range d.nodes {
		if errs[n.index] = n.trouble(); errs[n.index] == nil || errors.Is(errs[n.index], voting.ErrNotVoting) {
			asked.Add(n.index)
			errs[n.index] = errSilent // until it answers
		}
	}
	var mu sync.Mutex
	infos := make([]*driver.Info, len(d.nodes))
	answer := func(n *node, info *driver.Info, err error) {
		mu.Lock()
		defer mu.Unlock()
		infos[n.index], errs[n.index] = info, err
	}
	f := d.fanout(ctx, asked, placeTime, max(lookLimit, d.o.NodeTimeout), func(n *node) { answer(n, nil, errSilent) })
	f.patient(lookLimit) // to describe a long queue takes longer than a vote
	for _, n := range d.nodes {
		if asked.Has(n.index) && !d.spawn(func() {
			info, err := n.drv.Inspect(f.ctx, key)
			if err == nil {
				answer(n, &info, nil)
			} else {
				answer(n, nil, err)
			}
			f.ended(n, err)
		}) {
			f.over(n)
		}
	}
	<-f.ctx.Done()
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(infos), errs
}

// together makes one description of those of at least a majority.
func (d *Driver) together(key string, known []*driver.Info) driver.Info {
	res := driver.Info{Key: key}
	votes := map[string][]driver.Holding{} // of each owner
	var owners, free []string
	for _, i := range known {
		if i.Waiters > res.Waiters { // the queue is on one node
			res.Waiters, res.Queue = i.Waiters, i.Queue
		}
		res.LookCommands = append(res.LookCommands, i.LookCommands...)
		free = append(free, i.FreeCommands...)
		for _, l := range leases(i) {
			id := l.Holder.Owner + "\x00" + l.Holder.Label
			if votes[id] == nil {
				owners = append(owners, id)
			}
			votes[id] = append(votes[id], l)
		}
	}
	slices.Sort(res.LookCommands)
	res.LookCommands = slices.Compact(res.LookCommands)
	// The one with the most votes comes first, and is alone unless it shares.
	slices.SortStableFunc(owners, func(a, b string) int { return cmp.Compare(len(votes[b]), len(votes[a])) })
	for _, id := range owners {
		l := d.merged(votes[id])
		if len(votes[id])+len(d.nodes)-len(known) < d.need || res.Leases > 0 && (l.Holder.Mode != driver.Shared || res.Holders[0].Holder.Mode != driver.Shared) {
			break
		}
		res.Holders = append(res.Holders, l)
		res.Leases++
	}
	if res.Held = res.Leases > 0; res.Held {
		slices.SortStableFunc(res.Holders, func(a, b driver.Holding) int { // of one instant: not in the order in which votes came in
			return cmp.Or(a.Holder.Since.Compare(b.Holder.Since), cmp.Compare(a.Fence, b.Fence))
		})
		first := res.Holders[0]
		res.Holder, res.Fence, res.Left = first.Holder, first.Fence, first.Left
	}
	if res.Holder.Foreign && res.Left < 0 { // a foreign holder on a minority keeps no owner away
		slices.Sort(free)
		res.FreeCommands = slices.Compact(free)
	}
	return res
}

// leases are those on a key as one node lists them, or the first of them.
func leases(i *driver.Info) []driver.Holding {
	if i.Held && len(i.Holders) == 0 {
		return []driver.Holding{{Holder: i.Holder, Fence: i.Fence, Left: i.Left}}
	}
	return i.Holders
}

// merged makes one lease of the votes of its owner. A node that has it Exclusive
// where others have it Shared has not been told yet.
func (d *Driver) merged(votes []driver.Holding) driver.Holding {
	res := votes[0]
	lefts := make([]time.Duration, 0, len(votes))
	fences := make([]uint64, 0, len(votes))
	for _, v := range votes {
		fences = append(fences, v.Fence)
		lefts = append(lefts, v.Left)
		res.Holder.Mode = max(res.Holder.Mode, v.Holder.Mode)
		if v.Holder.Since.Before(res.Holder.Since) { // others may have been given the vote anew
			res.Holder.Since = v.Holder.Since
		}
	}
	// What a majority has: one node may have another proposal's fence.
	slices.SortFunc(lefts, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	slices.SortFunc(fences, func(a, b uint64) int { return cmp.Compare(b, a) })
	last := min(d.need, len(votes)) - 1
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
			if shared(known) { // nodes list one of its holders each
				if info, err = d.Inspect(ctx, key); err != nil {
					break
				}
			}
			info.Holders, info.Queue, info.LookCommands, info.FreeCommands = nil, nil, nil, nil
			if (info.Held || info.Waiters > 0) && !yield(info, nil) {
				return
			}
		}
		if err != nil {
			yield(driver.Info{}, err)
		}
	}
}

// shared says whether a key may have holders that not all nodes list.
func shared(known []*driver.Info) bool {
	return slices.ContainsFunc(known, func(i *driver.Info) bool { return i.Holder.Mode == driver.Shared })
}

// collect gathers what each node lists.
func (d *Driver) collect(ctx context.Context, prefix string) (map[string][]*driver.Info, error) {
	found := map[string]map[int]*driver.Info{}
	var errs [maxNodes]error
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, n := range d.nodes {
		if errs[n.index] = n.trouble(); errs[n.index] != nil && !errors.Is(errs[n.index], voting.ErrNotVoting) {
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
