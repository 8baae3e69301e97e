// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/verify/broken"
)

// link is the network between one client and one node. It implements the node's driver.
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
	out, in       time.Duration // the delay of each
	lost, noReply bool          // the request, or the answer, never arrives
	reset         time.Duration // the caller gets an error after so long; 0: never
	again         time.Duration // the request arrives again after so long; 0: it does not
}

func (l *link) fate() fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.p.c.w.network()
	f := fate{out: l.delay(w) + time.Duration(l.p.c.late.out.Load()), in: l.delay(w) + time.Duration(l.p.c.late.in.Load())}
	r := l.rng
	if r.Float64() < w.Late {
		f.out += rand64(r, w.LateBy)
	}
	f.lost, f.noReply = r.Float64() < w.Lost, r.Float64() < w.Lost
	if r.Float64() < w.Reset {
		f.reset = 1 + rand64(r, f.out+f.in)
	}
	if r.Float64() < w.Twice {
		f.again = f.out + 1 + rand64(r, 10*time.Millisecond)
		if r.IntN(4) == 0 {
			f.again += rand64(r, w.LateBy)
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

// answer is the answer of a node.
type answer[T any] struct {
	v   T
	err error
}

// exchange sends one request and waits for its answer. The request is delivered
// even if nobody waits for its answer any more. do must be able to run twice.
func exchange[T any](ctx context.Context, l *link, m message, do func(s broken.Node, r contend.Owner) (T, error)) (T, error) {
	var none T
	w := l.p.c.w
	if err := l.p.awake(); err != nil {
		return none, err
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if w.cut(Reject, l.p.c, l.n) {
		return none, errRefused
	}
	f := l.fate()
	w.trace.sent(l, m, f)
	got := make(chan answer[T], 2)
	carry := func(first bool) {
		l.n.arrive(func(err error) {
			var a answer[T]
			if a.err = err; err == nil {
				a.v, a.err = do(l.n.serves, m.r)
			}
			w.trace.message(l, m, a.v, a.err, first)
			if first && !f.noReply {
				w.after(f.in, func() {
					if !w.cut(CutIn, l.p.c, l.n) {
						got <- a
					}
				})
			}
		})
	}
	if !f.lost && !w.cut(CutOut, l.p.c, l.n) {
		w.after(f.out, func() { carry(true) })
	}
	if f.again > 0 && !w.cut(CutOut, l.p.c, l.n) {
		w.after(f.again, func() { carry(false) })
	}
	if f.reset > 0 {
		w.after(f.reset, func() { got <- answer[T]{err: errReset} })
	}
	var a answer[T]
	select {
	case a = <-got:
	case <-ctx.Done():
		a.err = ctx.Err()
	case <-l.p.ended:
		return none, errDead
	}
	if err := l.p.awake(); err != nil {
		return none, err
	}
	return a.v, a.err
}

// message describes a request for the trace.
type message struct {
	op string
	r  contend.Owner
}

// Vote sends the request.
func (l *link) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	return exchange(ctx, l, message{"try", contend.OfVote(r)}, func(s broken.Node, r contend.Owner) (driver.Result, error) {
		return s.Vote(context.Background(), r.Vote())
	})
}

// Renew reports once all answers have arrived.
func (l *link) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	answers, err := exchange(ctx, l, message{"renew", contend.OfRenewal(rs[0])}, func(s broken.Node, _ contend.Owner) ([]driver.Renewal, error) {
		answers := make([]driver.Renewal, len(rs))
		s.Renew(context.Background(), rs, func(i int, a driver.Renewal) { answers[i] = a })
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

// Withdraw sends the request.
func (l *link) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	_, err := exchange(ctx, l, message{"release", contend.OfWithdrawal(r)}, func(s broken.Node, r contend.Owner) (struct{}, error) {
		return struct{}{}, s.Withdraw(context.Background(), r.Withdrawal())
	})
	return err
}

// hints asks the node for hints.
func (l *link) hints(ctx context.Context, c driver.Claim) (<-chan struct{}, error) {
	return exchange(ctx, l, message{"watch", contend.Owner{Key: c.Key, Owner: c.Owner, Label: c.Label, Mode: c.Mode, Limit: c.Limit}}, func(s broken.Node, _ contend.Owner) (<-chan struct{}, error) {
		return s.Watch(ctx, c)
	})
}

// Watch forwards hints, late or not at all.
func (l *link) Watch(ctx context.Context, c driver.Claim) (<-chan struct{}, error) {
	in, err := l.hints(ctx, c)
	if err != nil {
		return nil, err
	}
	out := make(chan struct{}, 1)
	go func() {
		for {
			select {
			case <-in:
			case <-ctx.Done():
				return
			}
			f := l.fate()
			if f.noReply || l.p.c.w.cut(CutIn, l.p.c, l.n) {
				continue
			}
			l.p.c.w.after(f.in, func() {
				select {
				case out <- struct{}{}:
				default:
				}
			})
		}
	}()
	return out, nil
}

// Inspect asks the node.
func (l *link) Inspect(ctx context.Context, key string) (driver.Info, error) {
	return exchange(ctx, l, message{"inspect", contend.Owner{}}, func(s broken.Node, _ contend.Owner) (driver.Info, error) {
		return s.Inspect(context.Background(), key)
	})
}

// Record asks the node.
func (l *link) Record(ctx context.Context) (driver.Record, error) {
	return exchange(ctx, l, message{"record", contend.Owner{}}, func(s broken.Node, _ contend.Owner) (driver.Record, error) {
		return s.Record(context.Background())
	})
}

// Admit asks the node.
func (l *link) Admit(ctx context.Context, r driver.Record, maxTTL time.Duration) error {
	_, err := exchange(ctx, l, message{"admit", contend.Owner{}}, func(s broken.Node, _ contend.Owner) (struct{}, error) {
		return struct{}{}, s.Admit(context.Background(), r, maxTTL)
	})
	return err
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
func (l eager) StartVote(ctx context.Context, r driver.VoteRequest, done func(driver.Result, error)) {
	l.start(ctx, func(ctx context.Context) { done(l.Vote(ctx, r)) })
}

// StartWithdraw begins a Withdraw.
func (l eager) StartWithdraw(ctx context.Context, r driver.WithdrawRequest, done func(error)) {
	l.start(ctx, func(ctx context.Context) { done(l.Withdraw(ctx, r)) })
}

func (l eager) start(ctx context.Context, call func(ctx context.Context)) {
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answersBy)
		defer cancel()
		call(ctx)
	}()
}

var _ driver.Async = eager{}
