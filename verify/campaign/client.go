// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/redis/go-redis/v9/logging"
)

// clientEnv marks a client process.
const clientEnv = "HASP_CAMPAIGN_CLIENT"

// ClientMain turns this process into a client when it was started as one, and
// does not return then. Programs that call Run call it first.
func ClientMain() {
	player.Main(clientEnv, func(in io.Reader, out io.Writer) error {
		logging.Disable()
		return client(in, out)
	})
}

// process is the state of this client process.
type process struct {
	job     job
	locks   locker
	answers chan answer
	rand    *rand.Rand
	n       int
	stood   func() time.Duration

	mu  sync.Mutex
	out *json.Encoder
}

// client runs until it gets the answer Stop, or its input ends.
func client(in io.Reader, out io.Writer) error {
	p := &process{answers: make(chan answer, 1), out: json.NewEncoder(out)}
	dec := json.NewDecoder(in)
	if err := dec.Decode(&p.job); err != nil {
		return err
	}
	p.rand = rand.New(rand.NewPCG(p.job.Seed, 1))
	p.stood = stall.Watch(untilExit{})
	var err error
	if p.locks, err = open(&p.job, p.report); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go p.listen(dec, stop)
	for ctx.Err() == nil {
		if err := p.acquireOnce(ctx); err != nil {
			return err
		}
	}
	err = p.locks.close()
	e := event{What: bye, At: now()}
	if err != nil {
		e.Err = err.Error()
	}
	return p.report(e)
}

// untilExit stands in for a test whose cleanups never run.
type untilExit struct{}

func (untilExit) Cleanup(func()) {}

// listen receives answers. A client ends when its parent does.
func (p *process) listen(dec *json.Decoder, stop func()) {
	for {
		var a answer
		if err := dec.Decode(&a); err != nil {
			os.Exit(1)
		}
		if a.Stop {
			stop()
			continue
		}
		p.answers <- a
	}
}

// report writes an event: it has reached the parent's pipe when report returns.
func (p *process) report(e event) error {
	e.Stood, e.Slow = p.stood(), p.locks.slow()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Encode(e)
}

func (p *process) ask(e event) (answer, error) {
	if err := p.report(e); err != nil {
		return answer{}, err
	}
	return <-p.answers, nil
}

// between returns a random time.
func (p *process) between(from, to time.Duration) time.Duration {
	return from + time.Duration(p.rand.Int64N(int64(to-from)))
}

// turn is one acquisition.
type turn struct {
	n    int // from 1
	key  string
	try  bool // do not wait
	read bool // share the key with others who only read
}

// event returns an event of the turn.
func (t *turn) event(w what) event {
	return event{What: w, At: now(), N: t.n, Key: t.key, Try: t.try, Shared: t.read}
}

// acquireOnce acquires one key, uses it, and releases it. An error is one of the
// pipes.
func (p *process) acquireOnce(ctx context.Context) error {
	p.n++
	t := &turn{n: p.n, key: fmt.Sprintf("k%d", p.rand.IntN(keys)), try: p.rand.IntN(5) == 0 || p.job.Polls}
	t.read = p.locks.shares() && p.rand.IntN(5) < 2
	wait := p.between(time.Second, 9*time.Second)
	if p.job.Hasty && p.rand.IntN(2) == 0 {
		wait = p.between(20*time.Millisecond, 800*time.Millisecond)
	}
	limit, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := p.report(t.event(asked)); err != nil {
		return err
	}
	l, err := p.locks.lock(limit, t)
	if err != nil {
		pause(ctx, p.between(5*time.Millisecond, 60*time.Millisecond))
		e := t.event(failed)
		e.Err, e.Held = err.Error(), errors.Is(err, driver.ErrHeld)
		return p.report(e)
	}
	e := t.event(granted)
	e.Fence, e.Deadline, e.Most = l.fence(), l.deadline(), l.most()
	if err := p.report(e); err != nil {
		return err
	}
	return p.use(ctx, t, l)
}

// use changes the register under a lease, or reads it twice, without checking that
// the lease is still valid, like a process that was stopped between the check and the
// write.
func (p *process) use(ctx context.Context, t *turn, l lease) error {
	says := func(w what) event {
		e := t.event(w)
		e.Fence = l.fence()
		return e
	}
	heard := hear(l)
	got, err := p.ask(says(read))
	if err != nil {
		return err
	}
	length := p.between(2*time.Millisecond, 40*time.Millisecond)
	if p.rand.IntN(p.job.Long) == 0 { // long enough for a renewal or two
		length = p.between(p.job.MaxTTL/3, p.job.Longest)
	}
	work(ctx, l, length)
	if !t.read && !got.Refused {
		e := says(write)
		e.Value = got.Value
		if got, err = p.ask(e); err != nil {
			return err
		}
	}
	if !t.read && heard() == 0 && p.locks.shares() && p.rand.IntN(3) == 0 {
		t.read = true
		if err := p.downgrade(ctx, says, l); err != nil {
			return err
		}
		work(ctx, l, length/2)
	}
	if t.read && !got.Refused {
		e := says(look)
		e.Value = got.Value
		if _, err := p.ask(e); err != nil {
			return err
		}
	}
	over := says(ended)
	over.Stands = l.err() == nil
	over.Deadline = l.deadline()
	if at := heard(); at != 0 {
		over.Lost, over.At = true, at
	}
	if err := p.report(over); err != nil {
		return err
	}
	err = l.release()
	e := says(released)
	if err != nil {
		e.Err, e.Lost = err.Error(), errors.Is(err, driver.ErrLost)
	}
	if err := p.report(e); err != nil {
		return err
	}
	pause(ctx, p.between(0, 30*time.Millisecond))
	return nil
}

// hear returns when the lease's Done was closed; 0: it was not.
func hear(l lease) func() Mono {
	var at atomic.Int64
	if over := l.done(); over != nil {
		go func() {
			<-over
			at.Store(int64(now()))
		}()
	}
	return func() Mono { return Mono(at.Load()) }
}

// work waits, and returns early when the lease ends.
func work(ctx context.Context, l lease, lasts time.Duration) {
	timer := time.NewTimer(lasts)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-l.done():
	}
}

// downgrade makes the client only read from now on, whether Downgrade succeeds or not.
func (p *process) downgrade(ctx context.Context, says func(what) event, l lease) error {
	if err := p.report(says(lowered)); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, p.job.MaxTTL)
	defer cancel()
	err := l.downgrade(limit)
	e := says(shares)
	if err != nil {
		e.Err = err.Error()
	}
	return p.report(e)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
