// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/people"
)

const (
	// listLimit bounds one list, lookLimit one look at a key.
	listLimit = time.Minute
	lookLimit = 5 * time.Second
	// share: between two lists is at least this many times what the last one took, so that a
	// large store is not kept busy by being watched; asked is the same for a client that
	// loads a page or asks the API.
	share = 50
	asked = 5
	// longestPause bounds that.
	longestPause = 30 * time.Second
	// mostKeys bounds what a list keeps in memory.
	mostKeys = 100_000
	// mostLooks bounds how many of the keys on screens are inspected between two lists.
	mostLooks = 200
	// jitter is by how much the end of a lease may seem to move without a renewal.
	jitter = time.Second
)

// entry is a key as it was seen. It never changes.
type entry struct {
	hasp.Info
	until  time.Time   // when its lease ends unless it is renewed; zero: not known, or never
	untils []time.Time // the same for each of Holders
	needs  string      // what about it needs a person, in a word or two; empty: nothing
}

// snapshot is what the store has, as far as it is known. It never changes.
type snapshot struct {
	entries []*entry // by key
	held    int
	waiters int
	needy   int       // entries that need a person
	longest time.Time // since when the first of all waiters has waited; zero: not known
	at      time.Time // of the list; zero before the first
	more    bool      // there are more keys than are kept
	err     error     // why the latest list failed; the rest is then of the one before
	views   *views
}

// poller asks the store on behalf of all viewers: of each thing once, and of
// nothing while there is none.
type poller struct {
	client  *hasp.Client
	prefix  string
	every   time.Duration
	explain func(error) string // nil: errors say it themselves

	listing chan struct{} // the goroutine that lists has its one place

	mu      sync.Mutex
	snap    *snapshot
	next    time.Time          // before it nothing is listed for live views
	soonest time.Time          // and before this for no request
	changed chan struct{}      // closed when there is something new, and replaced
	lists   int                // how many streams show the list
	screens map[string]int     // keys on their screens, and on how many
	watched map[string]*watch  // keys with a page of their own that a viewer looks at
	seq     int64              // of the latest change
	stop    context.CancelFunc // of the loop; nil while there is none
	wake    chan struct{}
}

func newPoller(c *hasp.Client, prefix string, every time.Duration, explain func(error) string) *poller {
	return &poller{client: c, prefix: prefix, every: every, explain: explain, listing: make(chan struct{}, 1), changed: make(chan struct{}),
		snap: newSnapshot(nil), screens: map[string]int{}, watched: map[string]*watch{}, seq: time.Now().UnixMicro(), wake: make(chan struct{}, 1)}
}

func newSnapshot(entries []*entry) *snapshot {
	s := &snapshot{entries: entries, views: &views{}}
	for _, e := range entries {
		if e.Held {
			s.held++
		}
		s.waiters += e.Waiters
		if e.needs != "" {
			s.needy++
		}
		if first := people.FirstSince(e.Queue); !first.IsZero() && (s.longest.IsZero() || first.Before(s.longest)) {
			s.longest = first
		}
	}
	return s
}

// needsOf says what about a key needs a person.
func needsOf(i hasp.Info, now time.Time) string {
	switch {
	case i.Held && (people.Ended(i.Holder) || slices.ContainsFunc(i.Holders, func(h driver.Holding) bool { return people.Ended(h.Holder) })):
		return "its process has ended"
	case i.Held && i.Left < 0:
		return "never ends"
	case people.LongWait(people.FirstSince(i.Queue), now):
		return "long wait"
	}
	return ""
}

// current returns what is known, and a channel that is closed when there is more.
func (p *poller) current() (*snapshot, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.snap, p.changed
}

// publish replaces the snapshot, with mu locked.
func (p *poller) publish(s *snapshot) {
	p.snap = s
	p.tell()
}

// tell wakes each stream that waits for something new, with mu locked.
func (p *poller) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// start has the loop run, with mu locked.
func (p *poller) start() {
	if p.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		p.stop = cancel
		go p.loop(ctx)
	}
	select {
	case p.wake <- struct{}{}: // it may be asleep, and a viewer looks at something else
	default:
	}
}

// leave ends the loop when no viewer is left, with mu locked.
func (p *poller) leave() {
	if p.lists == 0 && len(p.watched) == 0 && p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// joinList says that one more viewer looks at the list, until leave is called.
func (p *poller) joinList() (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lists++
	p.start()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lists--
		p.leave()
	}
}

// shows replaces the keys that are on one screen.
func (p *poller) shows(old, now []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range now {
		p.screens[key]++
	}
	for _, key := range old {
		if p.screens[key]--; p.screens[key] == 0 {
			delete(p.screens, key)
		}
	}
}

func (p *poller) loop(ctx context.Context) {
	for {
		p.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			// A viewer that opens one page after another does not make it ask all the time.
			select {
			case <-ctx.Done():
				return
			case <-time.After(p.every / 10):
			}
		case <-time.After(p.every):
		}
	}
}

// look asks the store once for what the viewers look at.
func (p *poller) look(ctx context.Context) {
	p.mu.Lock()
	list := p.lists > 0 && !time.Now().Before(p.next)
	screen := p.lists > 0 && !list
	pages := slices.Collect(maps.Keys(p.watched))
	var keys []string
	if screen {
		for key := range p.screens { // in random order: of too many, each has its turn
			if len(keys) < mostLooks && p.watched[key] == nil {
				keys = append(keys, key)
			}
		}
	}
	p.mu.Unlock()
	if list {
		_, _ = p.list(ctx) // the snapshot says so
	}
	infos := p.inspect(ctx, append(pages, keys...))
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	for _, key := range pages {
		if w, looked := p.watched[key], infos[key]; w != nil && w.note(looked.entry, looked.err, now, &p.seq) {
			p.tell()
		}
	}
	if screen {
		if s := p.snap.with(infos); s != nil {
			p.publish(s)
		}
	}
}

// looked is the answer to one Inspect.
type looked struct {
	entry *entry
	err   error
}

// inspect looks at keys, a few at a time.
func (p *poller) inspect(ctx context.Context, keys []string) map[string]looked {
	const atOnce = 4
	out := make(map[string]looked, len(keys))
	var mu sync.Mutex
	var all sync.WaitGroup
	todo := make(chan string)
	for range min(atOnce, len(keys)) {
		all.Go(func() {
			for key := range todo {
				e, err := p.inspectOne(ctx, key)
				mu.Lock()
				out[key] = looked{e, err}
				mu.Unlock()
			}
		})
	}
	for _, key := range keys {
		todo <- key
	}
	close(todo)
	all.Wait()
	return out
}

func (p *poller) inspectOne(ctx context.Context, key string) (*entry, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	info, err := p.client.Operator().Inspect(ctx, key)
	if err != nil {
		return nil, p.explained(err)
	}
	info.Key = key
	return newEntry(info, time.Now()), nil
}

func newEntry(info hasp.Info, at time.Time) *entry {
	end := func(left time.Duration) (t time.Time) {
		if left > 0 {
			t = at.Add(left)
		}
		return t
	}
	e := &entry{Info: info, until: end(info.Left), needs: needsOf(info, at)}
	for _, l := range info.Holders {
		e.untils = append(e.untils, end(l.Left))
	}
	return e
}

// fresh returns a list for a client that looks only once: the last one until soonest,
// else a new one. The error says why there is none.
func (p *poller) fresh(ctx context.Context) (*snapshot, error) {
	p.mu.Lock()
	s, wait := p.snap, time.Now().Before(p.soonest)
	p.mu.Unlock()
	if !s.at.IsZero() && wait {
		return s, nil
	}
	return p.list(ctx)
}

// list asks for all keys, unless another goroutine just did.
func (p *poller) list(ctx context.Context) (*snapshot, error) {
	select {
	case p.listing <- struct{}{}:
		defer func() { <-p.listing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.mu.Lock()
	before, wait := p.snap, time.Now().Before(p.soonest)
	p.mu.Unlock()
	if wait {
		return before, before.failed()
	}
	begun := time.Now()
	s, err := p.collect(ctx, before)
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil { // it is not the store's fault
		return nil, ctx.Err()
	}
	took := now.Sub(begun)
	pause := func(times int) time.Time {
		return now.Add(max(p.every, min(time.Duration(times)*took, longestPause)))
	}
	p.next, p.soonest = pause(share), pause(asked)
	if err != nil {
		copied := *p.snap
		copied.err = err
		p.publish(&copied)
		return &copied, copied.failed()
	}
	s.at = now
	p.publish(s)
	return s, nil
}

// failed says why there is nothing to show; nil while there is an older list.
func (s *snapshot) failed() error {
	if s.at.IsZero() {
		return s.err
	}
	return nil
}

func (p *poller) collect(ctx context.Context, before *snapshot) (*snapshot, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listLimit, fmt.Errorf("no whole list within %v", listLimit))
	defer cancel()
	found, more := map[string]*entry{}, false
	for info, err := range p.client.Operator().List(ctx, p.prefix) {
		if err != nil {
			return nil, p.explained(err)
		}
		if len(found) >= mostKeys {
			more = true
			break
		}
		found[info.Key] = newEntry(info, time.Now()).steady(before.entry(info.Key)) // the store may name one twice
	}
	var waited []string
	for key, e := range found {
		if e.Waiters > 0 {
			waited = append(waited, key)
		}
	}
	slices.SortFunc(waited, func(a, b string) int { return cmp.Or(found[b].Waiters-found[a].Waiters, strings.Compare(a, b)) })
	waited = waited[:min(len(waited), mostLooks)]
	looks, done := context.WithTimeout(ctx, lookLimit)
	defer done()
	for key, l := range p.inspect(looks, waited) { // for how long they wait
		switch b := before.entry(key); {
		case l.err == nil && l.entry.Waiters > 0:
			found[key] = l.entry.steady(b)
		case l.err != nil && b != nil: // else a long wait would come and go with each look that is not in time
			e := found[key]
			e.Queue = b.Queue
			e.needs = needsOf(e.Info, time.Now())
		}
	}
	s := newSnapshot(slices.SortedFunc(maps.Values(found), func(a, b *entry) int { return strings.Compare(a.Key, b.Key) }))
	s.more = more
	return s, nil
}

// entry returns what is known of a key; nil for nothing.
func (s *snapshot) entry(key string) *entry {
	if i, ok := s.index(key); ok {
		return s.entries[i]
	}
	return nil
}

func (s *snapshot) index(key string) (int, bool) {
	return slices.BinarySearchFunc(s.entries, key, func(e *entry, key string) int { return strings.Compare(e.Key, key) })
}

// steady returns e with the end of the lease that was seen before, where it is the same
// but for the time that answers take: what did not change is not sent.
func (e *entry) steady(before *entry) *entry {
	if before == nil {
		return e
	}
	if e.until.Sub(before.until).Abs() < jitter {
		e.until = before.until
	}
	for i := range min(len(e.untils), len(before.untils)) {
		if e.untils[i].Sub(before.untils[i]).Abs() < jitter {
			e.untils[i] = before.untils[i]
		}
	}
	return e
}

// with returns the snapshot with newer answers about some of its keys; nil when they say
// nothing new. Keys that the list has not are left to the next list.
func (s *snapshot) with(infos map[string]looked) *snapshot {
	var entries []*entry
	gone := 0
	for key, l := range infos {
		i, ok := s.index(key)
		if !ok || l.err != nil {
			continue // what is wrong, the next list says
		}
		e := l.entry.steady(s.entries[i])
		if same(e, s.entries[i]) {
			continue
		}
		if entries == nil {
			entries = slices.Clone(s.entries)
		}
		if entries[i] = e; !e.Held && e.Waiters == 0 {
			entries[i] = nil
			gone++
		}
	}
	if entries == nil {
		return nil
	}
	if gone > 0 {
		entries = slices.DeleteFunc(entries, func(e *entry) bool { return e == nil })
	}
	n := newSnapshot(entries)
	n.at, n.more, n.err = s.at, s.more, s.err
	return n
}

// same says whether two entries show the same in a list.
func same(a, b *entry) bool {
	return a.Held == b.Held && a.Holder == b.Holder && a.Fence == b.Fence && a.until.Equal(b.until) &&
		(a.Left < 0) == (b.Left < 0) && a.Leases == b.Leases && a.Waiters == b.Waiters && a.needs == b.needs
}

// relist has the next request for a list get a new one.
func (p *poller) relist() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.soonest = time.Time{}, time.Time{}
}

// explained is an error of the store as [Options].Explain has it.
func (p *poller) explained(err error) error {
	if p.explain == nil {
		return err
	}
	return errors.New(p.explain(err))
}

// trouble describes an error of the store in one line, without the parts that are for
// programs.
func trouble(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded):
		return "the store does not answer in time"
	}
	return driver.Printable(err.Error())
}
