// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/verify/model"
)

// clients plays a story with quorum.Driver, and in the models of leases with
// hasp.Client over it, in a bubble.
type clients struct {
	w     *world
	all   [2]*client
	timed bool       // it is about leases in time
	held  []*message // carried out, and answered once their sender no longer waits
}

// newClients makes them. listed: A's list names node 0 twice, in place of node 1.
func newClients(w *world, listed bool) *clients {
	p := &clients{w: w}
	_, p.timed = w.story.Model.(model.Votes)
	for j := range p.all {
		lists := [nodes]int{0, 1, 2}
		if listed && j == 0 {
			lists[1] = 0
		}
		timeout := time.Duration(0)
		if p.timed || j == 1 {
			timeout = long // nodes that do not answer are waited for
		}
		p.all[j] = newClient(w, j, lists, queueNodeOf(w.story, j), timeout)
		if p.timed && !w.rules.bare {
			p.all[j].withCore()
		}
	}
	return p
}

// queueNodeOf returns a node that answers all requests of an owner, because a client
// waits for the queue node.
func queueNodeOf(story model.Trace, j int) int {
	var tried, renewed []int
	for _, s := range story.Steps {
		switch {
		case s.Actor != string(rune('A'+j)):
		case s.Act == model.Try:
			tried = append(tried, s.Node)
		case s.Act == model.Renew:
			renewed = append(renewed, s.Node)
		}
	}
	for _, i := range tried {
		if slices.Contains(renewed, i) {
			return i
		}
	}
	if len(tried) == 0 {
		return 0
	}
	return tried[0]
}

func (p *clients) close() {
	for _, c := range p.all {
		c.close()
	}
}

func (p *clients) step(j int, s model.Step) (leaves string) {
	defer synctest.Wait()
	c := p.all[j]
	if c.again() && c.call == nil { // it has no step for that
		c.values = []int{1 + 2*j, 2 + 2*j}
		c.try()
		synctest.Wait()
	}
	switch s.Act {
	case model.Propose:
		p.w.judge.begins(j)
		c.values = []int{s.Value}
		c.try()
	case model.Raise:
		c.values = append(c.values, s.Value)
		return p.again(c)
	case model.Release: // of what was granted, to ask again
		return p.again(c)
	case model.Try:
		return p.try(c, s)
	case model.Hold:
		return p.hold(c, s)
	case model.SendRestore:
		return p.sendBack(c, s)
	case model.Restore:
		return p.restore(c, s)
	case model.Renewing:
		if c.lease == nil {
			return "there is no lease"
		}
		c.renew()
	case model.Renew:
		if !p.timed {
			return p.renewAt(c, s)
		}
		return deliver(c.gates[s.Node].take(aRenew, 0))
	case model.Renewed:
		return p.renewed(c, s)
	case model.Released:
		return deliver(c.gates[s.Node].take(aRelease, 0))
	case model.Look, model.Admit:
		return p.admission(c, s)
	}
	return ""
}

// deliver carries out a message and answers it.
func deliver(m *message) (leaves string) {
	if m == nil {
		return "it was not sent"
	}
	why := m.carry()
	m.reply()
	return why
}

// again lets the current round end by the node timeout, and asks once more.
func (p *clients) again(c *client) (leaves string) {
	c.ends()
	if !c.returned() || c.call.err == nil {
		return "the round does not end"
	}
	time.Sleep(2 * time.Second) // until nodes that did not answer are in service
	for _, m := range p.held {
		m.reply()
	}
	synctest.Wait()
	p.held = nil
	c.try()
	return ""
}

func (p *clients) try(c *client, s model.Step) (leaves string) {
	g := c.gates[s.Node]
	m := g.take(aTry, s.Value)
	if m == nil {
		return "it was not sent"
	}
	why := m.carry()
	switch {
	case c.again() && s.Actor == "A" && s.Value == 1:
		p.held = append(p.held, m)
		return why
	case p.w.rules.stale && s.Value == 1:
		if latest := g.take(aTry, 2); latest != nil {
			latest.put(m)()
			latest.reply, latest.fail = func() {}, func(error) {}
			g.add(latest)
		}
	}
	m.reply()
	return why
}

func (p *clients) hold(c *client, s model.Step) (leaves string) {
	synctest.Wait()
	if p.w.rules.silenceCounts {
		c.silenceCounts(aTry)
	}
	synctest.Wait()
	if !c.returned() && !p.timed && c.owner == 0 {
		c.ends()
	}
	switch {
	case !c.returned():
		return "it has no majority"
	case c.call.err != nil:
		return summary(c.call.err)
	}
	res := c.call.res
	if c.core == nil {
		c.req.Fence = res.Fence
		c.counts()
	} else {
		res.Fence = c.hold.Fence()
	}
	fence, row := c.toNode(res.Fence), uint64(max(res.Fences, 1))
	if p.w.rules.longest {
		row = c.longestRow()
	}
	c.lease = &lease{owner: c.owner, first: fence - row + 1, last: fence, stands: c.stands}
	p.w.judge.holds(c.lease, p.w.story.Model)
	switch {
	case p.timed:
		return p.w.lasts(c.deadline(), s.Value)
	case fence != p.w.fence(s.Value):
		return fmt.Sprintf("with fence %d", fence-p.w.base)
	case int(row) < min(c.req.Fences, s.Value):
		return fmt.Sprintf("with a row of %d", row)
	}
	return ""
}

// renewAt renews the lease at one node, like a client that ignores the deadline.
func (p *clients) renewAt(c *client, s model.Step) (leaves string) {
	if c.lease == nil {
		return "there is no lease"
	}
	g, r := c.gates[s.Node], c.req
	var err error
	contend.Renew(context.Background(), g.member, []contend.Owner{g.at(r)}, func(_ int, a driver.Renewal) { err = a.Err })
	if err != nil {
		return answer(driver.Result{}, err)
	}
	if c.renewals++; c.renewals >= need {
		p.w.judge.renews(c.lease, p.w.story.Model)
	}
	return ""
}

func (p *clients) renewed(c *client, s model.Step) (leaves string) {
	if p.w.rules.silenceCounts {
		c.silenceCounts(aRenew)
	}
	synctest.Wait()
	switch {
	case c.lease == nil:
		return "there is no lease"
	case !c.returned():
		return "it has no majority"
	case c.call.err != nil:
		return summary(c.call.err)
	}
	if c.core == nil {
		c.counts()
	}
	p.w.judge.renews(c.lease, p.w.story.Model)
	return p.w.lasts(c.deadline(), s.Value)
}

// restore delivers a Restore, and if the model counts its vote at once, also the Renew
// that is in flight after it.
func (p *clients) restore(c *client, s model.Step) (leaves string) {
	if !p.timed { // in that model holders send one at any time
		p.sendBack(c, s)
	}
	why := deliver(c.gates[s.Node].take(aRestore, 0))
	if p.w.votes().SameTime && why == "" {
		why = deliver(c.gates[s.Node].take(aRenew, 0))
	}
	return why
}

// sendBack holds a Restore in flight that the client sent, or else one that it could
// have sent.
func (p *clients) sendBack(c *client, s model.Step) (leaves string) {
	g := c.gates[s.Node]
	if m := g.take(aRestore, 0); m != nil {
		g.add(m)
		return ""
	}
	r := c.req
	r.Restore, r.Raise = true, false
	m := &message{kind: aRestore, reply: func() {}, fail: func(error) {}}
	m.carry = func() string {
		m.res, m.err = g.try(r.Vote())
		return answer(m.res, m.err)
	}
	g.add(m)
	return "it was not sent"
}
