// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/dashboard"
	"github.com/hasplock/hasp/internal/audit"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

// envAudit is --audit for all commands.
const envAudit = "HASP_AUDIT"

// auditFlag is --audit.
type auditFlag struct{ to string }

func (f *auditFlag) add(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&f.to, "audit", "", what+": `FILE`, or syslog; without it what HASP_AUDIT says")
}

// open returns the log of what is broken and lost; nil when none is wanted.
func (f *auditFlag) open() (*audit.Log, error) {
	log, err := audit.Open(cmp.Or(f.to, os.Getenv(envAudit)))
	if err != nil {
		return nil, badConfig(err)
	}
	return log, nil
}

// takeAway breaks the lease, or the place in the queue, of exactly this victim, and has
// that recorded. An error says what became of it.
func (l *locks) takeAway(ctx context.Context, log *audit.Log, via, key string, v victim, reason string) *exit {
	r := audit.Record{Event: audit.Break, Via: via, By: audit.Self(), Store: l.url.String(), Reason: reason}
	err := log.Do(r.Victim(key, v.Holder, v.fence, v.waits), func() error { return l.Operator().Break(ctx, key, v.Owner) })
	var end *exit
	unwritten := (*audit.UnwrittenError)(nil)
	switch lost := errors.As(err, &unwritten); {
	case err == nil:
		return nil
	case lost && !unwritten.Tried:
		return &exit{code: exitFailed, verdict: "failed", message: fmt.Sprintf("nothing was done: %v", unwritten)}
	case errors.Is(err, hasp.ErrNotHeld):
		info, err := l.inspect(ctx, key)
		if end = notThatOwner(info, key, v.Owner); err != nil {
			end = &exit{code: exitBusy, verdict: "busy", message: fmt.Sprintf("nothing was done: %s no longer has %s", v.Owner, quote(key))}
		}
	case lost && errors.As(err, new(*hasp.Error)), !lost:
		end = trouble(l.url, err)
	default:
		return &exit{code: exitFailed, verdict: "failed", message: fmt.Sprintf("broke %s: taken from %s; but %v", quote(key), who(v.Holder), unwritten)}
	}
	if unwritten != nil {
		end.message += fmt.Sprintf("; and %v", unwritten)
	}
	return end
}

// recordOf is what is recorded of the removal of a leak; a lease that expires is broken.
func (l *locks) recordOf(f *leak, reason string) audit.Record {
	r := audit.Record{Event: audit.Remove, Via: "hasp leaks", By: audit.Self(), Store: l.url.String(), Server: f.server, What: f.what, Name: f.name, Reason: reason}
	if f.leftover == nil {
		r.Event = audit.Break
	}
	return r.Victim(f.key, f.holder, f.fence, f.what == whatPlace)
}

// recordOfPage returns what records the breaks of the page, and tells of them on standard
// error. What it cannot record the page does not do.
func (l *locks) recordOfPage(log *audit.Log) func(dashboard.Record) error {
	by := audit.Self()
	return func(p dashboard.Record) error {
		r := audit.Record{ID: p.ID, Event: audit.Break, Via: "hasp serve", By: by, Store: l.url.String(), Key: p.Key, Owner: p.Owner, Fence: p.Fence, Reason: p.Reason}
		r.By.User = p.Actor
		switch p.Outcome {
		case "attempt":
			r.Outcome = audit.Begun
		case "broken":
			r.Outcome = audit.Done
		case "not held":
			r.Outcome = audit.NotHeld
		case "denied":
			r.Outcome = audit.Denied
		default:
			r.Outcome, r.Error = audit.Unknown, p.Outcome
		}
		note("%s of %s by %s, owner %s, reason %q: %s", p.Action, quote(p.Key), plain.Line(p.Actor), plain.Line(p.Owner), p.Reason, plain.Line(p.Outcome))
		return log.Write(r)
	}
}

// recordLost has the loss of a lease recorded, once. It does not wait for that.
func (j *job) recordLost(e *hasp.Event) {
	if j.audit == nil {
		return
	}
	r := audit.Record{
		Event: audit.Lost, Via: j.via, By: audit.Self(), Store: j.locks.url.String(), Key: e.Key, Owner: e.Owner, Fence: e.Fence,
		Held: e.Held.Seconds(), Reason: j.o.reason, Error: reason(e.Err),
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closing || j.recordedOf[e.Owner] {
		return
	}
	j.recordedOf[e.Owner] = true
	j.recording.Go(func() {
		if err := j.audit.Write(r); err != nil {
			j.rep.say(problem, event{Event: "unrecorded", Key: e.Key, Error: err.Error(),
				Message: fmt.Sprintf("the loss of %s is not recorded: %v", quote(e.Key), err)})
		}
	})
}

// recorded waits until losses are recorded, but not for a disk that hangs.
func (j *job) recorded() {
	j.mu.Lock()
	j.closing = true
	j.mu.Unlock()
	done := make(chan struct{})
	go func() { j.recording.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(flushLimit):
	}
}
