// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/verify/broken"
)

// link is the network between one client and one node. It implements the node's driver. Of a store that is used without
// a quorum, the hint that the client was handed the key says so, and the client may enter on it: see driver.Hint.
type link struct {
	driver.Driver // of the node's store, for methods that need no network
	p             *process
	n             *node

	mu  sync.Mutex
	rng *rand.Rand
}

func newLink(p *process, n *node) *link {
	at := uint64(p.c.index)<<32 | uint64(p.life)<<16 | uint64(n.index)
	return &link{Driver: n.store, p: p, n: n, rng: rand.New(rand.NewPCG(p.c.w.plan.Seed, at+2))}
}

var (
	errReset = errors.New("simulated: connection reset")
	errDead  = errors.New("simulated: this process has ended")
)

// fate is what the network does to one request and its answer.
type fate struct {
	Out, In       time.Duration // the delay of each
	Lost, NoReply bool          // the request, or the answer, never arrives
	Reset         time.Duration // the caller gets an error after so long; 0: never
	Again         time.Duration // the request arrives again after so long; 0: it does not
}

func (l *link) fate() fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.p.c.w.network()
	f := fate{Out: l.delay(w) + time.Duration(l.p.c.late.out.Load()), In: l.delay(w) + time.Duration(l.p.c.late.in.Load())}
	r := l.rng
	if r.Float64() < w.Late {
		f.Out += rand64(r, w.LateBy)
	}
	f.Lost, f.NoReply = r.Float64() < w.Lost, r.Float64() < w.Lost
	if r.Float64() < w.Reset {
		f.Reset = 1 + rand64(r, f.Out+f.In)
	}
	if r.Float64() < w.Twice {
		f.Again = f.Out + 1 + rand64(r, 10*time.Millisecond)
		if r.IntN(4) == 0 {
			f.Again += rand64(r, w.LateBy)
		}
	}
	return f
}

func (l *link) delay(w Network) time.Duration {
	d := 100*time.Microsecond + rand64(l.rng, 900*time.Microsecond)
	if l.rng.Float64() < w.Slow {
		d += rand64(l.rng, w.SlowBy)
	}
	return d
}

func rand64(r *rand.Rand, n time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(n) + 1))
}

// cut reports whether a direction of the link is cut now.
func (l *link) cut(kind FaultKind) bool { return l.p.c.w.cut(kind, l.p.c, l.n) }

// carry has the network carry a message: late, twice, or not at all. What it does must be able to run twice.
func (l *link) carry(f fate, cut FaultKind, arrive func(first bool)) {
	if l.cut(cut) {
		return
	}
	if !f.Lost {
		time.AfterFunc(f.Out, func() { arrive(true) })
	}
	if f.Again > 0 {
		time.AfterFunc(f.Again, func() { arrive(false) })
	}
}

// answer is the answer of a node.
type answer[T any] struct {
	V   T
	Err error
}

// exchange sends one request and waits for its answer. The request is delivered even if no client waits for its answer any more.
func exchange[T any](ctx context.Context, l *link, op string, r any, do func(s broken.Node) (T, error)) (T, error) {
	var none T
	w := l.p.c.w
	if err := errors.Join(l.p.awake(), ctx.Err()); err != nil {
		return none, err
	}
	if l.cut(Reject) {
		return none, errRefused
	}
	f := l.fate()
	w.trace.add("      %v sends to node %d %s %+v: %+v", l.p, l.n.index, op, r, f)
	got := make(chan answer[T], 2)
	l.carry(f, CutOut, func(first bool) {
		l.n.arrive(func(err error) {
			a := answer[T]{Err: err}
			if err == nil {
				a.V, a.Err = do(l.n.serves)
			}
			w.messages.Add(1)
			ahead := time.Until(l.n.clock.now()).Seconds()
			w.trace.add("    %v -> node %d (%+.3fs): %s %+v, first %v: %+v", l.p, l.n.index, ahead, op, r, first, a)
			if first && !f.NoReply {
				time.AfterFunc(f.In, func() {
					if !l.cut(CutIn) {
						got <- a
					}
				})
			}
		})
	})
	if f.Reset > 0 {
		time.AfterFunc(f.Reset, func() { got <- answer[T]{Err: errReset} })
	}
	var a answer[T]
	select {
	case a = <-got:
	case <-ctx.Done():
		a.Err = ctx.Err()
	case <-l.p.ctx.Done():
		return none, errDead
	}
	if err := l.p.awake(); err != nil {
		return none, err
	}
	return a.V, a.Err
}

// Try sends the request.
func (l *link) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	return l.Vote(ctx, voting.VoteRequest{TryRequest: r})
}

// Vote sends the request.
func (l *link) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	return exchange(ctx, l, "try", r, func(s broken.Node) (driver.Result, error) { return s.Vote(context.Background(), r) })
}

// Renew sends the requests, and reports once all answers have arrived. What they ask to be told comes as a message.
func (l *link) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	sent := slices.Clone(rs)
	for i, r := range rs {
		if r.Wanted != nil {
			sent[i].Wanted = func() { l.tell(r.Wanted) }
		}
	}
	answers, err := exchange(ctx, l, "renew", sent, func(s broken.Node) ([]driver.Renewal, error) {
		answers := make([]driver.Renewal, len(rs))
		s.Renew(context.Background(), sent, func(i int, a driver.Renewal) { answers[i] = a })
		return answers, nil
	})
	for i := range rs {
		if err != nil {
			done(i, driver.Renewal{Err: err})
		} else {
			done(i, answers[i])
		}
	}
}

// Release sends the request.
func (l *link) Release(ctx context.Context, r driver.ReleaseRequest) error {
	return l.Withdraw(ctx, voting.WithdrawRequest{ReleaseRequest: r})
}

// Withdraw sends the request.
func (l *link) Withdraw(ctx context.Context, r voting.WithdrawRequest) error {
	_, err := exchange(ctx, l, "release", r, func(s broken.Node) (any, error) { return nil, s.Withdraw(context.Background(), r) })
	return err
}

// Inspect asks the node.
func (l *link) Inspect(ctx context.Context, key string) (driver.Info, error) {
	return exchange(ctx, l, "inspect", nil, func(s broken.Node) (driver.Info, error) { return s.Inspect(context.Background(), key) })
}

// Record asks the node.
func (l *link) Record(ctx context.Context) (voting.Record, error) {
	return exchange(ctx, l, "record", nil, func(s broken.Node) (voting.Record, error) { return s.Record(context.Background()) })
}

// Admit asks the node.
func (l *link) Admit(ctx context.Context, r voting.Record, maxTTL time.Duration) error {
	_, err := exchange(ctx, l, "admit", nil, func(s broken.Node) (any, error) { return nil, s.Admit(context.Background(), r, maxTTL) })
	return err
}

// tell has the network carry a message of the store's, which do takes.
func (l *link) tell(do func()) {
	l.carry(l.fate(), CutIn, func(bool) {
		if !l.cut(CutIn) && l.p.awake() == nil {
			do()
		}
	})
}

// Watch has messages come until ctx ends: the node's hints, and a lone store's for no reason.
func (l *link) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	in, err := exchange(ctx, l, "watch", c, func(s broken.Node) (<-chan driver.Hint, error) { return s.Watch(ctx, c) })
	if err != nil {
		return nil, err
	}
	hints := make(chan driver.Hint, 1)
	go func() {
		for {
			var h driver.Hint
			var spurious <-chan time.Time
			if every := l.p.c.w.network().Hints; every > 0 {
				spurious = time.After(every)
			}
			select {
			case h = <-in:
			case <-spurious:
			case <-ctx.Done():
				return
			}
			l.n.arrive(func(err error) {
				if err == nil {
					l.tell(func() {
						l.p.c.w.trace.add("    %v %s hears of %+v", l.p, c.Owner, h.Handover)
						h.Send(hints)
					})
				}
			})
		}
	}()
	return hints, nil
}

// Classify classifies a broken link as Unreachable.
func (l *link) Classify(err error) driver.Class {
	if errors.Is(err, errReset) || errors.Is(err, errRefused) || errors.Is(err, errDead) {
		return driver.ClassUnreachable
	}
	return l.n.store.Classify(err)
}

// Close does nothing: the node is not the client's.
func (l *link) Close() error { return nil }

var _ broken.Node = (*link)(nil)

// eager is a link that starts requests without a goroutine of the caller's, and
// also reports answers that arrive after their caller gave up.
type eager struct{ broken.Node }

// answersBy bounds how long an answer is waited for.
const answersBy = 2 * time.Second

// StartVote begins a Vote.
func (l eager) StartVote(ctx context.Context, r voting.VoteRequest, done func(driver.Result, error)) {
	l.start(ctx, func(ctx context.Context) { done(l.Vote(ctx, r)) })
}

// StartWithdraw begins a Withdraw.
func (l eager) StartWithdraw(ctx context.Context, r voting.WithdrawRequest, done func(error)) {
	l.start(ctx, func(ctx context.Context) { done(l.Withdraw(ctx, r)) })
}

func (l eager) start(ctx context.Context, call func(ctx context.Context)) {
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answersBy)
		defer cancel()
		call(ctx)
	}()
}

var _ quorum.Async = eager{}
