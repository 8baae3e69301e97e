// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/doctor"
	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/quorum"
)

// ask asks all servers about their votes, and themselves.
func (x *examination) ask() (votes []doctor.Vote, facts []doctor.Facts) {
	ctx, cancel := x.within(base.AskLimit)
	defer cancel()
	facts = make([]doctor.Facts, len(x.servers))
	var wg sync.WaitGroup
	for i, s := range x.servers {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, lookLimit)
			defer cancel()
			facts[i] = s.Look(ctx)
		})
	}
	votes = x.votes(ctx)
	wg.Wait()
	return votes, facts
}

// voters are several servers that vote.
type voters interface {
	Nodes(ctx context.Context) []quorum.NodeState
	Refusals(ctx context.Context) []error
}

// votes asks every server about its vote. It begins the wait for those that are
// held back, and admits those that have waited long enough.
func (x *examination) votes(ctx context.Context) []doctor.Vote {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	if q, ok := x.l.Store.Driver.(voters); ok {
		var votes []doctor.Vote
		var refusals []error
		var wg sync.WaitGroup
		wg.Go(func() { refusals = q.Refusals(ctx) })
		for _, s := range q.Nodes(ctx) {
			votes = append(votes, doctor.Vote{Err: s.Err, Record: true, Voting: s.Voting, Left: s.Left, MaxTTL: s.MaxTTL, Run: s.Node})
		}
		wg.Wait()
		for i, err := range refusals {
			votes[i].Refuses = err
		}
		return votes
	}
	most := x.l.Traits().MaxTTL
	n, ok := x.l.Store.Driver.(voting.Recorded)
	if !ok || most == 0 {
		return slices.Repeat([]doctor.Vote{{Voting: true}}, len(x.servers))
	}
	rec, err := n.Record(ctx)
	v := doctor.Vote{Err: err, Record: true, Voting: rec.Voting, MaxTTL: rec.MaxTTL, Run: rec.Run}
	if err == nil && !rec.Voting {
		dir, _ := store.StateDir() // x.state says why not
		err = admission.New(dir, nil).Admit(ctx, n, rec, most, most)
		if held := (*admission.HeldBack)(nil); errors.As(err, &held) {
			v.Left, err = held.Left, nil
		} else if err == nil { // its wait was over
			v.Voting, v.MaxTTL = true, most
		}
		v.Err = err
	}
	return []doctor.Vote{v}
}

// duplicates returns, by number, the names of servers that an earlier one is, too.
func (x *examination) duplicates(votes []doctor.Vote, facts []doctor.Facts) map[int]string {
	duplicates, seen := map[int]string{}, map[string]string{}
	for i, s := range x.servers {
		for _, id := range []string{votes[i].Run, facts[i].Info["run_id"]} {
			if first := seen[id]; id != "" && first != "" && first != s.Name {
				duplicates[i] = first
			} else if id != "" {
				seen[id] = s.Name
			}
		}
	}
	return duplicates
}
