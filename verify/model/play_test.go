// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/ballot"
	"github.com/hasplock/hasp/verify/model"
)

const (
	key   = "orders/42"
	nodes = 3

	// A step of the models' time is a little longer than that of their TTLs, so that what ends at a
	// step has ended in spite of drift, and nothing else has; and so that the real wait, ten seconds
	// longer than leases of two or three steps, is over after as many steps.
	ttlStep = time.Minute
	tick    = 70 * time.Second
)

// player carries out a counterexample on what ships: nodes of package memdriver, ballots and
// admissions. A step delivers a message; what the model decides, the ballot decides here.
type player struct {
	t     testing.TB
	story trace
	undone
	timed  bool // it is about leases in time, and not about fences
	votes  model.Votes
	fences model.Fences
	nodes  [nodes]*node
	base   uint64    // what the model's fences are counted from
	zero   time.Time // of the model's clock
	owners [2]*client
	judge
}

// client is one owner.
type client struct {
	name    string
	nodes   [nodes]member // as it sees them
	ballot  ballot.Ballot
	rounds  []ballot.Step
	late    []ballot.Reply // told once their round is over
	backs   [nodes][]voting.WithdrawRequest
	row     int // the longest that a node granted
	waits   *admission.Waits
	renewal ballot.Renewal
	back    ballot.Set // in the current renewal their votes were restored
	proves  ballot.Set // which prolonged the lease at any time
	start   time.Time  // of the Try, or of the renewal
	until   time.Time  // of the lease
	lease   *lease
	gone    bool
}

// undone says which safeguards are missing. The zero value is the code as it is.
type undone struct {
	around   func(p *player, n member, owner, i int) member // of each client, around each node
	hasty    bool                                           // a node is admitted when the story says so
	late     bool                                           // answers count after the deadline
	sameTime bool                                           // restored votes count in the renewal in which they were restored
	receipt  bool                                           // a lease counts from when the answer came
	anytime  bool                                           // a Restore is sent whenever the story says so
	admitted int8                                           // the longest lease that nodes are admitted for, in steps
	silence  bool                                           // a missing answer counts as a vote
	longest  bool                                           // a row is as long as the longest that a node granted
	noRaise  bool                                           // no owner raises standing fences
	stale    bool                                           // an answer to an earlier round counts as one to the latest
}

// play returns the steps, each with how the code departs from it, and what is wrong in the end.
func play(t *testing.T, s trace, u undone) (lines []string, wrong string) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, s, u)
		for _, s := range s.Steps {
			line, why := s.String(), ""
			if s.Actor == "" {
				p.fault(s)
			} else {
				why = p.step(int(s.Actor[0]-'A'), s)
			}
			if why != "" {
				line += departs + why
			}
			lines = append(lines, line)
		}
		wrong = p.wrong
	})
	return lines, wrong
}

func open(t testing.TB, s trace, u undone) *player {
	p := &player{t: t, story: s, undone: u, judge: judge{began: map[int]int{}}}
	p.votes, p.timed = s.Model.(model.Votes)
	if !p.timed {
		p.votes.TTL = [2]int8{30, 30}
	}
	if p.votes.Max == 0 {
		p.votes.Max = p.votes.TTL[0]
	}
	for j := range p.votes.Wait {
		if p.votes.Wait[j] == 0 {
			p.votes.Wait[j] = p.votes.Max
		}
	}
	p.fences, p.judge.fenced = s.Model.(model.Fences)
	p.judge.fenced = p.judge.fenced && !p.fences.Withdraws
	for i := range p.nodes {
		p.nodes[i] = newNode(max(p.maxTTL(0), p.ttl(0), p.ttl(1)))
		p.admit(i)
	}
	for j := range p.owners {
		c := &client{name: strings.Repeat(string(rune('A'+j)), driver.OwnerLen), ballot: ballot.New(nodes), waits: admission.New("", nil)}
		for i := range c.nodes {
			at := i
			if p.fences.Listed && j == 0 && i == 1 {
				at = 0
			}
			c.nodes[i] = p.nodes[at]
			if u.around != nil {
				c.nodes[i] = u.around(p, p.nodes[at], j, at)
			}
		}
		p.owners[j] = c
	}
	time.Sleep(time.Millisecond) // no earlier fence is above it
	p.base, p.zero = uint64(time.Now().UnixMicro()), time.Now()
	for _, n := range p.nodes {
		if p.timed {
			n.old = p.zero.Add(-time.Millisecond)
		}
	}
	time.Sleep(time.Millisecond) // the nodes' clocks are above the story's fences
	return p
}

func (p *player) ttl(owner int) time.Duration { return time.Duration(p.votes.TTL[owner]) * ttlStep }

// maxTTL is the longest lease that an owner's client knows of.
func (p *player) maxTTL(owner int) time.Duration {
	return time.Duration(max(p.votes.Max*int8(1-owner), p.votes.Wait[owner])) * ttlStep
}

// admit admits a node on behalf of the operator.
func (p *player) admit(i int) {
	rec, err := p.nodes[i].Record(context.Background())
	longest := p.maxTTL(0)
	if p.admitted != 0 {
		longest = time.Duration(p.admitted) * ttlStep
	}
	if err == nil && !rec.Voting {
		err = p.nodes[i].Admit(context.Background(), rec, longest)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// fault carries out a step that is not an owner's.
func (p *player) fault(s model.Step) {
	switch s.Act {
	case model.Tick:
		time.Sleep(time.Until(p.zero.Add(time.Duration(s.Value) * tick)))
	case model.Vanish:
		p.nodes[s.Node].vanish()
	case model.Forget: // in a restart, and then it is admitted
		p.nodes[s.Node].Flush()
		p.admit(s.Node)
	case model.Restart:
		p.nodes[s.Node].restart(nil)
	case model.Snapshot:
		p.nodes[s.Node].saved = p.nodes[s.Node].Snapshot()
	case model.Reload:
		p.nodes[s.Node].restart(p.nodes[s.Node].saved)
	case model.Flush:
		p.nodes[s.Node].Flush()
	case model.Jump:
		p.nodes[s.Node].off += time.Duration(s.Value) * tick
	}
}

// step carries out a step of an owner, and returns how the code departs from it.
func (p *player) step(j int, s model.Step) (leaves string) {
	c := p.owners[j]
	switch s.Act {
	case model.Propose:
		p.began[j] = len(p.held)
		p.propose(j, s.Value)
	case model.Raise:
		p.end(c)
		p.propose(j, s.Value)
	case model.Try, model.TryAgain:
		return p.try(j, s)
	case model.Hold:
		return p.hold(j, s)
	case model.SendRestore, model.Restore:
		return p.restore(j, s)
	case model.Renewing:
		c.renewal, c.back, c.start = ballot.NewRenewal(nodes), 0, time.Now()
		c.ballot.Renewing(p.request(j).renew(0), 0)
	case model.Renew:
		return p.renew(j, s)
	case model.Renewed:
		return p.renewed(j, s)
	case model.Release:
		p.release(j)
	case model.Released:
		return p.released(c, s.Node)
	case model.Look, model.Admit:
		return p.admission(j, s)
	}
	return ""
}

func (p *player) propose(j, value int) {
	c := p.owners[j]
	v := ballot.View{Serving: ballot.All(nodes), Queue: ballot.None, Met: !p.fences.Listed, Limit: 1 << 62, Timeout: -1, Fence: p.base + uint64(value)}
	c.start = time.Now()
	p.asks(c, c.ballot.Ask(p.request(j).try(), v))
}

func (p *player) asks(c *client, s ballot.Step) {
	p.owes(c, s.Back)
	if s.Outcome == ballot.Asking {
		c.rounds = append(c.rounds, s)
	}
}

func (*player) owes(c *client, all []ballot.Withdrawal) {
	for _, w := range all {
		c.backs[w.Node] = append(c.backs[w.Node], w.WithdrawRequest)
	}
}

// next ends the round under way, and returns what the ballot makes of it.
func (p *player) next(c *client) ballot.Step {
	s := c.ballot.Next(ballot.View{Serving: ballot.All(nodes), Queue: ballot.None, Met: true, Limit: 1 << 62, Timeout: -1, Fence: c.ballot.Seen() + 1})
	p.owes(c, s.Back)
	return s
}

// end gives up the nodes that have not answered, whose answers come after the round.
func (p *player) end(c *client) {
	for i := range nodes {
		c.ballot.Silent(i, c.rounds[len(c.rounds)-1].Round)
	}
	p.next(c)
	for _, r := range c.late {
		back, _ := c.ballot.Heard(r)
		p.owes(c, back)
	}
	c.late = nil
}

func (p *player) try(j int, s model.Step) (leaves string) {
	c := p.owners[j]
	if len(c.rounds) < s.Value {
		return "it was not sent"
	}
	round := c.rounds[s.Value-1]
	r := round.Request(s.Node)
	r.Raise = r.Raise && (!p.fences.NoRaise || p.fences.Withdraws) && !p.noRaise
	res, err := c.nodes[s.Node].Vote(context.Background(), r)
	if p.timed && res.Why == voting.FenceTooLow { // these models have no fences
		higher := r
		higher.Proposal = res.Fence + 1
		if res, err = c.nodes[s.Node].Vote(context.Background(), higher); res.Granted {
			res.Fence = r.Proposal
		}
	}
	res.Abandoned = false // these models have no abandoned keys, whose next holder waits for more nodes than it needs
	c.row = max(c.row, res.Fences)
	if why := answer(res, err); why == "" && c.gone {
		p.finds("a Try that came after its Release was granted, while the node remembered the Release")
	}
	reply := ballot.Reply{Node: s.Node, Round: round.Round, Asked: r, Answer: ballot.Answer{Kind: kind(res, err), Result: res}}
	if p.stale {
		reply.Round = c.rounds[len(c.rounds)-1].Round
	}
	raises := func(a model.Step) bool { return a.Act == model.Raise && a.Actor == s.Actor }
	if p.fences.Withdraws && s.Value == 1 && slices.ContainsFunc(p.story.Steps, raises) {
		c.late = append(c.late, reply)
		return answer(res, err)
	}
	back, _ := c.ballot.Heard(reply)
	p.owes(c, back)
	return answer(res, err)
}

func (p *player) hold(j int, s model.Step) (leaves string) {
	c := p.owners[j]
	round := c.rounds[len(c.rounds)-1]
	if p.silence {
		for i := range nodes {
			r := round.Request(i)
			c.ballot.Heard(ballot.Reply{Node: i, Round: round.Round, Asked: r,
				Answer: ballot.Answer{Kind: ballot.Answered, Result: driver.Result{Granted: true, Fence: r.Proposal, TTL: r.TTL}}})
		}
	}
	if c.ballot.Late(round.Round); !c.ballot.Decided() {
		return "it has no majority"
	}
	step := p.next(c)
	switch {
	case step.Outcome == ballot.OneStore:
		return "one server is listed twice"
	case step.Outcome != ballot.Granted:
		return "it has no majority"
	}
	if p.receipt {
		c.start = time.Now()
	}
	c.until = c.start.Add(p.ttl(j))
	fence, row := step.Result.Fence, max(step.Result.Fences, 1)
	if p.longest {
		row = c.row
	}
	c.lease = &lease{owner: j, first: fence - uint64(row) + 1, last: fence, stands: func() bool { return !p.timed || time.Now().Before(c.until) }}
	p.holds(c.lease)
	switch {
	case p.timed:
		return p.lasts(c.until, s.Value)
	case row < min(int(p.fences.Block), s.Value):
		return fmt.Sprintf("with a row of %d", row)
	case fence != p.base+uint64(s.Value):
		return fmt.Sprintf("with fence %d", fence-p.base)
	}
	return ""
}

// lasts checks that a deadline is not before the step before the story's deadline.
func (p *player) lasts(deadline time.Time, value int) (leaves string) {
	if !deadline.After(p.zero.Add(time.Duration(value-1) * tick)) {
		return "the lease ends earlier"
	}
	return ""
}

// restore carries out a Restore, even if quorum would not send it.
func (p *player) restore(j int, s model.Step) (leaves string) {
	c := p.owners[j]
	r, ok := c.ballot.Restore(s.Node, voting.VoteRequest{TryRequest: p.request(j).try(), Proposal: c.ballot.Fence(), Restore: true})
	if s.Act == model.SendRestore {
		if ok = ok && c.renewal.Stands(); !ok && !p.anytime {
			return "it was not sent"
		}
		return ""
	}
	res, err := c.nodes[s.Node].Vote(context.Background(), r)
	if answer(res, err) == "" {
		c.back.Add(s.Node)
	}
	return answer(res, err)
}

func (p *player) renew(j int, s model.Step) (leaves string) {
	c := p.owners[j]
	if c.lease == nil {
		return "there is no lease"
	}
	var a driver.Renewal
	c.nodes[s.Node].Renew(context.Background(), []driver.RenewRequest{p.request(j).renew(c.ballot.Fence())}, func(_ int, r driver.Renewal) { a = r })
	c.renewal.Answer(s.Node, kind(driver.Result{}, a.Err), a, false)
	if a.Err != nil {
		return answer(driver.Result{}, a.Err)
	}
	if c.proves.Add(s.Node); !p.timed && c.proves.Len() >= c.ballot.Need() {
		p.renews(c.lease)
	}
	return ""
}

func (p *player) renewed(j int, s model.Step) (leaves string) {
	c := p.owners[j]
	votes := c.renewal.Held()
	for i := range nodes {
		if p.sameTime && c.back.Has(i) {
			votes.Add(i)
		}
	}
	switch {
	case c.lease == nil || !p.late && !c.lease.stands():
		return "the lease is over"
	case !c.renewal.Stands() && votes.Len() < c.ballot.Need() && !p.silence:
		return "it has no majority"
	}
	if p.receipt {
		c.start = time.Now()
	}
	c.until = c.start.Add(p.ttl(j))
	p.renews(c.lease)
	return p.lasts(c.until, s.Value)
}

func (p *player) release(j int) {
	c := p.owners[j]
	c.gone = true
	r := c.ballot.Release(driver.ReleaseRequest{Claim: p.request(j).Claim, TTL: p.ttl(j)}, ballot.None)
	for i := range nodes {
		if r.Tells(i) {
			c.backs[i] = append(c.backs[i], r.Request(i))
		}
	}
}

func (p *player) released(c *client, i int) (leaves string) {
	if len(c.backs[i]) == 0 {
		return "it was not sent"
	}
	r := c.backs[i][0]
	c.backs[i] = c.backs[i][1:]
	err := c.nodes[i].Withdraw(context.Background(), r)
	if p.timed && errors.Is(err, driver.ErrNotHeld) {
		return "" // the node had to know of the release before the Try
	}
	return answer(driver.Result{Granted: true}, err)
}

// admission looks at a node's record, and admits the node if the wait is over.
func (p *player) admission(j int, s model.Step) (leaves string) {
	c, longest := p.owners[j], p.maxTTL(j)
	rec, err := c.nodes[s.Node].Record(context.Background())
	switch {
	case err != nil:
	case s.Act == model.Look:
		c.waits.Left(rec.Text, longest)
	case p.hasty && !rec.Voting:
		err = c.nodes[s.Node].Admit(context.Background(), rec, longest)
	default:
		err = c.waits.Admit(context.Background(), c.nodes[s.Node], rec, longest, longest)
	}
	return answer(driver.Result{Granted: true}, err)
}

// request is what all requests of an owner contain.
type request struct {
	driver.Claim
	ttl    time.Duration
	fences int
}

func (p *player) request(j int) request {
	return request{driver.Claim{Key: key, Owner: p.owners[j].name, Label: "{}"}, p.ttl(j), int(max(p.fences.Block, 1))}
}

func (r request) try() driver.TryRequest {
	return driver.TryRequest{Claim: r.Claim, TTL: r.ttl, Fences: r.fences}
}

func (r request) renew(fence uint64) driver.RenewRequest {
	return driver.RenewRequest{Claim: r.Claim, TTL: r.ttl, Fence: fence}
}

func kind(res driver.Result, err error) ballot.Kind {
	switch {
	case errors.Is(err, voting.ErrNotVoting), err == nil && res.Why == voting.NotVoting:
		return ballot.HeldBack
	case errors.Is(err, driver.ErrNotHeld):
		return ballot.NotHolder
	case err != nil:
		return ballot.Unknown
	}
	return ballot.Answered
}

// answer returns how a node's answer differs from a grant, or "".
func answer(res driver.Result, err error) (leaves string) {
	var held *admission.HeldBack
	switch {
	case errors.As(err, &held):
		return "held back"
	case errors.Is(err, driver.ErrNotHeld):
		return "not held"
	case err != nil:
		return err.Error()
	case res.Granted:
		return ""
	}
	return map[driver.Why]string{
		driver.WhyHeld:     "the key is held, or the owner is gone",
		driver.WhyReleased: "the key is held, or the owner is gone",
		voting.FenceTooLow: "the fence is too low",
		voting.NotVoting:   "the node does not vote",
		voting.TTLTooLong:  "the TTL is too long",
	}[res.Why]
}

// judge records the leases of a story, and the first thing that is wrong, in the words of the models.
type judge struct {
	fenced bool        // it is about fences, and not about two that hold at once
	began  map[int]int // how many had held when an owner began
	held   []*lease
	wrong  string
}

// lease is a lease that an owner believes to hold.
type lease struct {
	owner       int
	first, last uint64
	stands      func() bool // as far as the owner knows, now
	stirred     bool        // another owner has held since
}

func (j *judge) finds(wrong string) {
	if j.wrong == "" {
		j.wrong = wrong
	}
}

// holds judges a new holder.
func (j *judge) holds(l *lease) {
	for k, o := range j.held {
		switch {
		case o.owner == l.owner:
			continue
		case !j.fenced && o.stands() && l.stands():
			j.finds("both hold the key at once")
		case j.fenced && l.first <= o.last && o.first <= l.last:
			j.finds("two holders have the same fence")
		case j.fenced && k < j.began[l.owner] && l.first <= o.last:
			j.finds("an owner that began after another held got a fence that is not larger")
		}
		o.stirred = true
	}
	j.held = append(j.held, l)
}

// renews judges a lease that its owner has renewed.
func (j *judge) renews(l *lease) {
	for _, o := range j.held {
		if !j.fenced && o.owner != l.owner && o.stands() && l.stands() {
			j.finds("both hold the key at once")
		}
	}
	switch {
	case l.stirred && !j.fenced:
		j.finds("a lease was renewed although another held the key in between")
	case l.stirred:
		j.finds("a lease stands again although another held the key in between")
	}
}
