// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/fault"
	"github.com/hasplock/hasp/memdriver"
)

// The suite passes for an engine behind decorators.
func TestDecorators(t *testing.T) {
	for name, s := range map[string]fault.Script{
		"none":  nil,
		"twice": func(fault.Call) fault.Fault { return fault.Fault{Twice: true} },
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Harness{Fake: true, New: func(testing.TB) drivertest.Store {
				store := memdriver.New()
				return drivertest.Store{Open: func() driver.Driver { return fault.NewNode(store, s) }}
			}})
		})
	}
}

// A node behind a decorator that hides it is admitted by the harness.
func TestHiddenNode(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Fake: true, New: func(testing.TB) drivertest.Store {
		store := memdriver.NewNode(memdriver.NodeOptions{MaxTTL: time.Hour})
		votes(store)
		return drivertest.Store{Open: func() driver.Driver { return fault.New(store, nil) }}
	}})
}

// Each broken engine fails the cases that must find it, and for each case there is one
// that fails it: the suite can fail.
func TestBrokenEnginesAreFound(t *testing.T) {
	cases := make(map[string]drivertest.Case)
	finds := make(map[string]int)
	for _, c := range drivertest.Cases() {
		cases[c.Name] = c
	}
	for _, b := range brokenEngines() {
		t.Run(b.name, func(t *testing.T) {
			for _, name := range strings.Fields(b.cases) {
				c, ok := cases[name]
				if !ok {
					t.Errorf("there is no case %s", name)
					continue
				}
				r := record(t, c, b.harness())
				switch log := r.log.String(); {
				case !r.failed:
					t.Errorf("%s did not find it: %s", name, log)
				case !strings.Contains(log, "the rule: "+c.Rule):
					t.Errorf("%s failed without its rule: %s", name, log)
				default:
					finds[name]++
				}
			}
		})
	}
	for name := range cases {
		if finds[name] == 0 {
			t.Errorf("no broken engine fails %s", name)
		}
	}
}

// A failing case that is a trace prints the step that did not hold.
func TestFailingTraceNamesItsStep(t *testing.T) {
	for _, b := range brokenReleases {
		if b.name != "release does nothing" {
			continue
		}
		if log := record(t, caseOf(t, "ReleaseFreesTheKey"), b.harness()).log.String(); !strings.Contains(log, `step 3 of the trace, "free"`) {
			t.Errorf("the step is missing: %s", log)
		}
		return
	}
	t.Error("there is no such engine")
}

// brokenEngine is a mistake that an engine may have, and the cases that must
// find it.
type brokenEngine struct {
	name  string
	cases string
	open  engine
}

func (b brokenEngine) harness() drivertest.Harness {
	return drivertest.Harness{New: func(testing.TB) drivertest.Store {
		s := memdriver.NewNode(memdriver.NodeOptions{MaxTTL: 10_000 * time.Hour})
		return drivertest.Store{
			Open:    b.open(s),
			Names:   func() []string { return []string{"lock:k", "lock:k:line"} },
			Restart: func() { s.Restart(nil) },
			Reload:  func() { s.Restart(s.Snapshot()) },
			Flush:   s.Flush,
			Persist: func(key string) bool { s.Persist(key); return true },
		}
	}}
}

func brokenEngines() []brokenEngine {
	var all []brokenEngine
	for _, part := range [][]brokenEngine{brokenHolds, brokenReleases, brokenRenewals, brokenQueues, brokenFences, brokenProposals, brokenNodes, brokenLooks,
		brokenShares, brokenConverts, brokenSlots, brokenMarks, brokenTellers, brokenWanted, brokenEnter, brokenSweepers} {
		all = append(all, part...)
	}
	return all
}

var brokenHolds = []brokenEngine{
	{"traits that change", "TraitsAreConstant", remembering(func(n *atomic.Int64) engine {
		return traits(func(t *driver.Traits) { t.MinTTL += time.Duration(n.Add(1)) })
	})},
	{"each client has locks of its own", "OneHolder OneHolderOfManyAtOnce LockWaitsItsTurn RandomMix LockAllInAnyOrder",
		func(*memdriver.Store) func() driver.Driver {
			return func() driver.Driver { return memdriver.New() }
		}},
	{"a grant that is not stored", "TryGrantsAFreeKey LockWaitsItsTurn", asking(func(_ context.Context, _ *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		return driver.Result{Granted: true, Fence: 1, TTL: r.TTL}, nil
	})},
	{"the holder is refused when it asks again", "TryAgainIsTheSameGrant LostRepliesDoNoHarm",
		asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
			if info := looked(s, r.Key); info.Holder.Owner == r.Owner && !handedOff(info) {
				return driver.Result{Holder: info.Holder, Left: info.Left}, nil
			}
			return s.Vote(ctx, r)
		})},
	{"a timeout is reported as not sent", "NotSentIsTrue", asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if _, ok := ctx.Deadline(); ok && err == nil {
			return driver.Result{}, driver.NotSent(context.DeadlineExceeded)
		}
		return res, err
	})},
	{"several fences are counted from the first", "FencesInARow KeptKeyGoesToWhoWaits", asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		n := r.Fences
		r.Fences = 0
		res, err := s.Vote(ctx, r)
		res.Fences = n
		return res, err
	})},
	{"the holder gets a new fence when it asks again", "TryAgainIsTheSameGrant OneOwnerAskingAtOnce", remembering(func(n *atomic.Uint64) engine {
		return reply(func(_ *memdriver.Store, _ voting.VoteRequest, res *driver.Result) { res.Fence += n.Add(1) })
	})},
	{"the holder that asks again joins the queue", "TryAgainIsTheSameGrant DuplicatedRequestsDoNothing",
		asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
			if r.Queue && looked(s, r.Key).Holder.Owner == r.Owner {
				other := r
				other.Owner = another
				_, _ = s.Vote(ctx, other)
			}
			return s.Vote(ctx, r)
		})},
	{"the expiry is replaced", "TryNeverShortens RenewNeverShortens", one(replacesTheExpiry(false))},
	{"the expiry is replaced, and not known", "TryNeverShortens RenewNeverShortens", one(replacesTheExpiry(true))},
	{"asking again does not prolong", "TryProlongs", reask(func(s *memdriver.Store, r *voting.VoteRequest) {
		if looked(s, r.Key).Holder.Owner == r.Owner {
			r.TTL = 1
		}
	})},
	{"every refused owner joins the queue", "RefusalLeavesNoTrace", reask(func(_ *memdriver.Store, r *voting.VoteRequest) { r.Queue = true })},
	{"seconds instead of milliseconds", "LeaseEnds MinTTL VanishedHolderDelaysForItsTTL DeadReaderDelaysForItsTTL", asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		r.TTL *= 1000
		res, err := s.Vote(ctx, r)
		res.TTL /= 1000
		return res, err
	})},
	{"leases end before their TTL", "LeaseEnds RandomMix LossIsKnownBeforeTheNextGrant LockOutlivesAShortOutage LossOfAReaderIsKnownBeforeTheWriter",
		one(func(s *memdriver.Store, p *patched) {
			p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
				r.TTL = max(r.TTL/2, 1)
				res, err := s.Vote(ctx, r)
				res.TTL *= 2
				return res, err
			}
			p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
				r.TTL /= 2
				a := renewOne(ctx, s, r)
				a.TTL *= 2
				return a
			}
		})},
	{"a TTL of 0 means the default", "TTLMustBePositive", reask(func(_ *memdriver.Store, r *voting.VoteRequest) {
		if r.TTL <= 0 {
			r.TTL = time.Minute
		}
	})},
	{"shared means exclusive", "SharedIsRefused", one(func(s *memdriver.Store, p *patched) {
		p.traits = func(t driver.Traits) driver.Traits {
			t.Shared, t.Slots = false, false
			return t
		}
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			r.Mode = driver.Exclusive
			return s.Vote(ctx, r)
		}
	})},
	{"leases belong to the connection", "OwnerIsNotTheConnection AdoptedLeaseGoesOn", each(func(s *memdriver.Store, p *patched) {
		var mine memo[string, bool]
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			mine.set(r.Owner, true)
			return s.Vote(ctx, r)
		}
		p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
			if !mine.get(r.Owner) {
				return driver.Renewal{Err: driver.ErrNotHeld}
			}
			return renewOne(ctx, s, r)
		}
	})},
	{"contexts are ignored", "EndedContext", asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		return s.Vote(context.WithoutCancel(ctx), r)
	})},
	{"an ended context is a wrong password", "CancelledTryIsCleanedUp", asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		if ctx.Err() != nil {
			return driver.Result{}, driver.ErrUnsupported
		}
		return s.Vote(ctx, r)
	})},
	{"keys end at a NUL", "HostileKeys", reask(func(_ *memdriver.Store, r *voting.VoteRequest) { r.Key, _, _ = strings.Cut(r.Key, "\x00") })},
	{"keys that are refused", "HostileKeys", asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		if strings.Contains(r.Key, "%") {
			return driver.Result{}, errors.New("unknown verb")
		}
		return s.Vote(ctx, r)
	})},
	{"labels are converted to valid text", "HostileLabels", reask(func(_ *memdriver.Store, r *voting.VoteRequest) { r.Label = strings.ToValidUTF8(r.Label, "?") })},
	{"a watch that leaves a goroutine", "NoGoroutineStays", one(func(s *memdriver.Store, p *patched) {
		p.watch = func(ctx context.Context, r driver.Claim) (<-chan driver.Hint, error) {
			go time.Sleep(time.Hour)
			return s.Watch(ctx, r)
		}
	})},
}

// replacesTheExpiry has the latest request decide when a lease ends.
func replacesTheExpiry(vague bool) func(*memdriver.Store, *patched) {
	return func(s *memdriver.Store, p *patched) {
		var until memo[string, time.Time]
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if res.Granted {
				until.set(r.Key, time.Now().Add(r.TTL))
				res.TTL = r.TTL
			}
			return res, err
		}
		p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
			until.set(r.Key, time.Now().Add(r.TTL))
			return renewOne(ctx, s, r)
		}
		p.inspect = func(ctx context.Context, key string) (driver.Info, error) {
			left := time.Until(until.get(key))
			if left <= 0 {
				s.Lose(key)
			}
			info, err := s.Inspect(ctx, key)
			if vague {
				return vaguely(info), err
			}
			info.Left = left
			for i := range info.Holders {
				info.Holders[i].Left = left
			}
			return info, err
		}
	}
}

// memClaim is how long memdriver keeps a key for a waiter that it was handed to.
const memClaim = 500 * time.Millisecond

// handedOff reports whether a key waits for its claim: in memory for no longer than
// memClaim.
func handedOff(info driver.Info) bool { return info.Held && info.Left <= memClaim }

var brokenReleases = []brokenEngine{
	{"release deletes without comparing", "ReleaseIsTheOwnersAlone ReleaseTwice LateReleaseSparesTheSuccessor",
		rewithdraw(func(s *memdriver.Store, r *voting.WithdrawRequest) {
			if info := looked(s, r.Key); info.Held {
				r.Claim = as(r.Claim, info.Holder)
			}
		})},
	{"release does not compare the label", "ReleaseComparesTheLabel", rewithdraw(func(s *memdriver.Store, r *voting.WithdrawRequest) {
		if info := looked(s, r.Key); info.Holder.Owner == r.Owner {
			r.Claim = as(r.Claim, info.Holder)
		}
	})},
	{"release never says that nothing was held", "ReleaseIsTheOwnersAlone ReleaseTwice LateReleaseSparesTheSuccessor",
		withdrawing(func(ctx context.Context, s *memdriver.Store, r voting.WithdrawRequest) error {
			if err := s.Withdraw(ctx, r); !errors.Is(err, driver.ErrNotHeld) {
				return err
			}
			return nil
		})},
	{"release does nothing", "ReleaseFreesTheKey LockWaitsItsTurn CancelAtAnyMoment ReleaseNeedsNoContext ClientCloseLeavesNothing",
		withdrawing(func(_ context.Context, _ *memdriver.Store, _ voting.WithdrawRequest) error { return nil })},
	{"a released owner is forgotten", "TryAfterReleaseIsRefused CancelledTryIsCleanedUp", asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if !res.Granted && !looked(s, r.Key).Held {
			r.Owner = another // as if it were new
			return s.Vote(ctx, r)
		}
		return res, err
	})},
	{"a released owner is forgotten after its TTL", "TryLongAfterReleaseIsRefused", one(func(s *memdriver.Store, p *patched) {
		var forgets memo[driver.ID, time.Time]
		p.release = func(ctx context.Context, r voting.WithdrawRequest) error {
			forgets.set(r.ID(), time.Now().Add(r.TTL))
			return s.Withdraw(ctx, r)
		}
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			if at := forgets.get(r.ID()); !at.IsZero() && time.Now().After(at) {
				r.Owner = another // as if it were new
			}
			return s.Vote(ctx, r)
		}
	})},
	{"a released owner may take a place", "TryAfterReleaseIsRefused", asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if r.Queue && !res.Granted && looked(s, r.Key).Waiters == 0 {
			r.Owner = another
			return s.Vote(ctx, r)
		}
		return res, err
	})},
	{"release leaves a place in the queue", "ReleaseLeavesTheQueue CancelledLockLeavesNothing WriterThatLeavesLetsReadersIn", withdrawing(func(ctx context.Context, s *memdriver.Store, r voting.WithdrawRequest) error {
		if info := looked(s, r.Key); info.Held && info.Holder.Owner != r.Owner && info.Waiters > 0 {
			return nil
		}
		return s.Withdraw(ctx, r)
	})},
	{"a key that was handed off cannot be released", "ReleaseOfAHandedOffKeyHandsItOn GivingUpRacesWithRelease HintAfterAPlaceWasGivenUp ReleaseOfHandedOffSharesHandsThemOn",
		withdrawing(func(ctx context.Context, s *memdriver.Store, r voting.WithdrawRequest) error {
			if info := looked(s, r.Key); info.Holder.Owner == r.Owner && handedOff(info) {
				return driver.ErrNotHeld
			}
			return s.Withdraw(ctx, r)
		})},
	{"settled releases do nothing", "SettledReleaseIsARelease", withdrawing(func(ctx context.Context, s *memdriver.Store, r voting.WithdrawRequest) error {
		if r.Settled {
			return nil
		}
		return s.Withdraw(ctx, r)
	})},
	{"settled releases are remembered", "SettledOwnerMayAskAgain", rewithdraw(func(_ *memdriver.Store, r *voting.WithdrawRequest) { r.Settled = false })},
	{"release leaves a counter for each key", "NothingStays", rewithdraw(func(s *memdriver.Store, r *voting.WithdrawRequest) {
		s.Hold("fence:"+r.Key, 1000*time.Hour, driver.Label{})
	})},
	{"close releases all locks", "CloseEndsWhatTheDriverOpened", one(func(s *memdriver.Store, p *patched) {
		p.close = func() error { s.Lose("k"); return nil }
	})},
}

var brokenRenewals = []brokenEngine{
	{"renewals that do nothing", "RenewProlongs LockOutlivesManyTTLs ReleaseNeedsNoContext AdoptedLeaseGoesOn ReadersOutliveManyTTLs",
		renewing(func(ctx context.Context, s *memdriver.Store, r driver.RenewRequest) driver.Renewal {
			ttl := r.TTL
			if r.TTL = 1; r.Queue {
				return renewOne(ctx, s, r)
			}
			a := renewOne(ctx, s, r)
			a.TTL = ttl
			return a
		})},
	{"renewal of a free key grants it", "RenewNeverGrants RenewNeverRevives", renewing(func(ctx context.Context, s *memdriver.Store, r driver.RenewRequest) driver.Renewal {
		a := renewOne(ctx, s, r)
		if a.Err != nil && !looked(s, r.Key).Held {
			r.Owner = rand.Text()
			res, _ := s.Try(ctx, driver.TryRequest{Claim: r.Claim, TTL: r.TTL})
			return driver.Renewal{TTL: res.TTL}
		}
		return a
	})},
	{"a client's leases live as long as one of them", "RenewNamesItsLeases", each(func(s *memdriver.Store, p *patched) {
		var mine memo[string, driver.TryRequest]
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if res.Granted {
				mine.set(r.Owner, r.TryRequest)
			}
			return res, err
		}
		p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
			mine.each(func(o driver.TryRequest) { _ = renewOne(ctx, s, driver.RenewRequest{Claim: o.Claim, TTL: o.TTL}) })
			return renewOne(ctx, s, r)
		}
	})},
	{"a client's places live as long as one of its leases", "RenewNamesItsLeases", each(func(s *memdriver.Store, p *patched) {
		var mine memo[string, driver.TryRequest]
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			if r.Queue {
				mine.set(r.Owner, r.TryRequest)
			}
			return s.Vote(ctx, r)
		}
		p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
			mine.each(func(o driver.TryRequest) { _, _ = s.Try(ctx, o) })
			return renewOne(ctx, s, r)
		}
	})},
	{"renewal prolongs anybody's lease", "RenewNeverRevives RenewReportsEach", prolong(func(s *memdriver.Store, r *driver.RenewRequest) {
		if info := looked(s, r.Key); info.Held && !r.Queue {
			r.Claim = as(r.Claim, info.Holder)
		}
	})},
	{"one that is not held fails the whole batch", "RenewReportsEach", one(func(s *memdriver.Store, p *patched) {
		p.batch = func(rs []driver.RenewRequest, answers []driver.Renewal) int {
			for _, a := range answers {
				if a.Err != nil {
					for i := range answers {
						answers[i] = a
					}
					break
				}
			}
			return len(rs)
		}
	})},
	{"one answer too many", "RenewOfNothing", one(func(s *memdriver.Store, p *patched) {
		p.batch = func(rs []driver.RenewRequest, _ []driver.Renewal) int { return len(rs) + 1 }
	})},
	{"only the first 500 are renewed", "RenewOfMany", one(func(s *memdriver.Store, p *patched) {
		p.batch = func(rs []driver.RenewRequest, _ []driver.Renewal) int { return min(len(rs), 500) }
	})},
	{"renewals do not report waiters", "RenewSaysThatSomebodyWaits WantedComesWithARenewal KeptKeyGoesToWhoWaits", renewing(func(ctx context.Context, s *memdriver.Store, r driver.RenewRequest) driver.Renewal {
		r.Wanted = nil // nor is the holder told
		a := renewOne(ctx, s, r)
		a.Wanted = false
		return a
	})},
	{"a handed-off place is still a place", "HandedOffPlaceIsNoPlace HandedOffReaderIsNoPlace", prolonged(func(_ *memdriver.Store, r driver.RenewRequest, a *driver.Renewal) {
		if r.Queue {
			a.Err = nil
		}
	})},
	{"a sign of life by Renew is ignored", "RenewKeepsThePlace", prolong(func(_ *memdriver.Store, r *driver.RenewRequest) { r.Patience = 1 })},
	{"an owner that becomes first does not learn when to ask", "WhoBecomesFirstKnowsWhenToAsk", prolonged(func(_ *memdriver.Store, _ driver.RenewRequest, a *driver.Renewal) { a.RetryIn = 0 })},
}
