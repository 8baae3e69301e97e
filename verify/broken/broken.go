// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package broken has each safeguard that locks rely on, removed: what a store, or a client of it, would do without.
// Every proving ground takes them from here, and each needs a schedule in which it notices.
package broken

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/fault"
)

// Node is a store that can be a node of a quorum.
type Node interface {
	voting.Node
	voting.Recorded
}

// Fault removes a safeguard.
type Fault func(*store)

// store has the functions that faults replace. A Try is a vote, a Release a withdrawal.
type store struct {
	driver.Driver
	vote     func(ctx context.Context, r voting.VoteRequest) (driver.Result, error)
	renew    func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal))
	withdraw func(ctx context.Context, r voting.WithdrawRequest) error
	watch    func(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error)
	inspect  func(ctx context.Context, key string) (driver.Info, error)
	record   func(ctx context.Context) (voting.Record, error)
	admit    func(ctx context.Context, r voting.Record, maxTTL time.Duration) error
}

// New returns a driver with faults. It is a node, even if d is none: then no fence is proposed to it, and it has no record. It is
// neither a driver.Teller nor a quorum.Async.
func New(d driver.Driver, faults ...Fault) Node {
	s := &store{
		Driver: d, renew: d.Renew, watch: d.Watch, inspect: d.Inspect,
		vote: func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			return d.Try(ctx, r.TryRequest)
		},
		withdraw: func(ctx context.Context, r voting.WithdrawRequest) error { return d.Release(ctx, r.ReleaseRequest) },
		record:   func(context.Context) (voting.Record, error) { return voting.Record{}, driver.ErrUnsupported },
		admit:    func(context.Context, voting.Record, time.Duration) error { return driver.ErrUnsupported },
	}
	if n, ok := d.(voting.Node); ok {
		s.vote, s.withdraw = n.Vote, n.Withdraw
	}
	if n, ok := d.(voting.Recorded); ok {
		s.record, s.admit = n.Record, n.Admit
	}
	All(faults...)(s)
	return s
}

// Around is New; without a fault it is d itself.
func Around(d driver.Driver, f Fault) driver.Driver {
	if f == nil {
		return d
	}
	return New(d, f)
}

// All is several faults at once; nil is none.
func All(faults ...Fault) Fault {
	return func(s *store) {
		for _, f := range faults {
			if f != nil {
				f(s)
			}
		}
	}
}

func (s *store) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	return s.vote(ctx, voting.VoteRequest{TryRequest: r})
}

func (s *store) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	return s.vote(ctx, r)
}

func (s *store) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	s.renew(ctx, rs, done)
}

func (s *store) Release(ctx context.Context, r driver.ReleaseRequest) error {
	return s.withdraw(ctx, voting.WithdrawRequest{ReleaseRequest: r})
}

func (s *store) Withdraw(ctx context.Context, r voting.WithdrawRequest) error {
	return s.withdraw(ctx, r)
}

func (s *store) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	return s.watch(ctx, c)
}

func (s *store) Inspect(ctx context.Context, key string) (driver.Info, error) {
	return s.inspect(ctx, key)
}

func (s *store) Record(ctx context.Context) (voting.Record, error) { return s.record(ctx) }

func (s *store) Admit(ctx context.Context, r voting.Record, maxTTL time.Duration) error {
	return s.admit(ctx, r, maxTTL)
}

// answer is that to a vote.
type answer struct {
	driver.Result
	err  error
	took time.Duration
}

// changing alters what a vote is asked, and its answer; nil leaves it as it is.
func changing(ask func(r *voting.VoteRequest), hear func(r voting.VoteRequest, a *answer)) Fault {
	return func(s *store) {
		vote := s.vote
		s.vote = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			if ask != nil {
				ask(&r)
			}
			sent := time.Now()
			res, err := vote(ctx, r)
			a := answer{res, err, time.Since(sent)}
			if hear != nil {
				hear(r, &a)
			}
			return a.Result, a.err
		}
	}
}

func asking(ask func(r *voting.VoteRequest)) Fault { return changing(ask, nil) }

func answering(hear func(r voting.VoteRequest, a *answer)) Fault { return changing(nil, hear) }

// renewing changes the answers to renewals; took is how long one took.
func renewing(hear func(r driver.RenewRequest, a *driver.Renewal, took time.Duration)) Fault {
	return func(s *store) {
		renew := s.renew
		s.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
			sent := time.Now()
			renew(ctx, rs, func(i int, a driver.Renewal) {
				hear(rs[i], &a, time.Since(sent))
				done(i, a)
			})
		}
	}
}

// withdrawing changes what a withdrawal asks; it may use s.
func withdrawing(ask func(ctx context.Context, s *store, r *voting.WithdrawRequest)) Fault {
	return func(s *store) {
		withdraw := s.withdraw
		s.withdraw = func(ctx context.Context, r voting.WithdrawRequest) error {
			ask(ctx, s, &r)
			return withdraw(ctx, r)
		}
	}
}

// Of votes.
var (
	// SilenceCounts counts a node that does not answer as a vote.
	SilenceCounts = answering(func(r voting.VoteRequest, a *answer) {
		if a.err != nil {
			*a = answer{Result: driver.Result{Granted: true, Fence: r.Proposal, TTL: r.TTL}}
		}
	})
	// ReadersIgnoreMode and WritersIgnoreMode grant the requests of one mode even if the key is held in the other.
	ReadersIgnoreMode = ignoreMode(driver.Shared)
	WritersIgnoreMode = ignoreMode(driver.Exclusive)
	// EverybodyShares asks for every key as a reader does.
	EverybodyShares = asking(func(r *voting.VoteRequest) { r.Mode, r.Convert, r.Fence = driver.Shared, false, 0 })
	// OneMore asks with a larger limit.
	OneMore = asking(func(r *voting.VoteRequest) {
		if r.Limit > 0 {
			r.Limit++
		}
	})
	// OneSlot gives all the same slot.
	OneSlot = answering(func(_ voting.VoteRequest, a *answer) { a.Slot = 0 })
	// DeathsHidden never says with a grant that the key is abandoned, and DeathsMadeUp always does.
	DeathsHidden = answering(func(_ voting.VoteRequest, a *answer) { a.Abandoned = false })
	DeathsMadeUp = answering(func(_ voting.VoteRequest, a *answer) { a.Abandoned = true })
	// NoNewest does not say, with a refusal, which fence is the newest.
	NoNewest = answering(func(_ voting.VoteRequest, a *answer) {
		if !a.Granted {
			a.Fence = 0
		}
	})
	// NoRetry does not say when to ask again without a hint.
	NoRetry = answering(func(_ voting.VoteRequest, a *answer) { a.RetryIn = 0 })
	// NeverSent says of every error that the request was not sent.
	NeverSent = answering(func(_ voting.VoteRequest, a *answer) { a.err = driver.NotSent(a.err) })
)

func ignoreMode(of driver.Mode) Fault {
	return answering(func(r voting.VoteRequest, a *answer) {
		if a.err == nil && !a.Granted && a.Why == driver.WhyHeld && r.Mode == of && !r.Convert && a.Holder.Mode != of {
			a.Result = driver.Result{Granted: true, Fence: r.Proposal, TTL: r.TTL, Run: a.Run}
		}
	})
}

// NewOwners asks with a new owner each time.
func NewOwners(s *store) {
	vote := s.vote
	s.vote = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
		if ctx.Err() == nil {
			r.Owner = rand.Text()
		}
		return vote(ctx, r)
	}
}

// AnyFence grants any fence that is proposed.
var AnyFence = LowFences(func(voting.VoteRequest) bool { return true })

// LowFences grants the proposals that which selects, though their fences are too low: it asks with a larger one, and hides that.
func LowFences(which func(r voting.VoteRequest) bool) Fault {
	return func(s *store) {
		vote := s.vote
		s.vote = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			res, err := vote(ctx, r)
			if err != nil || res.Granted || res.Why != voting.FenceTooLow || !which(r) {
				return res, err
			}
			want := r.Proposal
			r.Proposal, r.Restore, r.Raise = res.Fence+1, false, false
			if res, err = vote(ctx, r); res.Granted {
				res.Fence, res.Fences = want, max(r.Fences, 1)
			}
			return res, err
		}
	}
}

// FallingFences has fences fall that rise.
func FallingFences(s *store) {
	changing(func(r *voting.VoteRequest) { r.Fence = mirror(r.Fence) }, func(_ voting.VoteRequest, a *answer) { a.Fence = mirror(a.Fence) })(s)
	fencesOfRenewals(s, mirror)
}

// mirror makes a rising fence fall; mirrored again it is what it was.
func mirror(fence uint64) uint64 {
	if fence == 0 {
		return 0
	}
	return 1<<62 - fence
}

// Ahead gives a client a wall clock that is ahead by so much: it shows in the client's fences alone.
func Ahead(by func() time.Duration) Fault {
	return func(s *store) {
		vote, withdraw, inspect := s.vote, s.withdraw, s.inspect
		s.vote = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			by := by()
			r.Proposal, r.Fence = Shift(r.Proposal, by), Shift(r.Fence, by)
			res, err := vote(ctx, r)
			res.Fence = Shift(res.Fence, -by)
			return res, err
		}
		fencesOfRenewals(s, func(fence uint64) uint64 { return Shift(fence, by()) })
		s.withdraw = func(ctx context.Context, r voting.WithdrawRequest) error {
			r.UpTo = Shift(r.UpTo, by())
			return withdraw(ctx, r)
		}
		s.inspect = func(ctx context.Context, key string) (driver.Info, error) {
			info, err := inspect(ctx, key)
			info.Fence = Shift(info.Fence, -by())
			return info, err
		}
	}
}

// Shift adds a time to a fence that is not 0.
func Shift(fence uint64, by time.Duration) uint64 {
	if fence == 0 {
		return 0
	}
	return uint64(max(int64(fence)+by.Microseconds(), 1))
}

// fencesOfRenewals changes the fences that renewals name.
func fencesOfRenewals(s *store, to func(uint64) uint64) {
	renew := s.renew
	s.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
		rs = slices.Clone(rs)
		for i := range rs {
			rs[i].Fence = to(rs[i].Fence)
		}
		renew(ctx, rs, done)
	}
}

// ForgetsFloor tells a floor and forgets it: after half a day without a grant the clock is what a proposal must be above, at
// each request anew.
func ForgetsFloor(s *store) {
	var last atomic.Int64 // when it granted something
	vote := s.vote
	s.vote = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
		now := time.Now().UnixMicro()
		if at := last.Load(); at != 0 && now-at > (12*time.Hour).Microseconds() && r.Proposal <= uint64(now) {
			rec, err := s.record(ctx)
			return driver.Result{Why: voting.FenceTooLow, Fence: uint64(now), Run: rec.Run}, err
		}
		res, err := vote(ctx, r)
		if res.Granted {
			last.Store(now)
		}
		return res, err
	}
}

// Anonymous hides which store a node is.
func Anonymous(s *store) {
	answering(func(_ voting.VoteRequest, a *answer) { a.Run = "" })(s)
	record := s.record
	s.record = func(ctx context.Context) (voting.Record, error) {
		r, err := record(ctx)
		r.Run = ""
		return r, err
	}
}

// VotesAfter makes a node vote as soon as it was up for so long, whatever it lost. It was up for an hour before the first request.
func VotesAfter(uptime time.Duration) Fault {
	return func(s *store) {
		var mu sync.Mutex
		var last string // run of the node
		var since time.Time
		VotesOnce(func(run string) bool {
			mu.Lock()
			defer mu.Unlock()
			if run != last {
				if since = time.Now(); last == "" {
					since = since.Add(-time.Hour)
				}
				last = run
			}
			return time.Since(since) >= uptime
		})(s)
	}
}

// VotesOnce makes a node vote once it may in this run, whatever it lost.
func VotesOnce(may func(run string) bool) Fault {
	return func(s *store) {
		vote, record := s.vote, s.record
		s.record = func(ctx context.Context) (voting.Record, error) {
			rec, err := record(ctx)
			if err != nil || rec.Voting || !may(rec.Run) {
				return rec, err
			}
			if err := s.admit(ctx, rec, s.Traits().MaxTTL); err != nil {
				return rec, nil //nolint:nilerr // it does not vote yet
			}
			return record(ctx)
		}
		s.vote = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			res, err := vote(ctx, r)
			if err != nil || res.Granted || res.Why != voting.NotVoting {
				return res, err
			}
			if rec, err := s.record(ctx); err != nil || !rec.Voting {
				return res, nil //nolint:nilerr // the refusal stands
			}
			return vote(ctx, r)
		}
	}
}

// Of how long a lease lasts.
var (
	// NoDrift adds what is subtracted because clocks differ.
	NoDrift = answering(func(_ voting.VoteRequest, a *answer) {
		if a.Granted {
			a.TTL = (a.TTL + 2*time.Millisecond) * 100 / 99
		}
	})
	// LateTry counts a lease from the answer to the Try, and LateRenew from that to the Renew.
	LateTry = answering(func(_ voting.VoteRequest, a *answer) {
		if a.Granted {
			a.TTL += a.took
		}
	})
	LateRenew = renewing(func(_ driver.RenewRequest, a *driver.Renewal, took time.Duration) {
		if a.Err == nil {
			a.TTL += took
		}
	})
	// TooLong makes leases four times as long as the store keeps them.
	TooLong = All(answering(func(_ voting.VoteRequest, a *answer) { a.TTL *= 4 }),
		renewing(func(_ driver.RenewRequest, a *driver.Renewal, _ time.Duration) { a.TTL *= 4 }))
	// Outliving asks for leases that outlive their holders.
	Outliving = asking(func(r *voting.VoteRequest) { r.TTL = time.Hour })
	// LossOfSilence takes a renewal without an answer for a loss.
	LossOfSilence = renewing(func(_ driver.RenewRequest, a *driver.Renewal, _ time.Duration) {
		if a.Err != nil {
			a.Err = driver.ErrNotHeld
		}
	})
)

// AssumeRenewed counts a renewal without an answer as successful.
func AssumeRenewed(s *store) {
	renew := s.renew
	s.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		got := make([]atomic.Bool, len(rs))
		renew(ctx, rs, func(i int, a driver.Renewal) {
			if a.Err == nil || errors.Is(a.Err, driver.ErrNotHeld) {
				got[i].Store(true)
				done(i, a)
			}
		})
		for i, r := range rs {
			if !got[i].Load() {
				done(i, driver.Renewal{TTL: r.TTL})
			}
		}
	}
}

// Untold says of a renewal that was refused that it has no answer; nor is the driver a driver.Teller.
func Untold(s *store) {
	renew := s.renew
	s.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
		renew(ctx, rs, func(i int, a driver.Renewal) {
			if !errors.Is(a.Err, driver.ErrNotHeld) || rs[i].Queue {
				done(i, a)
			}
		})
	}
}

// RenewReleases releases what it says that it renews.
func RenewReleases(s *store) {
	s.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
		for i, r := range rs {
			_ = s.Release(ctx, driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL, Settled: true}) // that is its fault
			done(i, driver.Renewal{TTL: r.TTL})
		}
	}
}

// LateEnter counts the lease of a handover from when its message came.
func LateEnter(s *store) {
	var zero sync.Map // by owner: when the store's clock was 0, had it refused as soon as it was asked
	vote := s.vote
	s.vote = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
		sent := time.Now()
		res, err := vote(ctx, r)
		zero.Store(r.Owner, sent.Add(-res.At))
		return res, err
	}
	hinting(func(c driver.Claim, to *driver.Handover) {
		if at, seen := zero.Load(c.Owner); seen {
			to.At = time.Since(at.(time.Time))
		}
	})(s)
}

// EnterUntold hands a key to a waiter without saying that the key is abandoned.
var EnterUntold = hinting(func(_ driver.Claim, to *driver.Handover) { to.Abandoned = false })

// hinting changes the handovers that hints tell of.
func hinting(f func(c driver.Claim, to *driver.Handover)) Fault {
	return func(s *store) {
		watch := s.watch
		s.watch = func(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
			hints, err := watch(ctx, c)
			return fault.Relay(ctx, hints, func(h driver.Hint) (driver.Hint, bool) {
				if h.Handover.Fence != 0 {
					f(c, &h.Handover)
				}
				return h, true
			}), err
		}
	}
}

// Of releases.
var (
	// BlindRelease ends the lease of any holder of the key, and ReleaseAll the leases of all holders that share it.
	BlindRelease = withdrawing(func(ctx context.Context, s *store, r *voting.WithdrawRequest) {
		if info, err := s.Inspect(ctx, r.Key); err == nil && info.Held {
			r.Owner, r.Label, r.UpTo = info.Holder.Owner, info.Holder.Label, 0
		}
	})
	ReleaseAll = withdrawing(func(ctx context.Context, s *store, r *voting.WithdrawRequest) {
		if info, err := s.Inspect(ctx, r.Key); err == nil && info.Leases > 1 {
			for _, l := range info.Holders {
				_ = s.Driver.Release(ctx, driver.ReleaseRequest{Claim: driver.Claim{Key: r.Key, Owner: l.Holder.Owner, Label: l.Holder.Label}, TTL: r.TTL})
			}
		}
	})
	// AnyWithdrawn withdraws a vote whatever its fence.
	AnyWithdrawn = withdrawing(func(_ context.Context, _ *store, r *voting.WithdrawRequest) { r.UpTo = 0 })
	// NoTombstones does not remember released owners.
	NoTombstones = withdrawing(func(_ context.Context, _ *store, r *voting.WithdrawRequest) { r.Settled = true })
)

// NoRelease drops releases.
func NoRelease(s *store) {
	s.withdraw = func(context.Context, voting.WithdrawRequest) error { return nil }
}

// TrustRelease takes a release without an answer for a release that succeeded.
func TrustRelease(s *store) {
	withdraw := s.withdraw
	s.withdraw = func(ctx context.Context, r voting.WithdrawRequest) error {
		_ = withdraw(ctx, r) // that is its fault
		return nil
	}
}

// KeepVotes does not withdraw the votes of a failed attempt. Its first part is for the nodes of a client, the second, which
// knows what succeeded, for their quorum.
func KeepVotes() (node, whole Fault) {
	var granted sync.Map // by owner
	node = func(s *store) {
		withdraw := s.withdraw
		s.withdraw = func(ctx context.Context, r voting.WithdrawRequest) error {
			if _, ok := granted.Load(r.Owner); !ok {
				return nil
			}
			return withdraw(ctx, r)
		}
	}
	return node, answering(func(r voting.VoteRequest, a *answer) {
		if a.Granted {
			granted.Store(r.Owner, true)
		}
	})
}

// NoHints gives no hints.
func NoHints(s *store) {
	watch := s.watch
	s.watch = func(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
		if _, err := watch(ctx, c); err != nil {
			return nil, err
		}
		return make(chan driver.Hint), nil
	}
}

// SeesNothing lets a waiter see neither that the key is free nor that its place is lost.
func SeesNothing(s *store) {
	s.inspect = func(context.Context, string) (driver.Info, error) { return driver.Info{Held: true}, nil }
	renewing(func(r driver.RenewRequest, a *driver.Renewal, _ time.Duration) {
		if r.Queue {
			*a = driver.Renewal{}
		}
	})(s)
}

// LookLeaves leaves a place of a new owner, which never asks again, with each look at a key.
func LookLeaves(s *store) {
	inspect := s.inspect
	s.inspect = func(ctx context.Context, key string) (driver.Info, error) {
		const lasts = 2 * time.Minute
		if _, err := s.Try(ctx, driver.TryRequest{Claim: driver.Claim{Key: key, Owner: rand.Text(), Label: "left"}, TTL: lasts, Queue: true, Patience: lasts}); err != nil {
			return driver.Info{}, err
		}
		return inspect(ctx, key)
	}
}
