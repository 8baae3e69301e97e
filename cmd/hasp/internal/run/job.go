// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/audit"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/pipe"
	"github.com/spf13/cobra"
)

// job is one run of hasp run; or of hasp elect, which holds the key again and again.
type job struct {
	o    *options
	rep  *report
	keys []string // each once
	path string   // of the command
	argv []string // of the command
	from source
	wait *watcher

	inherited []string        // the variables that name the source to the command
	around    []string        // owners of the leases under which we run
	blocked   chan *base.Exit // only those can release the key
	looking   atomic.Bool     // whether it is so

	signals <-chan os.Signal

	audit     *audit.Log // of losses
	via       string     // the command that it names
	recording sync.WaitGroup

	once      *hasp.Once // of --once, else nil
	done      time.Time  // when another run did the occurrence; zero: none had
	candidate *candidate // of hasp elect, else nil
	acquired  time.Time
	worked    time.Duration // how long the command ran
	keeping   atomic.Bool   // it has ended, and --hold-at-least keeps the keys
	metrics   *jobMetrics   // nil: without --metrics-file
	leave     bool          // go without releasing
	silent    bool          // the store did not answer: do not wait long for it
	received  os.Signal     // the latest that came while nothing of the command ran

	mu      sync.Mutex
	failing map[string]bool // keys that cannot be renewed, of which that was said

	recordedOf map[string]bool // owners whose loss is, or is being, recorded
	closing    bool            // no later record is waited for
}

// newJob returns a job, which catches signals until stop is called.
func newJob(o *options, keys, argv []string) (j *job, stop func()) {
	rep := newReport(o, keys, os.Stderr)
	if !o.reasoned {
		o.reason = filepath.Base(argv[0])
	}
	signals, stop := child.Notify()
	return &job{o: o, rep: rep, keys: keys, argv: argv, signals: signals, wait: newWatcher(rep), around: surrounding(), blocked: make(chan *base.Exit, 1), failing: map[string]bool{}, recordedOf: map[string]bool{}}, stop
}

// run is hasp run: it waits for the keys, holds them while the command runs, and
// says with the last line and the exit code how it ended.
func run(cmd *cobra.Command, o *options, keys, argv []string) error {
	j, stop := newJob(o, keys, argv)
	defer stop()
	if o.metrics != "" {
		if filepath.Ext(o.metrics) != ".prom" {
			j.rep.say(problem, entry{Event: "metrics-failed", Message: fmt.Sprintf("warning: node_exporter reads no --metrics-file but *.prom, and this is %s", base.Quote(o.metrics))})
		}
		j.metrics = &jobMetrics{path: o.metrics, label: jobLabel(keys, o.metrics), figures: noFigures()}
	}
	status, err := j.all(cmd, j.single)
	j.measureEnd(status, endOf(err))
	j.measured()
	return j.rep.verdict(status, err)
}

// all does everything. The status is nil when the command did not run.
func (j *job) all(cmd *cobra.Command, work func() (*child.Status, error)) (status *child.Status, err error) {
	path := ""
	if err = j.heard(func() (err error) { path, err = find(j.argv[0]); return err }); err != nil {
		return nil, err
	}
	j.path = path
	return j.opened(cmd, func() (*child.Status, error) {
		inherited, remove, err := j.from.inherit()
		if err != nil {
			return nil, base.Failed("%v", err)
		}
		defer remove()
		j.inherited = inherited
		if limits := child.Limits(); limits != "" {
			j.rep.say(normal, entry{Event: "limits", Message: limits})
		}
		if child.Gains(j.path) {
			j.rep.say(normal, entry{Event: "limits", Message: base.Quote(j.argv[0]) + " gets other rights than hasp has (setuid, setgid or file capabilities): " +
				"kill -9 of hasp does not end it, and what it starts as another user may work on when the lock is lost"})
		}
		return work()
	})
}

// opened does something with the store, or the agent, open, and the flags checked.
func (j *job) opened(cmd *cobra.Command, work func() (*child.Status, error)) (status *child.Status, err error) {
	if err := child.Room(); err != nil { // before anything is acquired
		return nil, base.Failed("%v", err)
	}
	j.via = "hasp " + cmd.Name()
	j.o.store.Warn = func(message string) { j.rep.say(problem, entry{Event: "state", Message: message}) }
	var log *audit.Log
	var from source
	if err = j.heard(func() (err error) {
		if log, err = j.o.audit.Open(); err == nil {
			from, err = j.open(cmd)
		}
		return err
	}); err != nil {
		return nil, err
	}
	j.audit, j.from = log, from
	j.wait.store, j.wait.most = j.from.String(), j.o.wait.D
	j.wait.never = j.o.now || j.o.wait.Given && j.o.wait.D == 0
	defer func() {
		if !j.leave {
			j.closeLocks()
		}
		j.recorded()
	}()
	j.rep.say(detail, entry{Event: "store", Message: fmt.Sprintf("the store is %s (%s)", j.from, j.from.found())})
	lo, err := j.o.lockOptions(j.from)
	if err != nil {
		return nil, err
	}
	j.from.name(j.o, j.keys, lo)
	if s, ok := j.from.(*storeKeys); ok && j.o.occurrence != "" {
		j.once = s.Once(j.keys[0], j.o.occurrence, j.o.remember.D, lo)
		s.lockers, s.once = j.once.Locks(), true
	}
	return work()
}

// heard reads files, which may hang, and returns as soon as a signal comes: nothing is held yet.
func (j *job) heard(read func() error) error {
	done := make(chan error, 1)
	go func() { done <- read() }()
	for {
		select {
		case err := <-done:
			return err
		case end := <-j.blocked:
			return end
		case sig := <-j.signals:
			if j.ends(sig) {
				return j.interrupted(base.Signaled{Sig: sig.(syscall.Signal)})
			}
		}
	}
}

// single waits for the keys and holds them while the command runs.
func (j *job) single() (*child.Status, error) {
	if err := j.marked(true); err != nil {
		return nil, err
	}
	j.wait.begin()
	leases, err := j.acquire()
	if err != nil {
		return nil, err
	}
	if err := j.marked(false); err != nil {
		_ = j.finish(leases.unused) // the leases expire when this fails
		return nil, err
	}
	j.measureStart()
	return j.hold(leases)
}

// closeLocks waits until nothing of ours is left in the store.
func (j *job) closeLocks() {
	_ = j.finish(j.from.Close) // every lease was released, or its loss was reported
}

var errReleaseUnanswered = errors.New("the store does not answer, and keeps the key until its TTL is over")

// finish runs a last request to the store, within the limits of the library. It does
// not wait for so long where the store is silent, or when another signal comes: what
// is left in the store expires.
func (j *job) finish(request func() error) error {
	done := make(chan error, 1)
	go func() { done <- request() }()
	var limit <-chan time.Time
	if j.silent {
		limit = time.After(base.SilentLimit)
	}
	for {
		select {
		case err := <-done:
			return err
		case <-limit:
			return errReleaseUnanswered
		case sig := <-j.signals:
			if j.ends(sig) {
				j.received = sig
				limit = time.After(base.SilentLimit)
			}
		}
	}
}

// interrupted is the end by a signal while no command runs.
func (j *job) interrupted(s base.Signaled) *base.Exit {
	return &base.Exit{Code: 128 + int(s.Sig), Verdict: "interrupted", Interrupted: s.Sig == syscall.SIGINT,
		Message: fmt.Sprintf("gave up waiting for %s: %v", base.QuoteAll(j.keys), s)}
}

// acquire waits for the keys, for as long as the flags allow and no signal
// comes.
func (j *job) acquire() (held, error) {
	defer j.wait.end()
	defer extendStart()()
	leases, err := j.asking()
	if end := (*base.Exit)(nil); errors.As(err, &end) {
		return nil, end
	}
	if err != nil {
		return nil, j.refused(err)
	}
	j.acquired = time.Now()
	j.won(leases.keys(), j.wait.end())
	return leases, nil
}

// asking asks for the keys, and releases what it has when a signal comes; another
// signal ends the wait for that.
func (j *job) asking() (held, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var leases held
	done := make(chan error, 1)
	go func() {
		var err error
		leases, err = j.ask(ctx)
		done <- err
	}()
	var sig *base.Signaled
	var own *base.Exit
	for { // from the answer on, signals are the command's
		select {
		case err := <-done:
			switch {
			case sig != nil:
			case own != nil && err != nil:
				return nil, own
			default:
				return leases, err
			}
			if err == nil {
				_ = j.finish(leases.unused) // the leases expire when this fails
			}
			return nil, j.interrupted(*sig)
		case own = <-j.blocked:
			cancel(own)
		case s := <-j.signals:
			switch {
			case !j.ends(s):
			case sig == nil:
				sig = &base.Signaled{Sig: s.(syscall.Signal)}
				cancel(*sig)
			default:
				j.silent = true
				return nil, j.interrupted(*sig)
			}
		}
	}
}

// ask asks for the keys as the flags say.
func (j *job) ask(ctx context.Context) (held, error) {
	for began, wait := time.Now(), forEver; ; {
		switch {
		case j.wait.never:
			wait = 0
		case j.o.wait.Given:
			wait = max(j.o.wait.D-time.Since(began), 1)
		}
		leases, err := j.from.ask(ctx, wait)
		if !errors.Is(err, hasp.ErrLost) || ctx.Err() != nil || wait >= 0 && time.Since(began) >= j.o.wait.D {
			return leases, err
		}
		// One of several keys was lost while we waited for another, with no command
		// at work under it: the store was away for too long.
	}
}

// won reports that the keys are ours. said: a message said that we wait for them.
func (j *job) won(leases []leaseJSON, said bool) {
	l, what := detail, "acquired"
	if said {
		l = normal // a user that read that we wait wants to read that it is over
	}
	if j.candidate != nil {
		l, what = normal, "leading"
	}
	waited := j.acquired.Sub(j.wait.began)
	e := entry{Event: "acquired", Fence: leases[0].Fence, Owner: leases[0].Owner, Waited: people.Seconds(waited), Leases: leases}
	fences, slots, left := make([]string, len(leases)), make([]string, len(leases)), []string(nil)
	for i, lease := range leases {
		if fences[i] = fmt.Sprint(lease.Fence); lease.Slot != nil {
			slots[i] = fmt.Sprint(*lease.Slot)
		}
		if lease.Abandoned {
			left = append(left, lease.Key)
		}
	}
	words := ""
	if j.from.Traits().Fencing {
		words = "fence " + strings.Join(fences, " and ") + ", "
	}
	if j.o.slots > 0 {
		words += "slot " + strings.Join(slots, " and ") + ", "
	}
	e.Message = fmt.Sprintf("%s %s after %s (%sTTL %v)", what, base.QuoteAll(j.keys), people.Short(waited), words, j.o.ttl.D)
	j.rep.say(l, e)
	if len(left) > 0 {
		test := "HASP_ABANDONED=1"
		if j.o.forShell {
			test = "hasp held --print abandoned"
		}
		j.rep.say(normal, entry{Event: "abandoned", Key: left[0], Message: fmt.Sprintf(
			"a previous holder of %s did not release it: what it worked on may need repair (%s)", base.QuoteAll(left), test)})
	}
}

// refused turns the error of an acquisition into an end.
func (j *job) refused(err error) error {
	var held *hasp.HeldError
	if !errors.As(err, &held) {
		end := j.from.trouble(err)
		if errors.As(err, new(*hasp.WaitError)) {
			end.Message = fmt.Sprintf("gave up after %s: %s", people.Short(time.Since(j.wait.began)), end.Message)
		}
		j.silent = end.Passes
		return end
	}
	for_ := ""
	if !j.o.now && j.o.wait.D > 0 {
		for_ = fmt.Sprintf(" after %s", people.Short(time.Since(j.wait.began)))
	}
	key := base.KeyOf(err, j.keys[0])
	if slices.Contains(j.around, held.Holder.Owner) {
		return j.own(key, held.Holder)
	}
	text := base.Quote(key) + " " + base.Obstacle(held.Holder, held.Left, held.Ahead)
	if said := (*pipe.Error)(nil); errors.As(err, &said) { // it knows more of the lease
		text = said.Message
	}
	return &base.Exit{Code: j.o.busyCode, Verdict: "busy", Message: fmt.Sprintf("busy%s: %s. Look: %s", for_, text, j.o.store.Again("show", key))}
}

// observe turns the library's events into messages.
func (j *job) observe(_ context.Context, e *event.Event) {
	if c := j.candidate; c != nil && (e.Kind == event.Waiting || e.Kind == event.Acquired) {
		c.answered.Store(true)
	}
	switch e.Kind {
	case event.Waiting:
		j.wait.refused(e)
		j.look(e.Key)
	case event.Trouble, event.HeldBack:
		j.wait.troubled(e)
	case event.Renewed:
		j.renewed(e)
	case event.RenewFailed:
		j.renewFailed(e)
	case event.Released:
		if errors.Is(e.Err, hasp.ErrNotHeld) || errors.Is(e.Err, hasp.ErrLost) { // only now was that found
			j.recordLost(e)
		}
	case event.Lost:
		j.recordLost(e)
		if j.o.onLost.Word == lostIgnore && !j.keeping.Load() {
			j.rep.say(problem, entry{Event: "lost", Key: e.Key, Error: e.Err.Error(), Held: people.Seconds(e.Held),
				Message: fmt.Sprintf("LOST %s: %s. %s goes on without the lock (--on-lost=ignore)", base.Quote(e.Key), reason(e.Err), j.o.whose("The"))})
		}
	}
}

// recordLost has the loss of a lease recorded, once. It does not wait for that.
func (j *job) recordLost(e *event.Event) {
	if j.audit == nil {
		return
	}
	r := audit.Record{
		Event: audit.Lost, Via: j.via, By: audit.Self(), Store: j.from.String(), Key: e.Key, Owner: e.Owner, Fence: e.Fence,
		Held: people.Seconds(e.Held), Reason: j.o.reason, Error: reason(e.Err),
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closing || j.recordedOf[e.Owner] {
		return
	}
	j.recordedOf[e.Owner] = true
	j.recording.Go(func() {
		if err := j.audit.Write(r); err != nil {
			j.rep.say(problem, entry{Event: "unrecorded", Key: e.Key, Error: err.Error(),
				Message: fmt.Sprintf("the loss of %s is not recorded: %v", base.Quote(e.Key), err)})
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
	case <-time.After(base.FlushLimit):
	}
}
