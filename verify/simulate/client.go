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

// process is one run of a client, until it ends or crashes. It has a hasp.Client of its
// own.
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

// pause suspends the client: nothing is sent or received, and its goroutines do
// not proceed.
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

// turn tries to acquire the key once, and uses it. It returns an error if the
// process has ended.
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
