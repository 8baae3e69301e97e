// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// trace is all that happened in a run, to be read when something is wrong.
type trace struct {
	w *world

	mu      sync.Mutex
	entries []entry
}

// entry is one event. Its text is made only when the trace is printed.
type entry struct {
	at           time.Duration
	kind         string
	client, life int
	node         int
	owner        string
	fence        uint64
	till         time.Duration
	ok           bool
	shared       bool
	err          error
	fault        Fault
	msg          *exchanged
	fate         fate
}

// exchanged is a request to a node, and its answer.
type exchanged struct {
	m     message
	v     any
	first bool
	clock time.Duration // how far the node's clock is ahead
}

func (t *trace) add(e entry) {
	e.at = t.w.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = append(t.entries, e)
}

func (t *trace) message(l *link, m message, v any, err error, first bool) {
	t.add(entry{kind: "message", client: l.p.c.index, life: l.p.life, node: l.n.index, owner: m.r.Owner, err: err,
		msg: &exchanged{m, v, first, time.Until(l.n.clock.now())}})
}

func (t *trace) sent(l *link, m message, f fate) {
	t.add(entry{kind: "sent", client: l.p.c.index, life: l.p.life, node: l.n.index, owner: m.r.Owner, msg: &exchanged{m: m}, fate: f})
}

func (t *trace) tried(p *process, r contend.Owner, res driver.Result, err error) {
	t.add(entry{kind: "outcome", client: p.c.index, life: p.life, owner: r.Owner, err: err,
		msg: &exchanged{m: message{"try", r}, v: res}})
}

func (t *trace) messages() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		if e.kind == "message" {
			n++
		}
	}
	return n
}

// String returns the trace as text, with a line for each entry.
func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, e := range t.entries {
		fmt.Fprintf(&b, "%11.6f  %s\n", e.at.Seconds(), e.text())
	}
	return b.String()
}

func (e entry) text() string {
	who := fmt.Sprintf("client %d", e.client)
	if e.life > 0 {
		who += fmt.Sprintf(".%d", e.life)
	}
	if e.owner != "" {
		who += " " + short(e.owner)
	}
	switch e.kind {
	case "fault":
		return "FAULT " + e.fault.String()
	case "faults over":
		return "THE FAULTS ARE OVER"
	case "message":
		return fmt.Sprintf("    %s -> node %d (%+.3fs): %s", who, e.node, e.msg.clock.Seconds(), e.msg.text(e.err))
	case "sent":
		return fmt.Sprintf("      %s sends to node %d %s%s", who, e.node, e.msg.m.op, e.fate)
	case "outcome":
		return fmt.Sprintf("  %s: the answer is: %s", who, e.msg.text(e.err))
	case "hears":
		return fmt.Sprintf("    %s hears of fence %d", who, e.fence)
	case "holds", "enters", "downgrades", "renewed", "releases", "lost", "dies":
		text := fmt.Sprintf("%s %s: until %.6f", who, strings.ToUpper(e.kind), e.till.Seconds())
		if e.shared {
			text += ", to read"
		}
		if e.fence != 0 {
			text += fmt.Sprintf(", fence %d", e.fence)
		}
		if e.err != nil {
			text += ": " + e.err.Error()
		}
		return text
	case "writes", "reads":
		return fmt.Sprintf("  %s %s with fence %d: accepted %v", who, e.kind, e.fence, e.ok)
	}
	if e.err != nil {
		return fmt.Sprintf("  %s %s: %v", who, e.kind, e.err)
	}
	return fmt.Sprintf("  %s %s", who, e.kind)
}

func (x *exchanged) text(err error) string {
	var b strings.Builder
	b.WriteString(x.m.op)
	r := x.m.r
	if r.Fence != 0 {
		fmt.Fprintf(&b, " %d", r.Fence)
	}
	for _, flag := range []struct {
		name string
		on   bool
	}{{"shared", r.Mode == driver.Shared}, {"convert", r.Convert}, {"raise", r.Raise}, {"restore", r.Restore}, {"queue", r.Queue}, {"settled", r.Settled}} {
		if flag.on {
			b.WriteString(" " + flag.name)
		}
	}
	if r.UpTo != 0 {
		fmt.Fprintf(&b, " up to %d", r.UpTo)
	}
	if !x.first && x.clock != 0 {
		b.WriteString(" (again)")
	}
	b.WriteString(": ")
	if err != nil {
		return b.String() + err.Error()
	}
	switch v := x.v.(type) {
	case driver.Result:
		if v.Granted {
			fmt.Fprintf(&b, "granted %d for %v", v.Fence, v.TTL)
			break
		}
		fmt.Fprintf(&b, "refused %v by %s, left %v, fence %d, ahead %d, retry in %v", [...]string{"held", "released", "too low", "not voting", "TTL"}[v.Why], short(v.Holder.Owner), v.Left, v.Fence, v.Ahead, v.RetryIn)
	case []driver.Renewal:
		for _, a := range v {
			fmt.Fprintf(&b, "[%v %v] ", a.TTL, a.Err)
		}
	case driver.Record:
		fmt.Fprintf(&b, "%q", v.Text)
	default:
		b.WriteString("done")
	}
	return b.String()
}

// String describes what the network does to a message.
func (f fate) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, ", arrives after %v", f.out)
	if f.lost {
		b.Reset()
		b.WriteString(", lost")
	}
	if f.again > 0 {
		fmt.Fprintf(&b, ", again after %v", f.again)
	}
	if f.reset > 0 {
		fmt.Fprintf(&b, ", connection reset after %v", f.reset)
	}
	if f.noReply {
		b.WriteString(", answer lost")
	}
	return b.String()
}

// short abbreviates an owner.
func short(owner string) string { return owner[:min(len(owner), 6)] }
