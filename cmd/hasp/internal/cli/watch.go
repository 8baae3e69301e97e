// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/screen"
	"github.com/hasplock/hasp/internal/plain"
)

// leastWatch is the least time between two lists of --watch: each may make the
// store look at all that it has.
const leastWatch = 100 * time.Millisecond

// listed is a list, or why there is none.
type listed struct {
	infos []hasp.Info
	err   error
}

// watching is hasp ls --watch.
type watching struct {
	locks  *locks
	prefix string
	every  time.Duration
	out    outbox
	ends   ends

	draws   bool // on a terminal
	entered bool // which shows it

	seen    []hasp.Info
	at      time.Time // of seen; zero before the first
	trouble *exit     // why the latest list failed
	since   time.Time // the first of such failures
}

// watch lists again and again, until a signal ends it: over the whole of a
// terminal, and elsewhere as one block after another.
func watch(l *locks, prefix string, every time.Duration) error {
	w := &watching{locks: l, prefix: prefix, every: every}
	w.out.w, w.out.most = stdout, 1 // whoever reads too slowly sees the latest
	var changes <-chan os.Signal
	if _, _, ok := screen.Size(os.Stdout); ok && screen.Foreground(os.Stdout) {
		w.draws, changes = true, screen.Changes()
	}
	w.ends = catchEnds()
	sig, err := w.loop(w.ends, changes)
	w.leave()
	l.leave(true) // nothing of ours is in the store
	if err != nil || sig == nil {
		return err
	}
	return endedBy(sig)
}

// ends delivers the signals that end what is shown until then.
type ends chan os.Signal

func catchEnds() ends {
	e := make(ends, 1)
	e.catch()
	return e
}

func (e ends) catch() {
	if wanted := heeded(); len(wanted) > 0 { // Notify without a signal is for all
		signal.Notify(e, wanted...)
	}
}

// heeded returns the signals that end this process, without those that nohup ignores.
func heeded() []os.Signal {
	return slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, signal.Ignored)
}

// stop stops this process, which has left the terminal, until it has it again. Meanwhile
// such a signal ends it as any other: a shell sends TERM to a job that stands still.
func (e ends) stop() {
	signal.Stop(e)
	screen.Stop(os.Stdout, heeded())
	e.catch()
}

// endedBy is the end by such a signal.
func endedBy(sig os.Signal) *exit {
	n, _ := sig.(syscall.Signal)
	return &exit{code: 128 + int(n), verdict: "interrupted", interrupted: n == syscall.SIGINT}
}

// loop returns the signal that ended it; none when the answer cannot be written,
// which Main says.
func (w *watching) loop(signals, changes <-chan os.Signal) (os.Signal, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answers := make(chan listed, 1)
	ask := func() {
		infos, err := w.locks.all(ctx, w.prefix)
		answers <- listed{infos, err}
	}
	go ask()
	next := time.NewTimer(w.every)
	next.Stop()
	for stdout.failed() == nil {
		select {
		case a := <-answers:
			if err := w.note(a); err != nil {
				return nil, err
			}
			w.show()
			next.Reset(w.every)
		case <-next.C:
			go ask()
		case sig := <-signals:
			return sig, nil
		case sig := <-changes:
			if screen.Stops(sig) {
				w.leave()
				w.ends.stop()
			}
			w.show()
		}
	}
	return nil, nil
}

// show writes what there is to see.
func (w *watching) show() {
	now := time.Now()
	switch {
	case w.at.IsZero() && w.trouble == nil: // no answer yet
	case !w.draws:
		w.out.put(w.block(now))
	case w.entered:
		w.out.put(w.frame(now))
	default:
		w.entered = true
		w.out.put(append([]byte(screen.Show), w.frame(now)...))
		w.out.flush(flushLimit) // no later one takes its place
	}
}

// leave restores the terminal.
func (w *watching) leave() {
	w.out.flush(flushLimit)
	if w.entered {
		w.entered = false
		w.out.put([]byte(screen.Leave))
		w.out.flush(flushLimit)
	}
}

// note records a list. It returns an error that asking again cannot resolve.
func (w *watching) note(a listed) error {
	if a.err == nil {
		w.seen, w.at, w.trouble = a.infos, time.Now(), nil
		return nil
	}
	end := trouble(w.locks.url, a.err)
	if end.ends(!w.at.IsZero()) {
		return end
	}
	if w.trouble == nil {
		w.since = time.Now()
	}
	w.trouble = end
	return nil
}

const watchTime = "2006-01-02 15:04:05 MST"

// head says in one line when this was, and what it is.
func (w *watching) head(now time.Time) string {
	s := fmt.Sprintf("%s  %s held or waited for in %s", now.Format(watchTime), count(len(w.seen), "key", "keys"), w.locks.url)
	if w.prefix != "" {
		s += ", starting with " + quote(w.prefix)
	}
	if w.trouble != nil {
		s = fmt.Sprintf("%s  no answer for %s: %s; asking again", now.Format(watchTime), short(now.Sub(w.since)), w.trouble.message)
	}
	return plain.Line(s)
}

// lines are what is shown; for a store that is unreachable, its last answer.
func (w *watching) lines(now time.Time) []string {
	lines := []string{w.head(now)}
	if w.trouble != nil && !w.at.IsZero() {
		lines = append(lines, "as of "+w.at.Format(watchTime)+":")
	}
	if len(w.seen) > 0 {
		var b bytes.Buffer
		_ = table(&b, w.seen) // a buffer takes everything
		lines = append(lines, strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")...)
	}
	return lines
}

// frame is for a terminal, whose size may have changed.
func (w *watching) frame(now time.Time) []byte {
	width, height, _ := screen.Size(os.Stdout)
	return []byte(screen.Frame(w.lines(now), width, height, func(n int) string { return fmt.Sprintf("… and %d more", n) }))
}

// block is for a file or a pipe. It repeats nothing that is old.
func (w *watching) block(now time.Time) []byte {
	if w.trouble != nil {
		return []byte(w.head(now) + "\n\n")
	}
	return []byte(strings.Join(w.lines(now), "\n") + "\n\n")
}
