// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/backoff"
	"github.com/hasplock/hasp/internal/ballot"
)

const (
	// probeLimit is how long a probe may take, unless nodes may take longer.
	probeLimit = time.Second
	// sweepPause is between two looks for clean-ups that are over.
	sweepPause = 10 * time.Second
	// probeKey is what a node without a record is asked about.
	probeKey = "probe"
)

// probePause is between two probes of a node that fails them.
var probePause = backoff.Backoff{Least: 15 * time.Millisecond, Most: 300 * time.Millisecond}

var (
	errSilent  = errors.New("it does not answer")
	errRefuses = errors.New("it refuses a key that no other owner has")
)

// probeLimit bounds one probe: a probe that was lost on the way is sent again.
func (d *Driver) probeLimit() time.Duration { return max(probeLimit, d.o.NodeTimeout) }

// watchOver probes a node that is out of service until it is well: it answers,
// it votes, and has what was to be released there when it answered.
func (n *node) watchOver() {
	pause, swept := probePause, time.Now()
	for {
		err := n.probe()
		if n.d.life.Err() != nil {
			return
		}
		if err == nil && n.cleanUp() {
			n.measure()
			n.mu.Lock()
			n.out = nil
			late := len(n.cleanups.all) > 0 && !n.cleanups.working // came meanwhile
			n.cleanups.working = n.cleanups.working || late
			n.mu.Unlock()
			n.d.route()
			if late {
				n.d.spawn(n.cleanUpSoon)
			}
			return
		}
		if err == nil {
			err = errSilent
		}
		n.mu.Lock()
		n.out = err
		var over []cleanup
		if now := time.Now(); now.Sub(swept) > sweepPause { // however long it stays away
			over, swept = n.dropExpired(now), now
		}
		n.mu.Unlock()
		n.needless(over)
		if !pause.Wait(n.d.life.Done()) {
			return
		}
	}
}

// sleep waits for about d; it is false when Close came first.
func (d *Driver) sleep(pause time.Duration) bool {
	timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-d.life.Done():
		return false
	}
}

// probe asks the node once. nil: it answers, and votes.
func (n *node) probe() error {
	ctx, cancel := context.WithTimeout(n.d.life, n.d.probeLimit())
	defer cancel()
	if n.rec != nil {
		rec, err := n.rec.Record(ctx)
		switch {
		case err == nil:
			n.hears()
			return n.admission(ctx, rec)
		case !errors.Is(err, driver.ErrUnsupported):
			return n.silence(ctx, err)
		}
	}
	_, err := n.drv.Inspect(ctx, probeKey)
	if err != nil {
		return n.silence(ctx, err)
	}
	n.hears()
	return nil
}

// writePause is between two attempts to write at a node that refused a Try.
var writePause = backoff.Backoff{Least: 750 * time.Millisecond, Most: 6 * time.Second}

// refusedWrite notes that the node refused a Try with an error, and wrote that it wrote.
// Until it writes, it is asked to now and then: waiters for a held key alone
// would never find out.
func (n *node) refusedWrite() {
	if n.readOnly.Swap(true) {
		return
	}
	n.d.route()
	n.mu.Lock()
	idle := !n.retrying
	n.retrying = true
	n.mu.Unlock()
	if idle {
		n.d.spawn(n.retryWrite)
	}
}

func (n *node) wrote() {
	if n.readOnly.Swap(false) {
		n.d.route()
	}
}

func (n *node) retryWrite() {
	for pause := writePause; pause.Wait(n.d.life.Done()); {
		if n.readOnly.Load() && n.serving() && n.writes() {
			n.wrote()
		}
		n.mu.Lock()
		n.retrying = n.readOnly.Load()
		over := !n.retrying
		n.mu.Unlock()
		if over {
			return
		}
	}
}

// writes says whether the node grants a key of ours, with whatever fence.
func (n *node) writes() bool {
	ctx, cancel := context.WithTimeout(n.d.life, n.d.probeLimit())
	defer cancel()
	_, err := n.propose(ctx)
	return err == nil
}

// propose asks the node for a key of ours, and leaves nothing of it there. A node that forgot which fences it granted asks for a
// larger one, once; step describes a node that grants no fence near our clock.
func (n *node) propose(ctx context.Context) (step *outOfStep, err error) {
	c := driver.Claim{Key: probeKey + "/" + crand.Text(), Owner: crand.Text(), Label: "{}"}
	r := voting.VoteRequest{TryRequest: driver.TryRequest{Claim: c, TTL: n.d.traits.MinTTL}, Proposal: n.d.clock.next()}
	res, err := n.drv.Vote(ctx, r)
	if err == nil && res.Why == voting.FenceTooLow {
		if ballot.OutOfStep(&res, r.Proposal) {
			step = &outOfStep{r.Proposal, res.Fence}
		}
		r.Proposal = res.Fence + 1
		res, err = n.drv.Vote(ctx, r)
	}
	switch {
	case err != nil:
		return step, err
	case res.Why == voting.FenceTooLow:
		return &outOfStep{r.Proposal, res.Fence}, errRefuses
	case !res.Granted:
		return step, errRefuses
	}
	_ = n.drv.Release(ctx, driver.ReleaseRequest{Claim: c, TTL: r.TTL, Settled: true}) // else its TTL ends it
	return step, nil
}

// measure samples the round trip of a node that goes on after it hung, or did not
// vote: what the probe took says nothing.
func (n *node) measure() {
	ctx, cancel := context.WithTimeout(n.d.life, n.d.probeLimit())
	defer cancel()
	begun := n.d.now()
	if _, err := n.drv.Inspect(ctx, probeKey); err == nil {
		took := int64(n.d.now() - begun)
		n.trip.ns.Store(took)
		n.trip.usual.Store(took)
	}
}

// silence is what an error of a probe says.
func (n *node) silence(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errSilent
	}
	return err
}

// admission lets the node vote when its wait is over. nil: it votes.
func (n *node) admission(ctx context.Context, rec voting.Record) error {
	n.noted(rec)
	if rec.Voting {
		return nil
	}
	longest, err := n.d.agreed(n)
	if err != nil {
		return err
	}
	err = n.d.waits.Admit(ctx, n.rec, rec, n.d.traits.MaxTTL, longest)
	if err == nil {
		rec, err = n.rec.Record(ctx)
	}
	if held := (*admission.HeldBack)(nil); errors.As(err, &held) {
		n.mu.Lock()
		n.wait.left, n.wait.asOf = held.Left, time.Now()
		n.mu.Unlock()
		return err
	}
	if err != nil {
		return n.silence(ctx, err)
	}
	n.noted(rec)
	if !rec.Voting { // it forgot once more
		return &admission.HeldBack{}
	}
	return nil
}

func (n *node) noted(rec voting.Record) {
	n.lives(rec.Run)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.record = rec
}

// agreed returns the longest lease that a node that is about to be admitted may
// have forgotten: the largest TTL that this client and the nodes that vote
// allow. It is an error when a majority was admitted with another largest TTL than ours.
func (d *Driver) agreed(but *node) (time.Duration, error) {
	longest, other, named := d.traits.MaxTTL, 0, time.Duration(0)
	for _, n := range d.nodes {
		if n == but || n.rec == nil {
			continue
		}
		if n.serving() {
			n.introduce(longest)
		}
		if rec := n.latest(); rec.Voting {
			longest = max(longest, rec.MaxTTL)
			if rec.MaxTTL != d.traits.MaxTTL {
				other, named = other+1, rec.MaxTTL
			}
		}
	}
	if other >= d.need {
		return 0, fmt.Errorf("held back: the other nodes were admitted with a largest TTL of %v, and this client has %v: make them equal", named, d.traits.MaxTTL)
	}
	return longest, nil
}

// introduce asks the node for its record; ttl bounds how long it may take. Where it
// does not answer, its last record stands, and call has judged it.
func (n *node) introduce(ttl time.Duration) {
	_ = n.call(ttl, func(ctx context.Context) error {
		rec, err := n.rec.Record(ctx)
		if err == nil {
			n.noted(rec)
		}
		return err
	})
}

func (n *node) latest() voting.Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.record
}
