// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/cmd/hasp/internal/screen"
	"github.com/hasplock/hasp/cmd/hasp/internal/top"
	"github.com/hasplock/hasp/internal/audit"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

// leastEvery is the least time between two lists: each may make the store look at all that it has.
const leastEvery = 100 * time.Millisecond

func newTop() *cobra.Command {
	store, record := &base.StoreFlag{}, &base.AuditFlag{}
	every := &base.Duration{D: 2 * time.Second, Given: true}
	readOnly := false
	cmd := &cobra.Command{
		Use:   "top [PREFIX]",
		Short: "Watch the keys at a terminal: sort, filter, look, break",
		Long:  topLong,
		Example: `  hasp top
  hasp top orders/ --read-only
  HASP_AUDIT=syslog hasp top`,
		Args: base.AtMost(1, "PREFIX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if every.D < leastEvery {
				return base.Usage("--every %v is too often: at least %v", every.D, leastEvery)
			}
			if !screen.Drawable(os.Stdout) || !child.IsTerminal(os.Stdin) {
				return base.Usage("hasp top needs a terminal that it can draw on, for input and output (TERM says which it is): use hasp ls")
			}
			log, err := record.Open()
			if err != nil {
				return err
			}
			l, err := store.Open(cmd, nil)
			if err != nil {
				return err
			}
			m := &top.Model{Store: plain.Line(l.URL.String()), Prefix: strings.Join(args, ""), ReadOnly: readOnly, Every: every.D}
			err = watchTop(&topLocks{Locks: l, log: log, prefix: m.Prefix}, m)
			l.Leave(true) // nothing of ours is in the store
			return err
		},
	}
	cmd.Flags().Var(every, "every", "ask the store again after so long, or later where it is slow")
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "break nothing")
	record.Add(cmd, "record who broke what")
	store.Add(cmd)
	return cmd
}

// watchTop shows the model until its reader, or a signal, ends it. However it ends, the
// terminal is as it was.
func watchTop(locks *topLocks, m *top.Model) error {
	signals := base.CatchEnds()
	if !screen.Foreground(os.Stdout) {
		signals.Stop()
	}
	was, err := term.GetState(os.Stdin.Fd())
	if err != nil {
		return base.Failed("the terminal cannot be used: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	app := &top.App{Model: m, Locks: locks, Context: ctx, Styled: os.Getenv("NO_COLOR") == ""}
	p := tea.NewProgram(app, tea.WithInput(os.Stdin), tea.WithOutput(os.Stdout), tea.WithoutSignalHandler())
	app.Stop = func() {
		_ = p.ReleaseTerminal()
		signals.Stop()
		_ = p.RestoreTerminal() // without a terminal the keys end, too
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err = p.Run()
	}()
	stops, look := screen.Stops(), time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-done:
			return endOfTop(app, err)
		case <-look.C: // HUP may be ignored, and a reader need not be told
			if _, err := term.GetState(os.Stdin.Fd()); err != nil {
				return base.EndedBy(syscall.SIGHUP)
			}
		case <-stops:
			go p.Send(top.Stopped{})
		case sig := <-signals:
			go p.Send(&top.Ended{Signal: sig})
			select {
			case <-done:
			case <-time.After(base.FlushLimit): // the terminal takes no more text
				_ = term.Restore(os.Stdin.Fd(), was) // it may be gone
			}
			return base.EndedBy(sig)
		}
	}
}

// endOfTop is the end of a run that ended with err.
func endOfTop(app *top.App, err error) error {
	var ended *top.Ended
	switch {
	case errors.As(app.Err, &ended):
		return base.EndedBy(ended.Signal)
	case errors.Is(err, tea.ErrProgramPanic):
		return err
	case err != nil && app.Err == nil: // nothing can be read from the terminal any more
		return base.EndedBy(syscall.SIGHUP)
	}
	return app.Err
}

// topLocks are the locks as hasp top asks for them.
type topLocks struct {
	*base.Locks
	log      *audit.Log
	prefix   string
	answered atomic.Bool // it has given a list
}

// said is an error with a text for people.
type said struct{ *base.Exit }

func (s said) Error() string { return plain.Line(s.Message) }
func (s said) Unwrap() error { return s.Exit }

func (l *topLocks) List(ctx context.Context) ([]hasp.Info, error) {
	infos, err := l.All(ctx, l.prefix)
	if err != nil {
		return nil, said{base.Trouble(l.URL, err)}
	}
	l.answered.Store(true)
	return infos, nil
}

func (l *topLocks) Hopeless(err error) bool {
	var s said
	return errors.As(err, &s) && s.Ends(l.answered.Load())
}

func (l *topLocks) Inspect(ctx context.Context, key string) (hasp.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, base.AskLimit)
	defer cancel()
	info, err := l.Locks.Inspect(ctx, key)
	if end := (*base.Exit)(nil); errors.As(err, &end) {
		err = said{end}
	}
	return info, err
}

// look finds the owner that a target names.
func (l *topLocks) look(ctx context.Context, t top.Target) (hasp.Info, base.Victim, error) {
	info, err := l.Inspect(ctx, t.Key)
	if err != nil {
		return info, base.Victim{}, err
	}
	v, ok := base.WithOwner(info, t.Owner)
	if !ok {
		return info, v, said{base.NotThatOwner(info, t.Key, t.Owner)}
	}
	return info, v, nil
}

func (l *topLocks) Plan(ctx context.Context, t top.Target) (string, error) {
	info, v, err := l.look(ctx, t)
	if err != nil {
		return "", err
	}
	return base.Plan(info, t.Key, v), nil
}

func (l *topLocks) Break(ctx context.Context, t top.Target) (string, error) {
	_, v, err := l.look(ctx, t)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, base.AskLimit)
	defer cancel()
	if end := l.TakeAway(ctx, l.log, "hasp top", t.Key, v, t.Reason); end != nil {
		return "", said{end}
	}
	return plain.Line(fmt.Sprintf("broke %s: taken from %s", base.Quote(t.Key), people.Name(v.Holder))), nil
}
