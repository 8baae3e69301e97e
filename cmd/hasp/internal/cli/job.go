// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/spf13/cobra"
)

// hopelessLimit is how long hasp tries to tell a store that does not answer that
// it is gone.
const hopelessLimit = 500 * time.Millisecond

// job is one hasp run.
type job struct {
	o       *options
	rep     *report
	key     string
	path    string   // of the command
	argv    []string // of the command
	locks   *locks
	mutex   *hasp.Mutex
	wait    *watcher
	signals <-chan os.Signal

	acquired time.Time
	leave    bool // go without releasing
	hopeless bool // the store did not answer: don't wait long to tell it anything

	mu      sync.Mutex
	failing bool // renewals fail, and that was said
}

// run is hasp run: it waits for the key, holds it while the command runs, and
// says with the last line and the exit code how it ended.
func run(cmd *cobra.Command, o *options, key string, argv []string) error {
	rep := &report{key: key, json: o.output.word == "json", quiet: o.quiet, verbose: o.verbose, w: os.Stderr}
	signals, stop := child.Notify()
	defer stop()
	j := &job{o: o, rep: rep, key: key, argv: argv, signals: signals, wait: newWatcher(rep)}
	status, err := j.all(cmd)
	return rep.verdict(status, err)
}

// verdict says how it ended, as the last line, and returns what is left for
// Main to do.
func (r *report) verdict(status *child.Status, err error) error {
	var end *exit
	if !errors.As(err, &end) {
		end = &exit{verdict: "failed", code: exitFailed}
		if err == nil {
			end = &exit{verdict: "exited"}
		} else {
			end.message = err.Error()
		}
	}
	l := problem
	switch end.verdict {
	case "exited", "signaled", "busy", "interrupted":
		l = normal
	}
	if r.json { // programs wait for this line
		l = problem
	}
	e := event{Event: "exit", Message: end.message, Code: &end.code, Verdict: end.verdict}
	if status != nil {
		code := status.Exit()
		e.Status = &code
	}
	r.say(l, e)
	if end.code == 0 && end.message == "" {
		return nil
	}
	return &exit{code: end.code, interrupted: end.interrupted, group: end.group}
}

// all does everything. The status is nil when the command did not run.
func (j *job) all(cmd *cobra.Command) (status *child.Status, err error) {
	if j.path, err = find(j.argv[0]); err != nil {
		return nil, err
	}
	j.locks, err = j.o.store.open(cmd, j.observe)
	if err != nil {
		return nil, err
	}
	defer func() {
		if !j.leave {
			j.closeLocks()
		}
	}()
	lo, err := j.o.lockOptions(j.locks)
	if err != nil {
		return nil, err
	}
	j.mutex = j.locks.Mutex(j.key, lo)
	lease, err := j.acquire()
	if err != nil {
		return nil, err
	}
	return j.hold(lease)
}

// closeLocks waits until nothing of ours is left in the store.
func (j *job) closeLocks() {
	_ = j.finish(j.locks.Close) // every lease was released, or its loss was told
}

var errUntold = errors.New("the store does not answer, and keeps the key until its TTL is over")

// finish tells the store something, within the limits of the library. Where
// there is little hope, or another signal comes, it does not wait for so long:
// the store forgets us by itself, later.
func (j *job) finish(tell func() error) error {
	done := make(chan error, 1)
	go func() { done <- tell() }()
	var limit <-chan time.Time
	if j.hopeless {
		limit = time.After(hopelessLimit)
	}
	for {
		select {
		case err := <-done:
			return err
		case <-limit:
			return errUntold
		case <-j.signals:
			limit = time.After(hopelessLimit)
		}
	}
}

// signaled is the cause of a wait that a signal ended.
type signaled struct{ sig syscall.Signal }

func (s signaled) Error() string { return fmt.Sprintf("signal %d (%v)", int(s.sig), s.sig) }

// acquire waits for the key, for as long as the flags allow and no signal
// comes.
func (j *job) acquire() (*hasp.Lease, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	waited, listened := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(listened)
		select {
		case sig := <-j.signals:
			cancel(signaled{sig.(syscall.Signal)})
		case <-waited:
		}
	}()
	lease, err := j.ask(ctx)
	close(waited)
	<-listened // from here on, signals are the command's
	said := j.wait.end()
	var sig signaled
	if errors.As(context.Cause(ctx), &sig) {
		if lease != nil {
			_ = lease.Release() // the store ends it by itself when this fails
		}
		return nil, &exit{code: 128 + int(sig.sig), verdict: "interrupted", interrupted: sig.sig == syscall.SIGINT,
			message: fmt.Sprintf("gave up waiting for %s: %v", quote(j.key), sig)}
	}
	if err != nil {
		return nil, j.refused(err)
	}
	j.acquired = time.Now()
	l := detail
	if said {
		l = normal // whoever read that we wait wants to read that it is over
	}
	waitedFor := j.acquired.Sub(j.wait.began)
	j.rep.say(l, event{Event: "acquired", Fence: lease.Fence(), Owner: lease.Owner(), Waited: waitedFor.Seconds(),
		Message: fmt.Sprintf("acquired %s after %s (fence %d, TTL %v)", quote(j.key), short(waitedFor), lease.Fence(), j.o.ttl.d)})
	return lease, nil
}

// ask asks for the key as the flags say.
func (j *job) ask(ctx context.Context) (*hasp.Lease, error) {
	if j.o.now || j.o.wait.set && j.o.wait.d == 0 {
		return j.mutex.TryLock(ctx)
	}
	if j.o.wait.set {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, j.o.wait.d)
		defer cancel()
	}
	return j.mutex.Lock(ctx)
}

// refused turns the error of an acquisition into an end.
func (j *job) refused(err error) error {
	var held *hasp.HeldError
	if !errors.As(err, &held) {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w (within -w %v)", err, j.o.wait.d)
		}
		end := trouble(j.locks.url, err)
		j.hopeless = end.code == exitUnreachable
		return end
	}
	for_ := ""
	if !j.o.now && j.o.wait.d > 0 {
		for_ = fmt.Sprintf(" after %s", short(time.Since(j.wait.began)))
	}
	return &exit{code: j.o.busyCode.code, verdict: "busy", message: fmt.Sprintf("busy%s: %s is %s. Look: %s", for_,
		quote(j.key), obstacle(held.Holder, held.Left, held.Ahead), j.o.store.again("show", j.key))}
}

// observe turns what the library tells into lines.
func (j *job) observe(e hasp.Event) {
	switch e.Kind {
	case hasp.EventWaiting:
		j.wait.refused(e)
	case hasp.EventTrouble:
		j.wait.troubled(e)
	case hasp.EventRenewed:
		j.renewed(e)
	case hasp.EventRenewFailed:
		j.renewFailed(e)
	case hasp.EventLost:
		if j.o.onLost.word == lostIgnore {
			j.rep.say(problem, event{Event: "lost", Error: e.Err.Error(), Held: e.Held.Seconds(),
				Message: fmt.Sprintf("LOST %s: %s. The command goes on without the lock (--on-lost=ignore)", quote(j.key), reason(e.Err))})
		}
	}
}
