// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
)

// late is how long a command has to hear SIGTERM when the lease was over before
// hasp could tell it (hasp was stopped, or the machine slept).
const late = 500 * time.Millisecond

// hold runs the command while the lease lasts.
func (j *job) hold(lease *hasp.Lease) (*child.Status, error) {
	spec := child.Spec{
		Path: j.path, Argv: j.argv, Env: j.environment(lease), Signals: j.signals,
		Ending:  func(pid int) child.Order { return j.ending(lease, pid) },
		Resumed: func() { _ = lease.Err() }, // asks the clock, and closes Done when it is too late
	}
	if j.o.onLost.word != lostIgnore {
		spec.End = lease.Done()
	}
	st, err := child.Run(spec)
	if err != nil {
		j.release(lease)
		return nil, startError(j.argv[0], err)
	}
	over := lease.Err()
	j.hopeless = over != nil // most often because the store is gone
	if st.Ordered {
		j.release(lease)
		return &st, j.ended(st)
	}
	j.rep.say(detail, event{Event: "ended", Held: time.Since(j.acquired).Seconds(),
		Message: fmt.Sprintf("the command %s", outcome(st))})
	end := verdictOf(j.key, st)
	switch {
	case over != nil && j.o.onLost.word == lostIgnore:
		j.release(lease)
		end = &exit{code: st.Exit(), verdict: "lost-ignored", message: fmt.Sprintf(
			"the lock on %s was lost while the command ran (%s); the command %s", quote(j.key), reason(over), outcome(st))}
	case over != nil && (errors.Is(over, hasp.ErrNotHeld) || !time.Now().Before(lease.Deadline())):
		j.release(lease)
		end = &exit{code: exitLost, verdict: "lost", message: fmt.Sprintf(
			"LOST %s: %s. The command %s, but another may have worked at the same time", quote(j.key), reason(over), outcome(st))}
	default:
		j.keep(lease, st)
	}
	if end == nil {
		return &st, nil
	}
	end.interrupted = end.code == st.Exit() && st.Signal == syscall.SIGINT
	end.group = st.Keyboard
	return &st, end
}

// verdictOf is the end that the command itself chose; nil for success.
func verdictOf(key string, st child.Status) *exit {
	if st.Exit() == 0 {
		return nil
	}
	verdict := "exited"
	if st.Signal != 0 {
		verdict = "signaled"
	}
	return &exit{code: st.Exit(), verdict: verdict, message: fmt.Sprintf("%s: the command %s", quote(key), outcome(st))}
}

// outcome says how the command ended.
func outcome(st child.Status) string {
	if st.Signal != 0 {
		return fmt.Sprintf("was ended by signal %d (%v)", int(st.Signal), st.Signal)
	}
	return fmt.Sprintf("exited with status %d", st.Code)
}

// ending says why the command is ended, and how.
func (j *job) ending(lease *hasp.Lease, pid int) child.Order {
	why := lease.Err()
	left := func() time.Duration { return time.Until(lease.Deadline()) }
	now := time.Now()
	switch {
	case errors.Is(why, hasp.ErrNotHeld): // it is another's already: only the command's own good counts
		left = func() time.Duration { return time.Until(now.Add(j.o.grace.d)) }
	case left() <= 0:
		left = func() time.Duration { return time.Until(now.Add(min(late, j.o.grace.d))) }
	}
	order := child.Order{Term: j.o.onLost.word == lostTerm, Left: left}
	how := "KILL now"
	if order.Term {
		how = "TERM now, KILL in " + short(left())
	}
	j.rep.say(problem, event{Event: "lost", PID: pid, Error: why.Error(), Held: time.Since(j.acquired).Seconds(),
		Message: fmt.Sprintf("LOST %s: %s. Ending the command (pid %d): %s", quote(j.key), reason(why), pid, how)})
	return order
}

// ended is the end of a command that was ended.
func (j *job) ended(st child.Status) *exit {
	message := fmt.Sprintf("the lock on %s was lost, and the command was ended: it %s", quote(j.key), outcome(st))
	if len(st.Remaining) > 0 {
		pids := make([]string, len(st.Remaining))
		for i, pid := range st.Remaining {
			pids[i] = strconv.Itoa(pid)
		}
		message += fmt.Sprintf(". These processes of it could not be ended and may still work: pid %s", strings.Join(pids, ", "))
	}
	return &exit{code: exitLost, verdict: "lost", message: message}
}

// release gives the key back. What goes wrong with it is said, and no more: the
// command is what counts.
func (j *job) release(lease *hasp.Lease) {
	switch err := j.finish(lease.Release); {
	case err == nil:
		j.rep.say(detail, event{Event: "released", Held: time.Since(j.acquired).Seconds(),
			Message: fmt.Sprintf("released %s after %s", quote(j.key), short(time.Since(j.acquired)))})
	case j.hopeless || errors.Is(err, hasp.ErrLost): // the loss was told
	default:
		j.rep.say(problem, event{Event: "release-failed", Error: err.Error(), Message: fmt.Sprintf(
			"%s could not be released: %s", quote(j.key), reason(err))})
	}
}

// keep releases the key, not before the time of --hold-at-least is over.
func (j *job) keep(lease *hasp.Lease, st child.Status) {
	rest := j.o.atLeast.d - time.Since(j.acquired)
	if rest <= 0 {
		j.release(lease)
		return
	}
	j.rep.say(normal, event{Event: "keeping", Left: rest.Seconds(), Message: fmt.Sprintf(
		"the command %s; keeping %s for another %s (--hold-at-least)", outcome(st), quote(j.key), short(rest))})
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
		j.release(lease)
	case <-lease.Done():
		j.rep.say(problem, event{Event: "lost", Error: lease.Err().Error(), Message: fmt.Sprintf(
			"LOST %s: %s. The command had ended before", quote(j.key), reason(lease.Err()))})
		j.release(lease)
	case sig := <-j.signals:
		j.bequeath(lease, sig, j.o.atLeast.d-time.Since(j.acquired))
	}
}

// bequeath leaves the key to the store for the rest of its time, so that hasp
// can go at once and still keep its word. The store counts from now.
func (j *job) bequeath(lease *hasp.Lease, sig os.Signal, rest time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	// What is left of a lease has to be more than its lead, and its drift of a
	// hundredth.
	ttl := rest + rest/50 + j.o.grace.d + j.o.grace.d/50 + 100*time.Millisecond
	for_ := short(ttl)
	if most := j.locks.Traits().MaxTTL; most > 0 && ttl > most {
		ttl, for_ = most, short(most)+" only, the longest that it allows (max-ttl)"
	}
	err := insist(ctx, func(ctx context.Context) error { return lease.Extend(ctx, ttl) })
	j.leave = true
	message := fmt.Sprintf("leaving (%v); the store keeps %s for another %s", sig, quote(j.key), for_)
	e := event{Event: "leaving", Left: ttl.Seconds(), Message: message}
	if err != nil {
		e.Error = err.Error()
		e.Message = fmt.Sprintf("leaving (%v), but the store could not be told to keep %s: %s", sig, quote(j.key), reason(err))
	}
	j.rep.say(problem, e)
}

// insist asks until the store has answered, or ctx ends: for what is asked once,
// and by nobody later.
func insist(ctx context.Context, ask func(context.Context) error) error {
	for pause := 20 * time.Millisecond; ; pause *= 2 {
		err := ask(ctx)
		var e *hasp.Error
		again := errors.As(err, &e) && (e.Class == hasp.Unreachable || e.Class == hasp.Unknown)
		if !again || errors.Is(err, hasp.ErrLost) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

func (j *job) renewed(e hasp.Event) {
	l := detail
	j.mu.Lock()
	if j.failing {
		l, j.failing = normal, false
	}
	j.mu.Unlock()
	j.rep.say(l, event{Event: "renewed", Left: e.Left.Seconds(),
		Message: fmt.Sprintf("renewed %s, good for %s", quote(j.key), short(e.Left))})
}

// renewFailed says, once for an outage, that the lease is at risk.
func (j *job) renewFailed(e hasp.Event) {
	l := detail
	j.mu.Lock()
	if !j.failing && e.Left < j.o.ttl.d/2 {
		l, j.failing = normal, true
	}
	j.mu.Unlock()
	j.rep.say(l, event{Event: "renew-failed", Left: e.Left.Seconds(), Error: e.Err.Error(), Message: fmt.Sprintf(
		"cannot renew %s, asking again: %v. Without an answer the command is ended in %s", quote(j.key), e.Err, short(e.Left))})
}

// reason is an error of the library without what its reader knows.
func reason(err error) string {
	var e *hasp.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	return strings.TrimPrefix(err.Error(), hasp.ErrLost.Error()+": ")
}

// environment is the command's: ours, with what it may want to know of the
// lock. Values of an outer hasp run never show through. HASP_STORE stays as it
// is, so that a hasp within the command means the same store.
func (j *job) environment(lease *hasp.Lease) []string {
	own := []string{
		"HASP_KEY=" + j.key,
		"HASP_FENCE=" + strconv.FormatUint(lease.Fence(), 10),
		"HASP_OWNER=" + lease.Owner(),
		"HASP_STORE_KIND=" + j.locks.Traits().Engine,
	}
	var env []string
	for _, v := range os.Environ() {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "HASP_KEY", "HASP_FENCE", "HASP_OWNER", "HASP_SLOT", "HASP_STORE_KIND":
		default:
			env = append(env, v)
		}
	}
	return append(env, own...)
}
