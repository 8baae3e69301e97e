// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/admission"
)

// Operations implements [operator.Driver].
func (d *Driver) Operations() operator.Operations { return operator.Operations{Admit: d.Admit} }

// Admit declares on behalf of the operator that no locks are active: every node that
// is held back votes from now on. It is for new deployments, and for a restart of
// everything after which no work is left. Where that is wrong, there can be two
// holders. The error names the nodes that could not be reached, and those that vote but refuse the fences of now.
func (d *Driver) Admit(ctx context.Context) error {
	if d.bad != nil {
		return d.bad
	}
	errs := make([]error, len(d.nodes))
	var wg sync.WaitGroup
	for i, n := range d.nodes {
		if n.rec == nil {
			continue
		}
		wg.Go(func() {
			if err := n.admitNow(ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", n.name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (n *node) admitNow(ctx context.Context) error {
	rec, err := n.rec.Record(ctx)
	switch {
	case errors.Is(err, driver.ErrUnsupported):
		return nil
	case err != nil:
		return err
	case !rec.Voting:
		if err := n.rec.Admit(ctx, rec, n.d.traits.MaxTTL); err != nil {
			return err
		}
	}
	return n.outOfStep(ctx)
}

// Refusals has each node grant a key that no other owner has, at once, within ctx. It returns, by node, why it grants none with a
// fence that a client would propose now; nil where it does, or does not vote, or fails, as Nodes says.
func (d *Driver) Refusals(ctx context.Context) []error {
	errs := make([]error, len(d.nodes))
	var wg sync.WaitGroup
	for i, n := range d.nodes {
		if n.drv != nil {
			wg.Go(func() { errs[i] = n.outOfStep(ctx) })
		}
	}
	wg.Wait()
	return errs
}

// outOfStep is why a node grants no fence of now, and nil when anything else is wrong with it.
func (n *node) outOfStep(ctx context.Context) error {
	if step, _ := n.propose(ctx); step != nil {
		return step
	}
	return nil
}

// NodeState is what a node says of itself.
type NodeState struct {
	Name   string
	Err    error         // it does not answer, or fails
	Voting bool          // it grants locks
	Left   time.Duration // of the wait, as far as this machine has waited; 0 when it votes
	MaxTTL time.Duration // the longest lease it was admitted for; 0 when it keeps no record
	Node   string        // names the present life of its store, when it keeps a record
	Queue  bool          // the queue of waiters is here
}

// Nodes asks every node about itself, at once, within ctx. It begins the wait for
// nodes that are held back, and admits nodes that have waited long enough.
func (d *Driver) Nodes(ctx context.Context) []NodeState {
	states := make([]NodeState, len(d.nodes))
	queue := d.queue.Load()
	var wg sync.WaitGroup
	for i, n := range d.nodes {
		wg.Go(func() {
			s := NodeState{Name: n.name, Queue: n == queue}
			s.look(ctx, n)
			states[i] = s
		})
	}
	wg.Wait()
	return states
}

func (s *NodeState) look(ctx context.Context, n *node) {
	if n.drv == nil {
		s.Err = n.d.bad
		return
	}
	if n.rec != nil {
		rec, err := n.rec.Record(ctx)
		if !errors.Is(err, driver.ErrUnsupported) {
			if err == nil {
				err = n.admission(ctx, rec)
				rec = n.latest()
			}
			if held := (*admission.HeldBack)(nil); errors.As(err, &held) {
				s.Left, err = held.Left, nil
			}
			s.Err, s.Voting, s.MaxTTL, s.Node = err, rec.Voting, rec.MaxTTL, rec.Run
			return
		}
	}
	_, s.Err = n.drv.Inspect(ctx, probeKey)
	s.Voting = s.Err == nil
}
