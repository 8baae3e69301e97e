// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/verify/broken"
)

// key is the one key that all clients contend for.
const key = "orders/42"

// client is one machine that uses the lock, in one process after another.
type client struct {
	w     *world
	index int
	ttl   time.Duration
	skew  time.Duration // how far its wall clock is ahead

	mu     sync.Mutex
	cur    *process
	asleep time.Duration // suspended until then, since the run began
	missed time.Duration // suspended, or without a process, until then at least

	late struct{ out, in atomic.Int64 } // of a story: how much longer its messages take, in ns
	had  *hold                          // of a story: the latest
}

// process is one run of a client, until it ends or crashes. It has a hasp.Client of its own.
type process struct {
	c     *client
	life  int
	rng   *rand.Rand
	keep  time.Duration // of what it writes under; 0: it gives that back
	locks *hasp.Client
	ctx   context.Context // until it ends
	end   context.CancelFunc
	rest  time.Duration // once it has crashed: until the next one starts

	mu    sync.Mutex
	tries map[string]try // by owner
	waits waiter         // its owner in the queue, if any
	holds map[string]*hold
}

// String names the process.
func (p *process) String() string { return fmt.Sprintf("client %d.%d", p.c.index, p.life) }

// start starts a process.
func (c *client) start(life int) *process {
	p := &process{c: c, life: life, tries: map[string]try{}, holds: map[string]*hold{}}
	p.ctx, p.end = context.WithCancel(context.Background())
	p.rng = rand.New(rand.NewPCG(c.w.plan.Seed, uint64(c.index)<<16|uint64(life)<<8|1<<63))
	if p.rng.IntN(3) == 0 {
		p.keep = time.Millisecond + p.upTo(2*time.Second)
	}
	locks, err := hasp.New(p.driver(), &hasp.Options{Observe: p.saw})
	if err != nil {
		panic(err)
	}
	p.locks = locks
	c.mu.Lock()
	c.cur = p
	c.mu.Unlock()
	return p
}

// driver returns what the process's hasp.Client uses.
func (p *process) driver() driver.Driver {
	w := p.c.w
	if w.plan.Lone {
		return recorder{broken.New(newLink(p, w.nodes[0]), w.variant.whole), p}
	}
	nodes := w.nodes
	if w.variant.lists != nil {
		nodes = nil
		for _, i := range w.variant.lists(p.c.index) {
			nodes = append(nodes, w.nodes[i])
		}
	}
	link, whole := w.variant.link, w.variant.whole
	if w.variant.both != nil {
		link, whole = w.variant.both()
	}
	links := make([]voting.Node, len(nodes))
	for i, n := range nodes {
		l := broken.New(newLink(p, n), broken.Ahead(func() time.Duration { return p.c.skew }), link)
		if links[i] = l; w.plan.Eager {
			links[i] = eager{l}
		}
	}
	return recorder{broken.New(quorum.New(links, &quorum.Options{NodeTimeout: w.plan.NodeTimeout}), whole), p}
}

// run runs a client: processes that acquire the key again and again until the faults
// are over, and then one last acquisition, which must succeed. The last of them stays.
func (c *client) run() {
	for life := 0; ; life++ {
		p := c.start(life)
		p.work()
		if p.crashed() {
			c.w.running.Go(func() { _ = p.locks.Close() }) // a crashed process sends nothing
			time.Sleep(p.rest)
			continue
		}
		p.lastTurn()
		return
	}
}

// crash ends the client's process; the next one starts after d.
func (c *client) crash(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cur == nil || c.cur.crashed() {
		return
	}
	c.asleep, c.missed, c.cur.rest = 0, c.w.now()+d, d
	c.cur.dies()
	c.cur.end()
}

// pause suspends the client: nothing is sent or received, and its goroutines do not proceed.
func (c *client) pause(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asleep = max(c.asleep, c.w.now()+d)
	c.missed = max(c.missed, c.asleep)
}

// awake returns once the process runs, or an error if it has ended.
func (p *process) awake() error {
	for {
		p.c.mu.Lock()
		left := p.c.asleep - p.c.w.now()
		p.c.mu.Unlock()
		if p.crashed() {
			return errDead
		}
		if left <= 0 {
			return nil
		}
		_ = p.sleep(left)
	}
}

// sleep waits. It returns an error if the process ends.
func (p *process) sleep(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.ctx.Done():
		return errDead
	}
}

func (p *process) crashed() bool { return p.ctx.Err() != nil }

// spend is sleep for a process that may be suspended meanwhile.
func (p *process) spend(d time.Duration) error {
	if err := p.sleep(d); err != nil {
		return err
	}
	return p.awake()
}

func (p *process) upTo(d time.Duration) time.Duration { return rand64(p.rng, d) }

// work acquires the key again and again until the faults are over.
func (p *process) work() {
	for !p.c.w.over.Load() {
		pause := p.upTo(200 * time.Millisecond)
		if p.keep > 0 && p.rng.IntN(3) > 0 { // before others ask
			pause /= 40
		}
		if p.spend(pause) != nil || p.turn() != nil {
			return
		}
	}
}

// turn tries to acquire the key once, and uses it. It returns an error if the process has ended.
func (p *process) turn() error {
	limit := 3*time.Second + p.upTo(5*time.Second)
	if p.rng.IntN(5) == 0 { // gives up in the middle of its requests
		limit = 1 + p.upTo(200*time.Millisecond)
	}
	o := &hasp.LockOptions{TTL: p.c.ttl, NoRenew: p.rng.IntN(4) == 0}
	m := p.locks.RWMutex(key, o)
	try, read := p.rng.IntN(5) == 0, p.rng.IntN(5) < 2
	locks := map[bool][]locker{false: {m.Lock, m.TryLock}, true: {m.RLock, m.TryRLock}}[read]
	if !read && p.keep > 0 {
		o.NoRenew, o.Keep = false, p.keep
		m := p.locks.Mutex(key, o)
		locks = []locker{m.Lock, m.TryLock}
	}
	if try {
		locks = locks[1:]
	}
	h, err := p.take(locks[0], limit)
	if err != nil {
		return p.awake()
	}
	return p.hold(h)
}

type locker func(ctx context.Context) (*hasp.Lease, error)

func (p *process) acquire(lock locker, limit time.Duration) (*hasp.Lease, error) {
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	p.c.w.trace.add("  %v asks", p)
	defer p.waitsFor(waiter{})
	return lock(ctx)
}

// hold uses a lease and releases it.
func (p *process) hold(h *hold) error {
	length := p.upTo(300 * time.Millisecond)
	if p.rng.IntN(3) == 0 {
		length = p.upTo(3 * p.c.ttl)
	}
	careful := p.rng.IntN(4) > 0 // checks before each use that it still holds the key
	steps := 1 + p.rng.IntN(4)
	reads, lower := h.Shared, steps
	if !reads && p.rng.IntN(3) == 0 {
		lower = p.rng.IntN(steps)
	}
	for i := range steps {
		if i == lower {
			reads = true
			p.downgrade(h)
		}
		if err := p.spend(length / time.Duration(steps)); err != nil {
			return err
		}
		if careful && h.lease.Err() != nil {
			break
		}
		if p.rng.IntN(4) == 0 { // a delay between the check and the use
			if err := p.spend(p.upTo(20 * time.Millisecond)); err != nil {
				return err
			}
		}
		h.use(reads, p.upTo(5*time.Millisecond))
	}
	h.release()
	return p.awake()
}

// downgrade makes the client only read from now on, whatever Downgrade returns.
func (p *process) downgrade(h *hold) {
	p.c.w.history.Downgraded(h.Hold)
	p.c.w.trace.add("%v %s DOWNGRADES", p, h.Owner)
	_, err := p.acquire(func(ctx context.Context) (*hasp.Lease, error) { return h.lease, h.lease.Downgrade(ctx) }, p.c.ttl)
	p.c.w.trace.add("  %v shares: %v", p, err)
}

// lastTurn acquires the key once more, which must succeed within turnLimit.
func (p *process) lastTurn() {
	w := p.c.w
	end := w.plan.FaultsEnd + w.plan.turnLimit()
	m := p.locks.RWMutex(key, &hasp.LockOptions{TTL: p.c.ttl})
	lock := m.Lock
	if p.rng.IntN(3) == 0 {
		lock = m.RLock
	}
	for w.now() < end && !p.crashed() {
		h, err := p.take(lock, end-w.now())
		if err == nil {
			w.mu.Lock()
			w.waited = max(w.waited, w.now()-w.plan.FaultsEnd)
			w.mu.Unlock()
			_ = p.sleep(10 * time.Millisecond)
			h.release()
			return
		}
		w.trace.add("  %v acquires nothing: %v", p, err)
		_ = p.sleep(50 * time.Millisecond)
	}
	w.find(Progress, "client %d has not acquired the key in the %v since the faults ended", p.c.index, w.plan.turnLimit())
}

// recorder wraps the quorum, or the one store, and records which owner waits, and what the store said to it last.
type recorder struct {
	driver.Driver
	p *process
}

// try is the latest that was granted, or that was refused to an owner that may enter.
type try struct {
	began   int64
	granted bool
}

// Try forwards the request.
func (r recorder) Try(ctx context.Context, req driver.TryRequest) (driver.Result, error) {
	p := r.p
	began := p.c.w.history.Tick()
	if req.Queue {
		p.waitsFor(waiter{p, req.Owner, req.Mode == driver.Shared})
	}
	res, err := r.Driver.Try(ctx, req)
	if err == nil && (res.Granted || res.At != 0) {
		p.mu.Lock()
		p.tries[req.Owner] = try{began, res.Granted}
		p.mu.Unlock()
	}
	p.c.w.trace.add("  %v: the answer to %+v is %+v", p, req, answer[driver.Result]{res, err})
	return res, err
}

// waitsFor records which owner of the process waits; none does with the zero value.
func (p *process) waitsFor(wt waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = wt
}

// hold is one hold of the key in its process's own view. It was asked for before the
// request that was granted, or after which the key was handed over.
type hold struct {
	*history.Hold
	p       *process
	lease   *hasp.Lease
	entered bool // it began with a message, without a Try
}

// take acquires the key, and records that the process learned of its lease.
func (p *process) take(lock locker, limit time.Duration) (*hold, error) {
	lease, err := p.acquire(lock, limit)
	if err != nil {
		return nil, err
	}
	w := p.c.w
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tries[lease.Owner()]
	h := &hold{p: p, lease: lease, entered: !t.granted}
	h.Hold = w.history.Acquired(history.Hold{
		Key: key, Owner: p.String() + ", owner " + short(lease.Owner()), Fence: broken.Shift(lease.Fence(), p.c.skew),
		Shared: lease.Mode() == hasp.Shared, Abandoned: lease.Abandoned(), Asked: t.began,
	}, lease.Deadline())
	p.holds[lease.Owner()] = h
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds = append(w.holds, h)
	w.trace.add("%v HOLDS, entered %v, until %.6f, shared %v, fence %d",
		h.Owner, h.entered, h.To.Sub(w.began).Seconds(), h.Shared, h.Fence)
	return h, nil
}

// saw records an event of the process's hasp.Client.
func (p *process) saw(_ context.Context, e *event.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, w := p.holds[e.Owner], p.c.w
	switch {
	case e.Kind == event.Lost:
		w.lost.Add(1)
		if h != nil {
			w.history.Cut(h.Hold)
		}
		w.trace.add("%v, owner %s, LOST, %v", p, e.Owner, e.Err)
	case e.Kind == event.Renewed && h != nil:
		w.history.Extended(h.Hold, time.Now().Add(e.Left))
		w.trace.add("%v RENEWED for %v", h.Owner, e.Left)
	}
}

// release releases the lease; if it is lost, that is already recorded.
func (h *hold) release() {
	h.p.c.w.history.Released(h.Hold)
	h.p.c.w.trace.add("%v RELEASES", h.Owner)
	_ = h.lease.Release()
}

// dies records that the process ends.
func (p *process) dies() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.holds {
		p.c.w.history.Cut(h.Hold)
	}
	p.c.w.trace.add("%v DIES", p)
}

// use sends a write or a read to what the lock protects, which arrives after takes.
func (h *hold) use(reads bool, takes time.Duration) {
	w := h.p.c.w
	time.AfterFunc(takes, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		ok := w.register.Takes(h.Fence, reads)
		if !ok {
			w.refused = append(w.refused, use{h.Hold, time.Now(), reads})
		}
		w.trace.add("  %v uses it, to read %v, with fence %d: accepted %v", h.Owner, reads, h.Fence, ok)
	})
}

// use is a write or a read that the register refused.
type use struct {
	*history.Hold
	at    time.Time
	reads bool
}

// valid reports whether the holder was entitled to that use at that time.
func (u *use) valid() bool {
	may := u.at.Before(u.To) && (u.reads || u.Down.IsZero() || u.at.Before(u.Down))
	return may && !u.at.Before(u.From)
}

// gaps are for how long the key is not used, after the faults: longer than all that is kept for a while.
var gaps = []time.Duration{time.Hour, 13 * time.Hour, 25 * time.Hour, 8 * 24 * time.Hour, 60 * 24 * time.Hour}

// afterGap bounds how long a lock may take after a gap, when all nodes are up and no other client asks.
const afterGap = time.Second

// pauseUse has one plan in four end with gaps, by numbers of its own.
func (p *Plan) pauseUse() *Plan {
	r := rand.New(rand.NewPCG(p.Seed, 1<<61))
	if r.IntN(4) > 0 {
		return p
	}
	for range 1 + r.IntN(2) {
		p.Gaps = append(p.Gaps, gaps[r.IntN(len(gaps))])
	}
	return p
}

// gaps has the key unused for the plan's gaps. After each, every client locks it, alone: by the process that it had before, and
// by a new one, in any order, with one attempt or with as many as it takes.
func (w *world) gaps() {
	r := rand.New(rand.NewPCG(w.plan.Seed, 1<<60))
	for n, gap := range w.plan.Gaps {
		time.Sleep(gap)
		for i := range 2 * len(w.clients) {
			c := w.clients[(i/2+n)%len(w.clients)]
			p, how := c.cur, "process"
			if (i+r.IntN(2))%2 == 1 {
				p, how = c.start(1000+10*n+i), "new process"
				defer func() { _ = p.locks.Close() }()
			}
			m := p.locks.RWMutex(key, &hasp.LockOptions{TTL: c.ttl})
			k, limit := r.IntN(4), afterGap
			if w.plan.May[Free] != "" { // clocks are so far apart that the first proposal may suit no majority
				k, limit = k|1, w.plan.turnLimit()
			}
			lock := []locker{m.TryLock, m.Lock, m.TryRLock, m.RLock}[k]
			h, err := p.take(lock, limit)
			if err != nil {
				w.find(Progress, "after %v in which no client used the key, client %d is granted nothing (its %s, %s): %v",
					gap, c.index, how, []string{"TryLock", "Lock", "TryRLock", "RLock"}[k], err)
				continue
			}
			h.release()
			time.Sleep(answersBy) // what is still under way is not in the way
		}
	}
}
