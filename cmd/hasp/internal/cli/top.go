// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/cmd/hasp/internal/screen"
	"github.com/hasplock/hasp/cmd/hasp/internal/top"
	"github.com/hasplock/hasp/internal/audit"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

// leastEvery is the least time between two lists: each may make the store look at all that it has.
const leastEvery = 100 * time.Millisecond

func newTop() *cobra.Command {
	store, record := &storeFlag{}, &auditFlag{}
	every := &duration{d: 2 * time.Second, set: true}
	readOnly := false
	cmd := &cobra.Command{
		Use:   "top [PREFIX]",
		Short: "Watch the keys at a terminal: sort, filter, look, break",
		Long:  topLong,
		Example: `  hasp top
  hasp top orders/ --read-only
  HASP_AUDIT=syslog hasp top`,
		Args: atMost(1, "PREFIX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if every.d < leastEvery {
				return usage("--every %v is too often: at least %v", every.d, leastEvery)
			}
			if _, _, ok := screen.Size(os.Stdout); !ok || !child.IsTerminal(os.Stdin) {
				return usage("hasp top needs a terminal that it can draw on, for input and output (TERM says which it is): use hasp ls")
			}
			log, err := record.open()
			if err != nil {
				return err
			}
			l, err := store.open(cmd, nil)
			if err != nil {
				return err
			}
			m := &top.Model{Store: plain.Line(l.url.String()), ReadOnly: readOnly, Every: every.d}
			if len(args) == 1 {
				m.Prefix = args[0]
			}
			err = watchTop(&topLocks{locks: l, log: log, prefix: m.Prefix}, m)
			l.leave(true) // nothing of ours is in the store
			return err
		},
	}
	cmd.Flags().Var(every, "every", "ask the store again after so long, or later where it is slow")
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "break nothing")
	record.add(cmd, "record who broke what")
	store.add(cmd)
	return cmd
}

// watchTop shows the model until its reader, or a signal, ends it. However it ends, the
// terminal is as it was.
func watchTop(locks *topLocks, m *top.Model) error {
	signals, changes := catchEnds(), screen.Changes()
	t := &display{ends: signals, styled: os.Getenv("NO_COLOR") == ""}
	t.out.w, t.out.most = stdout, 1 // whoever reads too slowly sees the latest
	if !screen.Foreground(os.Stdout) {
		signals.stop()
	}
	defer t.leave()
	if err := t.enter(); err != nil {
		return &exit{code: exitFailed, verdict: "failed", message: fmt.Sprintf("the terminal cannot be used: %v", err)}
	}
	loop := &top.Loop{Model: m, Locks: locks, Term: t, Keys: screen.Keys(os.Stdin)}
	switch sig, err := loop.Run(signals, changes); {
	case errors.Is(err, top.ErrGone):
		return endedBy(syscall.SIGHUP)
	case sig != nil:
		return endedBy(sig)
	default:
		return err
	}
}

// display is a terminal that is drawn on, and read key by key.
type display struct {
	ends    ends
	styled  bool
	out     outbox
	restore func() // nil: it is as it was
}

func (t *display) enter() (err error) {
	if t.restore, err = screen.Raw(os.Stdin); err != nil {
		return err
	}
	t.out.put([]byte(screen.Show + screen.Pastes))
	t.out.flush(flushLimit) // no frame takes its place
	return nil
}

// leave brings the terminal back as it was, also one that takes no more text.
func (t *display) leave() {
	if t.restore == nil {
		return
	}
	t.out.flush(flushLimit)
	t.out.put([]byte(screen.NoPastes + screen.Leave))
	t.out.flush(flushLimit)
	t.restore()
	t.restore = nil
}

func (t *display) Size() (width, height int) {
	width, height, ok := screen.Size(os.Stdout)
	if !ok {
		return 80, 24
	}
	return width, height
}

func (t *display) Draw(lines []screen.Line) {
	width, height := t.Size()
	t.out.put([]byte(screen.Draw(lines, width, height, t.styled)))
}

func (t *display) Changed(sig os.Signal) {
	if screen.Stops(sig) {
		t.leave()
		t.ends.stop()
		_ = t.enter() // without a terminal the keys end, too
	}
}

// topLocks are the locks as hasp top asks for them.
type topLocks struct {
	*locks
	log      *audit.Log
	prefix   string
	answered atomic.Bool // it has given a list
}

// said is an error whose text is for people.
type said struct{ *exit }

func (s said) Error() string { return plain.Line(s.message) }
func (s said) Unwrap() error { return s.exit }

func (l *topLocks) List(ctx context.Context) ([]hasp.Info, error) {
	infos, err := l.all(ctx, l.prefix)
	if err != nil {
		return nil, said{trouble(l.url, err)}
	}
	l.answered.Store(true)
	return infos, nil
}

func (l *topLocks) Hopeless(err error) bool {
	var s said
	return errors.As(err, &s) && s.ends(l.answered.Load())
}

func (l *topLocks) Inspect(ctx context.Context, key string) (hasp.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	info, err := l.inspect(ctx, key)
	if end := (*exit)(nil); errors.As(err, &end) {
		err = said{end}
	}
	return info, err
}

// look finds whom a target names.
func (l *topLocks) look(ctx context.Context, t top.Target) (hasp.Info, victim, error) {
	info, err := l.Inspect(ctx, t.Key)
	if err != nil {
		return info, victim{}, err
	}
	v, ok := withOwner(info, t.Owner)
	if !ok {
		return info, v, said{notThatOwner(info, t.Key, t.Owner)}
	}
	return info, v, nil
}

func (l *topLocks) Plan(ctx context.Context, t top.Target) (string, error) {
	info, v, err := l.look(ctx, t)
	if err != nil {
		return "", err
	}
	return plan(info, t.Key, v), nil
}

func (l *topLocks) Break(ctx context.Context, t top.Target) (string, error) {
	_, v, err := l.look(ctx, t)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	if end := l.takeAway(ctx, l.log, "hasp top", t.Key, v, t.Reason); end != nil {
		return "", said{end}
	}
	return plain.Line(fmt.Sprintf("broke %s: taken from %s", quote(t.Key), who(v.Holder))), nil
}
