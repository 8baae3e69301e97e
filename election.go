// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/hasplock/hasp/internal/wait"
)

// observeEvery is how often Leaders asks the store.
const observeEvery = time.Second

// Election is a key whose holder leads. Candidates queue; the leader resigns by
// releasing its lease. Like a Mutex it is a handle without state, and a Mutex of
// the same key excludes the leader.
type Election struct{ l lock }

// Election returns the election of a key of 1 to 512 bytes. nil options mean the
// defaults; Cohort must be 0. An invalid key or option is reported on first use.
//
// With LockOptions.Lead the leader's contexts end that long before another can
// lead; with MaxHold a leader's term is bounded.
func (c *Client) Election(key string, o *LockOptions) *Election {
	return &Election{c.made().lock(key, o, Exclusive, 0).noTurns()}
}

// Lock campaigns: it waits until it leads, as Mutex.Lock does. The lease's contexts end
// before another can lead, and its fence is larger than that of each earlier
// leader. Release resigns.
func (e *Election) Lock(ctx context.Context) (*Lease, error) {
	return e.l.acquire(ctx, "lock", true)
}

// TryLock leads if there is no leader and no waiter, as Mutex.TryLock does.
func (e *Election) TryLock(ctx context.Context) (*Lease, error) {
	return e.l.acquire(ctx, "try lock", false)
}

// Lead waits until it leads, as Lock does, and runs f while it leads. f's context ends when ctx does,
// before another can lead, and when the client is closed; Lead resigns only after
// f has returned.
//
// If the lease was lost before f returned, or before it began, f's result is dropped
// (EventLost says why), and Lead waits again. Otherwise, and once ctx has ended, it returns
// f's error joined with that of the release. An error of Lock ends it, too.
func (e *Election) Lead(ctx context.Context, f func(ctx context.Context, lease *Lease) error) error {
	for {
		lost, err := e.l.do(ctx, "lock", f)
		if !lost || ctx.Err() != nil {
			return err
		}
	}
}

// Leader is the leader of an election, according to the store.
type Leader struct {
	Key    string
	Holder Holder // zero: there is no leader
	Fence  uint64 // of its lease; 0 when not known
}

// Leader returns the leader; ErrNotHeld when there is none. Holders that share the key
// do not lead. The answer may be out of date when it arrives: acting on it is safe
// only if you check the fence.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	leader, err := e.leader(ctx)
	if err == nil && leader.Holder == (Holder{}) {
		err = ErrNotHeld
	}
	return leader, e.l.c.fail("leader", e.l.key, err)
}

func (e *Election) leader(ctx context.Context) (Leader, error) {
	e.l.mustBeMade()
	mustHave(ctx)
	leader := Leader{Key: e.l.key}
	if e.l.err != nil {
		return leader, e.l.err
	}
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	info, err := e.l.c.inspect(ctx, e.l.key)
	if err == nil && info.Held && info.Holder.Mode == Exclusive {
		leader.Holder, leader.Fence = info.Holder, info.Fence
	}
	return leader, err
}

// Leaders yields the leader, at once and after each change, with the zero Holder
// when there is none. It asks the store every second, so a leader between two
// questions may be missed. After an error that Lock would ask again after, for however long, the sequence goes
// on; any other is its last element. It ends with ctx.
func (e *Election) Leaders(ctx context.Context) iter.Seq2[Leader, error] {
	e.l.mustBeMade()
	mustHave(ctx)
	return func(yield func(Leader, error) bool) {
		every := time.NewTicker(observeEvery)
		defer every.Stop()
		var last Leader // of no key: different from any
		for ctx.Err() == nil {
			leader, err := e.leader(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				again := e.l.err == nil && !errors.Is(err, ErrClosed) && e.l.c.trouble(err) != wait.Permanent
				if !yield(Leader{Key: e.l.key}, e.l.c.fail("leaders", e.l.key, err)) || !again {
					return
				}
			case leader.Key != last.Key || leader.Holder.Owner != last.Holder.Owner ||
				leader.Holder.Label != last.Holder.Label || leader.Fence != last.Fence:
				if last = leader; !yield(leader, nil) {
					return
				}
			}
			select {
			case <-every.C:
			case <-ctx.Done():
			case <-e.l.c.calls.Open.Done():
			}
		}
	}
}

func (e *Election) handle() *lock { return &e.l }
