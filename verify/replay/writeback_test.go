// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/verify/model"
)

// writeBack plays an alternative that hasp does not use, with what its nodes can do:
// they choose the fences, which rise by one while the clock is stopped, and the
// write-back is a Try with Raise, which only the holder may use.
type writeBack struct {
	nodes  [nodes]*memNode
	seen   [nodes]member
	base   uint64
	owners [3]writer
	judge  judge
}

// writer is one owner and its client.
type writer struct {
	req    contend.Owner
	got    [nodes]uint64 // by Trys
	chosen uint64
	acked  int // nodes that have it
}

// byWriteBack plays with requests to nodes that choose the fences.
var byWriteBack = level{"messages", playWriteBack}

// playWriteBack plays in memory, in a bubble.
func playWriteBack(t *testing.T, s model.Trace, r rules) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := s.Model.(model.WriteBack)
		p := &writeBack{base: uint64(time.Now().UnixMicro())}
		for i := range p.nodes {
			n := newMemNode(ttlStep)
			n.fixed = time.UnixMicro(int64(p.base) + int64(m.Counts[i]))
			n.old = n.fixed
			p.nodes[i], p.seen[i] = n, n
			if r.memory != nil {
				p.seen[i] = r.memory(n)
			}
			rec, err := n.Record(t.Context())
			if err == nil {
				err = n.Admit(t.Context(), rec, ttlStep)
			}
			if err != nil {
				t.Fatal(err)
			}
			n.set(n.old)
		}
		for j := range p.owners {
			p.owners[j].req = contend.Owner{Key: key, Owner: strings.Repeat(string(rune('A'+j)), driver.OwnerLen), Label: "{}", TTL: ttlStep}
		}
		for k, step := range s.Steps {
			if why := p.step(s, step); why != "" {
				o.leaves = append(o.leaves, fmt.Sprintf("%d. %s: %s", k+1, step, why))
			}
		}
		o.wrong = p.judge.wrong
	})
	return o
}

func (p *writeBack) step(story model.Trace, s model.Step) (leaves string) {
	if s.Act == model.Vanish {
		if err := p.nodes[s.Node].vanish(key); err != nil {
			return err.Error()
		}
		return ""
	}
	j := int(s.Actor[0] - 'A')
	o := &p.owners[j]
	switch s.Act {
	case model.Propose:
		p.judge.begins(j)
	case model.Try, model.TryAgain:
		res, err := p.seen[s.Node].Vote(context.Background(), o.req.Vote())
		if why := answer(res, err); why != "" {
			return why
		}
		if s.Act == model.Try {
			o.got[s.Node] = res.Fence - p.base
		}
	case model.Choose:
		largest, votes := uint64(0), 0
		for _, g := range o.got {
			if g > 0 && g <= uint64(s.Value) {
				largest, votes = max(largest, g), votes+1
			}
		}
		if votes < need || largest != uint64(s.Value) {
			return fmt.Sprintf("it was granted %v", o.got)
		}
		o.chosen = largest
	case model.Write:
		r := o.req
		r.Fence, r.Raise = p.base+uint64(s.Value), true
		res, err := p.seen[s.Node].Vote(context.Background(), r.Vote())
		why := answer(res, err)
		if why == "" {
			o.acked++
		}
		return why
	case model.Hold:
		if m, _ := story.Model.(model.WriteBack); o.acked < need && !m.Never {
			return "it has no majority"
		}
		p.judge.holds(&lease{owner: j, first: o.chosen, last: o.chosen}, story.Model)
	}
	return ""
}

// ignoreTooLow reports a Raise as done that is refused because it is too low.
type ignoreTooLow struct{ member }

func (d ignoreTooLow) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	res, err := d.member.Vote(ctx, r)
	res.Granted = res.Granted || r.Raise && res.Why == driver.FenceTooLow
	return res, err
}

func notOver(n *memNode) member { return ignoreTooLow{n} }

// forAll carries out a Raise for any owner.
type forAll struct{ member }

func (f forAll) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	if info, err := f.Inspect(ctx, r.Key); err == nil && info.Held && r.Raise {
		r.Owner, r.Label = info.Holder.Owner, info.Holder.Label
	}
	return f.member.Vote(ctx, r)
}

func everybodys(n *memNode) member { return forAll{n} }
