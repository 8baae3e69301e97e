// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/shell"
	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/hasplock/hasp/driver"
	"github.com/spf13/cobra"
)

// askLimit bounds one question to a store.
const askLimit = 5 * time.Second

// storeFlag is --store. Every sub-command has its own: cobra may take the value of a
// persistent flag that is given before the sub-command for the sub-command.
type storeFlag struct {
	text string
	warn func(message string) // of what comes up later; nil: as a note
}

func (f *storeFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.text, "store", "",
		"`URL` of the store, such as redis://HOST:6379 or sqlite:PATH (hasp help store has all forms); without it what HASP_STORE says, "+
			"or the file that HASP_STORE_FILE names, else a SQLite file of yours")
}

// locks are the client of a store, open.
type locks struct {
	*hasp.Client
	url   *store.URL
	store *store.Store
}

func (f *storeFlag) open(cmd *cobra.Command, observe func(context.Context, *hasp.Event)) (*locks, error) {
	quiet := given(cmd, "quiet", "true") || given(cmd, "output", "json")
	o := hasp.Options{Observe: observe}
	if f.warn != nil {
		o.StateFailed = func(err error) { f.warn(stateFailed(err)) }
	} else if !quiet && cmd.Name() != "top" { // which draws, and stays until the wait is over
		o.StateFailed = func(err error) { note("%s", stateFailed(err)) }
	}
	l, err := open(f.text, cmd.Flags().Changed("store"), o)
	if err == nil && l.url.Warning != "" && !quiet {
		note("warning: %s", l.url.Warning)
	}
	return l, err
}

// stateFailed is the warning that a wait for servers that are held back is not remembered.
func stateFailed(err error) string {
	return fmt.Sprintf("warning: a server is held back, and how long cannot be noted in the state directory: %v. "+
		"Each hasp begins the wait anew, and one that ends sooner never lets it vote: name a directory that can be written with XDG_STATE_HOME", err)
}

// given says whether a command has a flag with this value.
func given(cmd *cobra.Command, flag, value string) bool {
	f := cmd.Flags().Lookup(flag)
	return f != nil && f.Value.String() == value
}

// open opens the store that --store names, when it was given.
func open(text string, given bool, o hasp.Options) (*locks, error) {
	u, err := store.Find(text, given)
	if err != nil {
		return nil, badConfig(err)
	}
	s, err := u.Open()
	if err != nil {
		return nil, unopened(u, err)
	}
	var unfit error
	o.StateDir, unfit = store.StateDir()
	if tell := o.StateFailed; tell != nil {
		o.StateFailed = func(err error) { tell(cmp.Or(unfit, err)) }
	}
	s.StateFailed = o.StateFailed
	c, err := hasp.New(s.Driver, &o)
	if err != nil {
		return nil, unopened(u, errors.Join(err, s.Close()))
	}
	return &locks{Client: c, url: u, store: s}, nil
}

func unopened(u *store.URL, err error) *exit {
	if errors.As(err, new(*hasp.Error)) { // the store, or its driver, says why not
		return trouble(u, err)
	}
	return badConfig(err)
}

// leave is Close, which takes 5 seconds at most, but does not wait long for a store that does not answer: what is
// left there expires.
func (l *locks) leave(silent bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Close() // nothing of ours is left, or the store's trouble was reported
	}()
	var limit <-chan time.Time
	if silent {
		limit = time.After(silentLimit)
	}
	select {
	case <-done:
	case <-limit:
	}
}

// again returns the command line of another sub-command for the same store and a
// key, which may look like a flag.
func (f *storeFlag) again(name, key string, flags ...string) string {
	line := []string{"hasp", name}
	if f.text != "" {
		line = append(line, "--store", public(f.text))
	}
	if strings.HasPrefix(key, "-") {
		line = append(append(line, flags...), "--", key)
	} else {
		line = append(append(line, key), flags...)
	}
	return shell.Join(line...)
}

// public returns a URL if it cannot contain a password.
func public(text string) string {
	if u, err := store.Parse(text); err == nil && !u.Secret() {
		return text
	}
	return "URL"
}

// inspect asks for all about a key.
func (l *locks) inspect(ctx context.Context, key string) (hasp.Info, error) {
	info, err := l.Operator().Inspect(ctx, key)
	if err != nil {
		return info, trouble(l.url, err)
	}
	info.Key = key
	if info.Held && len(info.Holders) == 0 { // an engine that has one holder at a time
		info.Holds, info.Holders = 1, []driver.Holding{{Holder: info.Holder, Fence: info.Fence, Left: info.Left}}
	}
	return info, nil
}

// asking returns the context of one question to the store, which Ctrl-C ends.
func asking() (context.Context, context.CancelFunc) {
	ctx, stop := listening()
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	return ctx, func() { cancel(); stop() }
}

// listening returns a context that Ctrl-C ends, for what has no natural limit:
// a list may be long. Each answer of the store has a limit of its own.
func listening() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

// checkKey refuses what no store takes.
func checkKey(key string) error {
	switch {
	case key == "":
		return usage("the key is empty: it has 1 to %d bytes", driver.MaxKey)
	case len(key) > driver.MaxKey:
		return usage("the key has %d bytes: at most %d are allowed", len(key), driver.MaxKey)
	}
	return nil
}
