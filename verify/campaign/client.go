// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/redis/go-redis/v9"
)

// clientEnv carries the job of a client process, as JSON.
const clientEnv = "HASP_CAMPAIGN_CLIENT"

// ClientMain turns this process into a client when it was started as one, and
// does not return then. Programs that call Run call it first.
func ClientMain() {
	text := os.Getenv(clientEnv)
	if text == "" {
		return
	}
	redis.SetLogger(silent{})
	if err := client(text, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// silent drops what go-redis says of every connection that breaks.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// process is this process as a client.
type process struct {
	job     job
	locks   locker
	answers chan answer
	rand    *rand.Rand
	n       int

	mu  sync.Mutex
	out *json.Encoder
}

// client runs until it is told to stop, or its input ends.
func client(text string, in io.Reader, out io.Writer) error {
	p := &process{answers: make(chan answer, 1), out: json.NewEncoder(out)}
	if err := json.Unmarshal([]byte(text), &p.job); err != nil {
		return err
	}
	p.rand = rand.New(rand.NewPCG(p.job.Seed, 1))
	var err error
	if p.locks, err = open(&p.job, p.tell); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go p.listen(in, stop)
	for ctx.Err() == nil {
		if err := p.once(ctx); err != nil {
			return err
		}
	}
	err = p.locks.close()
	e := event{What: bye, At: now()}
	if err != nil {
		e.Err = err.Error()
	}
	return p.tell(e)
}

// listen passes answers on. Without its parent a client ends.
func (p *process) listen(in io.Reader, stop func()) {
	dec := json.NewDecoder(bufio.NewReader(in))
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

// tell reports an event: it has reached the parent's pipe when tell returns.
func (p *process) tell(e event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Encode(e)
}

func (p *process) ask(e event) (answer, error) {
	if err := p.tell(e); err != nil {
		return answer{}, err
	}
	return <-p.answers, nil
}

// between returns a random time.
func (p *process) between(from, to time.Duration) time.Duration {
	return from + time.Duration(p.rand.Int64N(int64(to-from)))
}

// once acquires one key, uses it, and gives it back. An error is one of the
// pipes.
func (p *process) once(ctx context.Context) error {
	p.n++
	key, n, try := fmt.Sprintf("k%d", p.rand.IntN(keys)), p.n, p.rand.IntN(5) == 0
	limit, cancel := context.WithTimeout(ctx, p.between(time.Second, 9*time.Second))
	defer cancel()
	before := now()
	if err := p.tell(event{What: asked, At: before, N: n, Key: key, Try: try}); err != nil {
		return err
	}
	l, err := p.locks.lock(limit, n, key, try)
	if err != nil {
		pause(ctx, p.between(5*time.Millisecond, 60*time.Millisecond))
		return p.tell(event{What: failed, At: now(), N: n, Key: key, Try: try, Err: err.Error(), Held: errors.Is(err, driver.ErrHeld)})
	}
	at := now()
	if err := p.tell(event{What: granted, At: at, N: n, Key: key, Try: try, Fence: l.fence(), Deadline: l.deadline()}); err != nil {
		return err
	}
	return p.use(ctx, l, n, key)
}

// use changes the register under a lease, without asking the lease whether it
// still stands: so does whoever was stopped between the question and the write.
func (p *process) use(ctx context.Context, l lease, n int, key string) error {
	got, err := p.ask(event{What: read, At: now(), N: n, Key: key, Fence: l.fence()})
	if err != nil {
		return err
	}
	work := p.between(2*time.Millisecond, 40*time.Millisecond)
	if p.rand.IntN(p.job.Long) == 0 { // through a renewal or two
		work = p.between(p.job.MaxTTL/3, p.job.Longest)
	}
	timer := time.NewTimer(work)
	defer timer.Stop()
	over := event{What: ended, N: n, Key: key, Fence: l.fence()}
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-l.done():
		over.Lost = true
		over.At = now()
	}
	if !got.Refused {
		if _, err := p.ask(event{What: write, At: now(), N: n, Key: key, Fence: l.fence(), Value: got.Value}); err != nil {
			return err
		}
	}
	over.Deadline = l.deadline()
	if !over.Lost {
		over.At = now()
	}
	if err := p.tell(over); err != nil {
		return err
	}
	err = l.release()
	e := event{What: released, At: now(), N: n, Key: key, Fence: l.fence()}
	if err != nil {
		e.Err, e.Lost = err.Error(), errors.Is(err, driver.ErrLost)
	}
	if err := p.tell(e); err != nil {
		return err
	}
	pause(ctx, p.between(0, 30*time.Millisecond))
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
