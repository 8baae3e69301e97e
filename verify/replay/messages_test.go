// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/verify/model"
)

// messages plays a story with requests to the nodes. The client is part of the test: it
// counts like quorum, by a majority of the latest round.
type messages struct {
	w      *world
	owners [2]asker
	timed  bool // it is about leases in time
}

// asker is one owner and its client.
type asker struct {
	req     contend.Owner
	rounds  [2]uint64 // proposals
	got     [nodes]driver.Result
	lease   *lease
	start   time.Time // of the attempt, or of the renewal
	until   time.Time // of the lease
	renewed [nodes]bool
	back    [nodes]bool // in the current renewal the vote was restored
	gone    bool
	waits   *admission.Waits
}

func newMessages(w *world) *messages {
	p := &messages{w: w}
	_, p.timed = w.story.Model.(model.Votes)
	for j := range p.owners {
		p.owners[j] = asker{
			req: contend.Owner{
				Key: key, Owner: strings.Repeat(string(rune('A'+j)), driver.OwnerLen), Label: "{}", TTL: w.ttl(j),
				Fences: int(w.fences().Block),
			},
			waits: admission.New("", nil),
		}
	}
	return p
}

// step carries out one step of an owner.
func (p *messages) step(j int, s model.Step) (leaves string) {
	o := &p.owners[j]
	switch s.Act {
	case model.Propose:
		o.rounds[0], o.start = p.w.fence(s.Value), time.Now()
		p.w.judge.begins(j)
	case model.Raise:
		o.rounds[1], o.got = p.w.fence(s.Value), [nodes]driver.Result{}
	case model.Try, model.TryAgain:
		return p.try(j, s)
	case model.Hold:
		return p.hold(j, s)
	case model.Restore:
		return p.restore(j, s)
	case model.Renewing:
		o.start, o.renewed, o.back = time.Now(), [nodes]bool{}, [nodes]bool{}
	case model.Renew:
		return p.renew(j, s)
	case model.Renewed:
		return p.confirm(j, s)
	case model.Release:
		o.gone = true
	case model.Released:
		err := p.w.seen[j][s.Node].Withdraw(context.Background(), o.req.Withdrawal())
		if why := answer(driver.Result{Granted: true}, err); why != "not held" {
			return why // the node had to know of the release before the Try
		}
	case model.Look, model.Admit:
		return p.admission(j, s)
	}
	return ""
}

func (p *messages) try(j int, s model.Step) (leaves string) {
	o, n, m := &p.owners[j], p.w.seen[j][s.Node], p.w.fences()
	r := o.req
	r.Fence, r.Raise = o.rounds[s.Value-1], s.Value == 2 && !m.NoRaise
	res, err := n.Vote(context.Background(), r.Vote())
	if p.timed && res.Why == driver.FenceTooLow { // these models have no fences: it asks again with a larger one, like quorum
		r.Fence = res.Fence + 1
		res, err = n.Vote(context.Background(), r.Vote())
	}
	if why := answer(res, err); why != "" {
		return why
	}
	if o.gone {
		p.w.judge.finds(lateTry)
	}
	if s.Act == model.Try && (s.Value == 2 || o.rounds[1] == 0) {
		o.got[s.Node] = res
	}
	if row := max(res.Fences, 1); row < min(r.Fences, int(r.Fence-p.w.base)) {
		return fmt.Sprintf("a row of %d", row)
	}
	return ""
}

// hold counts the votes of the latest round for one fence; in the models of
// leases they have one.
func (p *messages) hold(j int, s model.Step) (leaves string) {
	o := &p.owners[j]
	fence := max(o.rounds[0], o.rounds[1])
	votes, row := 0, o.req.Fences
	for _, g := range o.got {
		if g.Granted && (p.timed || g.Fence == fence) {
			votes++
			row = min(row, max(g.Fences, 1))
		}
	}
	if votes < need {
		return "it has no majority"
	}
	o.until = o.start.Add(o.req.TTL)
	o.lease = &lease{owner: j, first: fence - uint64(row) + 1, last: fence, stands: func() bool { return time.Now().Before(o.until) }}
	p.w.judge.holds(o.lease, p.w.story.Model)
	if row < min(o.req.Fences, s.Value) {
		return fmt.Sprintf("with a row of %d", row)
	}
	if p.timed {
		return p.w.lasts(o.until, s.Value)
	}
	return ""
}

func (p *messages) restore(j int, s model.Step) (leaves string) {
	o := &p.owners[j]
	r := o.req
	r.Fence, r.Restore = max(o.rounds[0], o.rounds[1]), true
	res, err := p.w.seen[j][s.Node].Vote(context.Background(), r.Vote())
	if answer(res, err) == "" {
		o.back[s.Node] = true
	}
	return answer(res, err)
}

func (p *messages) renew(j int, s model.Step) (leaves string) {
	o := &p.owners[j]
	r := o.req
	r.Fence = max(o.rounds[0], o.rounds[1])
	var err error
	contend.Renew(context.Background(), p.w.seen[j][s.Node], []contend.Owner{r}, func(_ int, a driver.Renewal) { err = a.Err })
	if err != nil {
		return answer(driver.Result{}, err)
	}
	o.renewed[s.Node] = true
	if _, ok := p.w.story.Model.(model.Fences); ok && o.lease != nil && p.majority(j) {
		p.w.judge.renews(o.lease, p.w.story.Model)
	}
	return ""
}

func (p *messages) majority(j int) bool {
	o, votes := &p.owners[j], 0
	for i, ok := range o.renewed {
		if ok || o.back[i] && p.w.rules.sameTime {
			votes++
		}
	}
	return votes >= need
}

func (p *messages) confirm(j int, s model.Step) (leaves string) {
	o := &p.owners[j]
	switch {
	case o.lease == nil || !p.w.rules.late && !o.lease.stands():
		return "the lease is over"
	case !p.majority(j):
		return "it has no majority"
	}
	o.until = o.start.Add(o.req.TTL)
	p.w.judge.renews(o.lease, p.w.story.Model)
	return p.w.lasts(o.until, s.Value)
}

// admission looks at a node's record, and admits the node if the wait is over, with the
// library's own code.
func (p *messages) admission(j int, s model.Step) (leaves string) {
	o, n, longest := &p.owners[j], p.w.seen[j][s.Node], p.w.maxTTL(j)
	rec, err := n.Record(context.Background())
	if err != nil {
		return err.Error()
	}
	if s.Act == model.Look {
		o.waits.Left(rec.Text, longest)
		return ""
	}
	if p.w.rules.hasty && !rec.Voting {
		err = n.Admit(context.Background(), rec, longest)
	} else {
		err = o.waits.Admit(context.Background(), n, rec, longest, longest)
	}
	switch held := (*admission.HeldBack)(nil); {
	case errors.As(err, &held):
		return "held back"
	case err != nil:
		return err.Error()
	}
	return ""
}
