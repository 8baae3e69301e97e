// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/backoff"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
)

// late is how long a command has after SIGTERM when the lease had expired before hasp
// could send it (hasp was stopped, or the machine slept).
const late = 500 * time.Millisecond

// hold runs the command while all the leases last.
func (j *job) hold(leases held) (*child.Status, error) {
	spec := child.Spec{
		Path: j.path, Argv: j.argv, Env: j.environment(leases.keys()), Signals: j.signals,
		Left:   func() time.Duration { return j.left(leases) },
		Ending: func(pid int) child.Order { return j.ending(leases, pid) },
		Lazy:   j.candidate != nil,
		Grace:  j.o.grace.D,
		Stays: func(pid int) {
			j.rep.say(normal, entry{Event: "stays", PID: pid, Message: fmt.Sprintf("the command (pid %d) has not ended on TERM; hasp waits for it (kill -9 %d ends it)", pid, pid)})
		},
		Resumed: func() { _ = leases.Err() }, // asks the clock, and closes Done when it is too late
	}
	if j.o.onLost.Word != lostIgnore {
		spec.End = leases.Done()
	}
	st, err := child.Run(spec)
	for errors.Is(err, child.ErrLate) && leases.Err() == nil { // renewed meanwhile
		st, err = child.Run(spec)
	}
	if errors.Is(err, child.ErrLate) {
		return nil, j.late(leases)
	}
	if err != nil {
		_ = j.finish(leases.unused) // the leases expire when this fails
		return nil, startError(j.argv[0], err)
	}
	j.worked = time.Since(j.acquired)
	over := leases.Err()
	j.silent = over != nil // most often because the store is gone
	if st.Ordered {
		_ = j.release(leases) // the loss is reported
		return &st, j.ended(st, over)
	}
	j.rep.say(detail, entry{Event: "ended", Held: people.Seconds(time.Since(j.acquired)),
		Message: fmt.Sprintf("the command %s", outcome(st))})
	j.leftBehind(st)
	end := verdictOf(j.keys, st)
	switch {
	case over != nil && j.o.onLost.Word == lostIgnore:
		_ = j.release(leases) // as above
		end = &base.Exit{Code: st.Exit(), Verdict: "lost-ignored", Why: reason(over), Message: fmt.Sprintf(
			"the lock on %s was lost while the command ran (%s); the command %s", base.Quote(j.lost(over)), reason(over), outcome(st))}
	case over != nil && (errors.Is(over, hasp.ErrNotHeld) || !time.Now().Before(leases.Deadline())):
		_ = j.release(leases) // as above
		end = lossOf(over, "LOST %s: %s. The command %s, but another may have worked at the same time", base.Quote(j.lost(over)), reason(over), outcome(st))
	default:
		if end == nil {
			end = j.mark(leases)
		}
		if lost := j.keep(leases, st, end); lost != nil {
			code := st.Exit()
			if end != nil { // also where --once could not be noted
				code = end.Code
			}
			end = j.unnoticed(lost, code, "the command "+outcome(st))
		}
	}
	if end == nil {
		return &st, nil
	}
	end.Interrupted = end.Code == st.Exit() && st.Signal == syscall.SIGINT
	end.Group = st.Keyboard
	return &st, end
}

// leftBehind says, before the keys are released, what of the command still runs.
func (j *job) leftBehind(st child.Status) {
	if len(st.Remaining) == 0 {
		return
	}
	after := ""
	if st.Signal != 0 || len(st.Passed) > 0 { // it was not left running by choice
		after = fmt.Sprintf(", %s after they were asked to end", people.Short(j.o.grace.D))
	}
	j.rep.say(problem, entry{Event: "left", Message: fmt.Sprintf("the command %s, and left these processes running%s: %s. %s is released, and they work on without it",
		outcome(st), after, strings.Join(st.Remaining, ", "), base.QuoteAll(j.keys))})
}

// left is for how long the command may still begin: not later than it would be ended.
func (j *job) left(leases held) time.Duration {
	if leases.Err() != nil {
		return 0
	}
	return time.Until(leases.Deadline()) - j.o.lead()
}

// late is the end of leases that were over before the command began: hasp was
// stopped, or the key taken away.
func (j *job) late(leases held) *base.Exit {
	over := leases.Err()
	j.silent = true
	_ = j.finish(leases.unused) // the leases expire when this fails
	return lossOf(over, "LOST %s: %s. The command was not started", base.Quote(j.lost(over)), reason(over))
}

// lossOf is the end by the loss of a lock.
func lossOf(over error, format string, args ...any) *base.Exit {
	end := &base.Exit{Code: base.ExitLost, Verdict: "lost", Why: reason(over), Message: fmt.Sprintf(format, args...)}
	if strings.HasPrefix(end.Why, "reached --max-hold") { // it was asked for, and the store is well
		end.Verdict = "lost-max-hold"
	}
	return end
}

// verdictOf is the end that the command itself chose; nil for success.
func verdictOf(keys []string, st child.Status) *base.Exit {
	if st.Exit() == 0 {
		return nil
	}
	verdict := "exited"
	if st.Signal != 0 {
		verdict = "signaled"
	}
	return &base.Exit{Code: st.Exit(), Verdict: verdict, Message: fmt.Sprintf("%s: the command %s", base.QuoteAll(keys), outcome(st))}
}

// outcome says how the command ended.
func outcome(st child.Status) string {
	if st.Signal != 0 {
		return fmt.Sprintf("was ended by signal %d (%v)", int(st.Signal), st.Signal)
	}
	return fmt.Sprintf("exited with status %d", st.Code)
}

// ending says why the command is ended, and how.
func (j *job) ending(leases held, pid int) child.Order {
	why := leases.Err()
	now := time.Now()
	until := now.Add(j.o.grace.D)
	left := func() time.Duration { return min(time.Until(until), time.Until(leases.Deadline())) }
	switch {
	case errors.Is(why, hasp.ErrNotHeld): // it is another's already: what is left is to give the command time to end well
		left = func() time.Duration { return time.Until(until) }
	case left() <= 0:
		left = func() time.Duration { return time.Until(now.Add(min(late, j.o.grace.D))) }
	}
	order := child.Order{Term: j.o.onLost.Word == lostTerm, Left: left}
	order.Refused = func(names []string) {
		j.rep.say(problem, entry{Event: "refused", Key: j.lost(why), Message: fmt.Sprintf(
			"hasp may not end these processes of %s, which may work on while another has %s: %s", j.o.whose("the"), base.Quote(j.lost(why)), strings.Join(names, ", "))})
	}
	order.Begun = func() {
		how := "KILL now"
		if order.Term {
			how = "TERM now, KILL in " + people.Short(left())
		}
		j.rep.say(problem, entry{Event: "lost", Key: j.lost(why), PID: pid, Error: why.Error(), Held: people.Seconds(time.Since(j.acquired)),
			Message: fmt.Sprintf("LOST %s: %s. Ending %s (pid %d): %s", base.Quote(j.lost(why)), reason(why), j.o.whose("the"), pid, how)})
	}
	return order
}

// ended is the end of a command that was ended.
func (j *job) ended(st child.Status, over error) *base.Exit {
	message := ", and the command was ended: it " + outcome(st)
	if st.Signal == 0 && j.candidate == nil {
		message += fmt.Sprintf(", and hasp exits with %d instead", base.ExitLost)
	}
	if len(st.Remaining) > 0 {
		what := "the command " + outcome(st)
		if st.Alive {
			what = "the command did not end"
		}
		message = fmt.Sprintf("; %s. These processes of it could not be ended and may still work: %s", what, strings.Join(st.Remaining, ", "))
	}
	return lossOf(over, "the lock on %s was lost (%s)%s", base.Quote(j.lost(over)), reason(over), message)
}

// lost is the key of the lease that is over.
func (j *job) lost(why error) string { return base.KeyOf(why, j.keys[0]) }

// unnoticed is the end of work under a lock that had been lost, as only the release found.
func (j *job) unnoticed(lost error, code int, ended string) *base.Exit {
	return &base.Exit{Code: code, Verdict: "lost-unnoticed", Why: reason(lost), Message: fmt.Sprintf(
		"%s, but the lock on %s had been lost: %s", ended, base.Quote(j.lost(lost)), reason(lost))}
}

// release releases the keys. Its failures are reported, and change no exit code: what
// counts is the command. lost: they were not ours any more, which nothing has reported.
func (j *job) release(leases held) (lost error) {
	switch err := j.finish(leases.Release); {
	case err == nil:
		j.rep.say(detail, entry{Event: "released", Held: people.Seconds(time.Since(j.acquired)),
			Message: fmt.Sprintf("released %s after %s", base.QuoteAll(j.keys), people.Short(time.Since(j.acquired)))})
	case j.silent: // the loss was reported
	default:
		for _, err := range each(err) {
			if errors.Is(err, hasp.ErrLost) {
				lost = cmp.Or(lost, err)
				continue
			}
			key := base.KeyOf(err, j.keys[0])
			j.rep.say(problem, entry{Event: "release-failed", Key: key, Error: err.Error(), Message: fmt.Sprintf(
				"%s could not be released: %s", base.Quote(key), reason(err))})
		}
	}
	return lost
}

// keep releases the keys, not before the time of --hold-at-least is over. lost: as of release; but not once the store has
// confirmed that the command ended under the lock.
func (j *job) keep(keys held, st child.Status, end *base.Exit) (lost error) {
	rest := j.o.atLeast.D - time.Since(j.acquired)
	leases, ok := keys.(*storeLeases)
	if rest <= 0 || !ok || end != nil && end.Verdict == unmarked { // an agent is not asked to keep any, and what is abandoned is free
		return j.release(keys)
	}
	j.keeping.Store(true)
	if lost = j.finish(func() error { return j.confirm(leases) }); errors.Is(lost, hasp.ErrLost) {
		j.silent = true
		_ = j.release(leases) // the other keys
		return lost
	}
	j.measureEnd(&st, cmp.Or(end, endOf(nil)))
	message := fmt.Sprintf("the command %s; keeping %s for another %s (--hold-at-least)", outcome(st), base.QuoteAll(j.keys), people.Short(rest))
	if end != nil {
		var all []string // with --once also the key of its work
		for _, one := range leases.All() {
			all = append(all, j.o.store.Again("break", one.Key(), "--owner", one.Owner()))
		}
		message += ". To run it again before that: " + strings.Join(all, " && ")
	}
	j.rep.say(normal, entry{Event: "keeping", Left: people.Seconds(rest), Message: message})
	sig := j.received // meanwhile
	if sig == nil {
		select {
		case <-time.After(j.o.atLeast.D - time.Since(j.acquired)):
			lost = j.release(leases)
		case <-leases.Done():
			lost, j.silent = leases.Err(), true
			_ = j.release(leases) // of no matter now
		case sig = <-j.signals:
		}
	}
	switch {
	case sig != nil:
		j.leaveToStore(leases, sig, j.o.atLeast.D-time.Since(j.acquired))
	case errors.Is(lost, hasp.ErrLost):
		j.rep.say(normal, entry{Event: "unkept", Key: j.lost(lost), Error: reason(lost), Message: fmt.Sprintf(
			"%s was not kept for all of --hold-at-least: %s. The command had ended before, under the lock", base.Quote(j.lost(lost)), reason(lost))})
	}
	return nil
}

// confirm asks the store whether the keys are held at the end of the command, and has it keep them as a reader's.
func (j *job) confirm(leases *storeLeases) error {
	ctx, cancel := context.WithTimeout(context.Background(), base.AskLimit)
	defer cancel()
	for _, lease := range leases.All() {
		if _, err := share(ctx, lease, j.o.ttl.D); errors.Is(err, hasp.ErrLost) {
			return err
		}
	}
	return nil
}

// share has the store keep a key for ttl from now. The command has ended, so that nothing is
// abandoned: the lease becomes a reader's, whose end leaves no mark. marked: it may.
func share(ctx context.Context, lease *hasp.Lease, ttl time.Duration) (marked bool, err error) {
	if err := insist(ctx, func(ctx context.Context) error { return lease.Extend(ctx, ttl) }); err != nil {
		return true, err
	}
	reads := lease.Downgrade(ctx)
	if errors.Is(reads, hasp.ErrLost) {
		err = reads
	}
	return reads != nil, err
}

// leaveToStore has the store keep the keys for the rest of --hold-at-least, so that hasp
// can end at once. The store counts from now.
func (j *job) leaveToStore(leases *storeLeases, sig os.Signal, rest time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), base.AskLimit)
	defer cancel()
	// What is left of a lease has to be more than its lead, and its drift of a
	// hundredth. No store shortens it.
	ttl := max(rest+rest/50+j.o.grace.D+j.o.grace.D/50+100*time.Millisecond, j.o.ttl.D)
	for_ := people.Short(ttl)
	if most := j.from.Traits().MaxTTL; most > 0 && ttl > most {
		ttl, for_ = most, people.Short(most)+" only, the longest that it allows"
	}
	j.leave = true
	var wg sync.WaitGroup
	for _, lease := range leases.All() {
		wg.Go(func() {
			key := lease.Key()
			e := entry{Event: "leaving", Key: key, Left: people.Seconds(ttl),
				Message: fmt.Sprintf("leaving (%v); the store keeps %s for another %s", sig, base.Quote(key), for_)}
			marked, err := share(ctx, lease, ttl)
			switch {
			case err == nil && (marked || j.o.slots > 0) && j.from.Traits().MarksAbandoned:
				e.Message += "; its next holder may be told that it was abandoned"
			case err != nil:
				e.Error = err.Error()
				e.Message = fmt.Sprintf("leaving (%v), but the store does not keep %s: %s", sig, base.Quote(key), reason(err))
			}
			j.rep.say(problem, e)
		})
	}
	wg.Wait()
}

// insist asks until the store has answered, or ctx ends: for a request that is not
// repeated later.
func insist(ctx context.Context, ask func(context.Context) error) error {
	pause := backoff.Backoff{Least: 20 * time.Millisecond, Most: time.Second}
	for {
		err := ask(ctx)
		var e *hasp.Error
		again := errors.As(err, &e) && e.Class != driver.ClassImpossible
		if !again || errors.Is(err, hasp.ErrLost) || !pause.Wait(ctx.Done()) {
			return err
		}
	}
}

func (j *job) renewed(e *event.Event) {
	l := detail
	j.mu.Lock()
	if j.failing[e.Key] {
		l, j.failing[e.Key] = normal, false
	}
	j.mu.Unlock()
	j.rep.say(l, entry{Event: "renewed", Key: e.Key, Left: people.Seconds(e.Left),
		Message: fmt.Sprintf("renewed %s, good for %s", base.Quote(e.Key), people.Short(e.Left))})
}

// renewFailed says, once for an outage, that the lease is at risk.
func (j *job) renewFailed(e *event.Event) {
	l := detail
	j.mu.Lock()
	if !j.failing[e.Key] && e.Left < j.o.ttl.D/2 {
		l, j.failing[e.Key] = normal, true
	}
	j.mu.Unlock()
	why, what := reason(e.Err), j.o.whose("the")+" is ended"
	if err := (*hasp.Error)(nil); errors.As(e.Err, &err) && err.Class == driver.ClassLogin {
		why = plain.Then(why, j.from.(*storeKeys).URL.CheckLogin(err)) // an agent renews unseen
	}
	if j.keeping.Load() {
		what = "it is no longer kept"
	}
	j.rep.say(l, entry{Event: "renew-failed", Key: e.Key, Left: people.Seconds(e.Left), Error: e.Err.Error(), Message: plain.Then(fmt.Sprintf(
		"cannot renew %s, asking again: %s", base.Quote(e.Key), why), fmt.Sprintf("Unless it is renewed, %s in %s", what, people.Short(e.Left)))})
}

// each returns the errors that errors.Join put together.
func each(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok { // only the outermost is a list of equals
		return all.Unwrap()
	}
	return []error{err}
}

// reason is an error of the library without what its reader knows.
func reason(err error) string {
	var e *hasp.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	return strings.TrimPrefix(plain.Error(err), hasp.ErrLost.Error()+": ")
}
