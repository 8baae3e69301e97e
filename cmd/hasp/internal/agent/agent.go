// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package agent has the commands that give hasp's locks to other programs.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/hasplock/hasp/pipe"
	"github.com/spf13/cobra"
)

// options are the flags of hasp agent.
type options struct {
	store   base.StoreFlag
	stdio   bool
	listen  string
	group   string
	ttl     base.Duration
	maxHold base.Duration
	grace   base.Duration
	version string
}

// Commands are those of this package. version is hasp's.
func Commands(version string) []*cobra.Command {
	return []*cobra.Command{newAgent(version), newMCP(version), newHook()}
}

func newAgent(version string) *cobra.Command {
	o := &options{version: version, grace: base.Duration{D: 5 * time.Second, Given: true}}
	cmd := &cobra.Command{
		Use:     "agent --stdio | --listen unix:PATH",
		Short:   "Hold locks for other programs, in any language",
		Long:    agentLong,
		Example: agentExample,
		Args:    base.Exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.stdio == (o.listen != "") {
				return base.Usage("hasp agent takes one of --stdio and --listen unix:PATH")
			}
			return o.run(cmd)
		},
		DisableFlagsInUseLine: true,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&o.stdio, "stdio", false, "serve the program that started it, on standard input and output, until that ends")
	f.StringVar(&o.listen, "listen", "", "serve every program of this user on a `SOCKET`, unix:PATH; or systemd:, the one that systemd opened")
	f.StringVar(&o.group, "group", "", "serve the users of a `GROUP`, too")
	f.Var(&o.ttl, "ttl", "of the leases that name none (default 30s)")
	f.Var(&o.maxHold, "max-hold", "the longest that a lease lasts which names no other (default 1h with --listen, or no bound)")
	f.Var(&o.grace, "grace", "how long the clients may go on when the agent is told to end")
	o.store.Add(cmd)
	return cmd
}

func newMCP(version string) *cobra.Command {
	o := &options{version: version, maxHold: base.Duration{D: 30 * time.Minute, Given: true}}
	cmd := &cobra.Command{
		Use:     "mcp",
		Short:   "Hold locks for a coding agent (Model Context Protocol)",
		Long:    mcpLong,
		Example: mcpExample,
		Args:    base.Exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := o.store.Open(cmd, nil)
			if err != nil {
				return err
			}
			defer l.Leave(false)
			dir, err := os.Getwd()
			if err != nil {
				return base.Failed("%v", err)
			}
			a := &agent{Locks: l, o: o}
			return a.stdio(func(ctx context.Context, rwc io.ReadWriteCloser) error { return a.serveMCP(ctx, rwc, dir, parent()) })
		},
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().Var(&o.maxHold, "max-hold", "the longest that a lock is held")
	o.store.Add(cmd)
	return cmd
}

func (o *options) run(cmd *cobra.Command) error {
	l, err := o.store.Open(cmd, nil)
	if err != nil {
		return err
	}
	defer l.Leave(false)
	if o.ttl.Given {
		if err := l.CheckTTL(o.ttl.D); err != nil {
			return err
		}
	}
	a := &agent{Locks: l, o: o}
	if o.stdio {
		return a.stdio(func(ctx context.Context, rwc io.ReadWriteCloser) error {
			return pipe.Serve(ctx, a.Client, rwc, a.options(parent()))
		})
	}
	signal.Ignore(syscall.SIGPIPE) // a client's end is no reason to leave its locks to their TTL
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return a.listen(ctx)
}

// agent serves clients.
type agent struct {
	*base.Locks
	o *options
}

// options are those of a client.
func (a *agent) options(label *driver.Label) *pipe.Options {
	return &pipe.Options{
		Hello: pipe.Hello{Hasp: a.o.version, Store: a.URL.String(), Promise: a.Store.Promise()},
		Label: label, TTL: a.o.ttl.D, MaxHold: a.o.maxHold.D, Grace: a.o.grace.D, Explain: a.explain,
	}
}

// explain is an error as the other commands have it.
func (a *agent) explain(err error) string {
	held, of, end := (*hasp.HeldError)(nil), (*hasp.Error)(nil), (*base.Exit)(nil)
	inner := err
	if errors.As(err, &of) {
		inner = of.Err
	}
	switch {
	case errors.As(err, &end):
		return end.Message
	case errors.Is(err, hasp.ErrLost), errors.Is(err, hasp.ErrNotHeld):
		return fmt.Sprintf("LOST %s: %s", base.Quote(base.KeyOf(err, "")), strings.TrimPrefix(plain.Error(inner), hasp.ErrLost.Error()+": "))
	case errors.Is(err, hasp.ErrClosed):
		return "the agent ends"
	case errors.As(err, &held):
		return fmt.Sprintf("%s %s", base.Quote(base.KeyOf(err, "")), base.Obstacle(held.Holder, held.Left, held.Ahead))
	}
	return base.Trouble(a.URL, err).Message
}

// stdio serves the program that started this one. Ctrl-C is for that, which may have something left to do; nor is its end, which a
// write may find, a reason to leave its locks to their TTL.
func (a *agent) stdio(serve func(context.Context, io.ReadWriteCloser) error) error {
	signal.Ignore(os.Interrupt, syscall.SIGHUP, syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	served := make(chan error, 1)
	s := standard()
	go func() { served <- serve(ctx, s) }()
	var late <-chan time.Time
	select {
	case err := <-served:
		return broken(err)
	case <-ctx.Done():
		if !s.ends {
			late = time.After(a.o.grace.D + time.Second)
		}
	}
	select {
	case err := <-served:
		return broken(err)
	case <-late:
		return nil
	}
}

func broken(err error) error {
	if err == nil {
		return nil
	}
	return base.Usage("the program that started this one does not speak its protocol: %v", err)
}

// streams are a standard input and output.
type streams struct {
	io.Reader
	io.Writer
	close func()
	ends  bool // with close a read ends: not of a terminal
}

func (s streams) Close() error { s.close(); return nil }

// listen serves the clients of a socket until a signal ends it.
func (a *agent) listen(ctx context.Context) error {
	if !a.o.maxHold.Given {
		a.o.maxHold.D = time.Hour
	}
	l, err := a.socket()
	if err != nil {
		return base.BadConfig(err)
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	base.Note("the locks of %s are at unix:%s", a.URL, plain.Line(l.Addr().String()))
	ready()
	var clients sync.WaitGroup
	defer clients.Wait()
	for pause := time.Millisecond; ; {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil: // no descriptors are left
			base.Note("a client could not be served: %s", plain.Error(err))
			time.Sleep(pause)
			pause = min(2*pause, time.Second)
			continue
		}
		pause = time.Millisecond
		clients.Go(func() { a.serve(ctx, c) })
	}
}

// serve serves one client. What it breaks is its own.
func (a *agent) serve(ctx context.Context, c net.Conn) {
	label, err := a.peer(c)
	if err != nil {
		base.Note("a client was refused: %s", plain.Error(err))
		_ = c.Close()
		return
	}
	_ = pipe.Serve(ctx, a.Client, c, a.options(label))
}
