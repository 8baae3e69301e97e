// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/shell"
	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/spf13/cobra"
)

// AskLimit bounds one question to a store.
const AskLimit = 5 * time.Second

// StoreFlag is --store. Every sub-command has its own: cobra may take the value of a
// persistent flag that is given before the sub-command for the sub-command.
type StoreFlag struct {
	Text string
	Warn func(message string) // of what comes up later; nil: as a note
}

// Add adds the flag.
func (f *StoreFlag) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Text, "store", "",
		"`URL` of the store, as hasp help store says; such as redis://HOST:6379 or sqlite:PATH; without it what HASP_STORE says, "+
			"or the file that HASP_STORE_FILE names, or the file /etc/hasp/store, else a SQLite file of yours")
}

// Locks are the client of a store, open.
type Locks struct {
	*hasp.Client
	URL   *store.URL
	Store *store.Store
}

// Open opens the store that the flag, or the environment, names. observe may be nil.
func (f *StoreFlag) Open(cmd *cobra.Command, observe func(context.Context, *event.Event)) (*Locks, error) {
	quiet := given(cmd, "quiet", "true") || given(cmd, "output", "json")
	o := hasp.Options{Observe: observe}
	if f.Warn != nil {
		o.StateFailed = func(err error) { f.Warn(stateFailed(err)) }
	} else if !quiet && cmd.Name() != "top" { // which draws, and stays until the wait is over
		o.StateFailed = func(err error) { Note("%s", stateFailed(err)) }
	}
	l, err := Open(f.Text, cmd.Flags().Changed("store"), o)
	if err == nil && l.URL.Warning != "" && !quiet {
		Note("warning: %s", l.URL.Warning)
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

// Open opens the store that --store names, when it was given.
func Open(text string, given bool, o hasp.Options) (*Locks, error) {
	u, err := store.Find(text, given)
	if err != nil {
		return nil, BadConfig(err)
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
	return &Locks{Client: c, URL: u, Store: s}, nil
}

func unopened(u *store.URL, err error) *Exit {
	if errors.As(err, new(*hasp.Error)) { // the store, or its driver, says why not
		return Trouble(u, err)
	}
	return BadConfig(err)
}

// Leave is Close, which takes 5 seconds at most, but does not wait long for a store that does not answer: what is
// left there expires.
func (l *Locks) Leave(silent bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Close() // nothing of ours is left, or the store's trouble was reported
	}()
	var limit <-chan time.Time
	if silent {
		limit = time.After(SilentLimit)
	}
	select {
	case <-done:
	case <-limit:
	}
}

// Again returns the command line of another sub-command for the same store and a
// key, which may look like a flag.
func (f *StoreFlag) Again(name, key string, flags ...string) string {
	line := []string{"hasp", name}
	if f.Text != "" {
		line = append(line, "--store", Public(f.Text))
	}
	if strings.HasPrefix(key, "-") {
		line = append(append(line, flags...), "--", key)
	} else {
		line = append(append(line, key), flags...)
	}
	return shell.Join(line...)
}

// Public returns a URL if it cannot contain a password.
func Public(text string) string {
	if u, err := store.Parse(text); err == nil && !u.Secret() {
		return text
	}
	return "URL"
}

// Inspect asks for all about a key.
func (l *Locks) Inspect(ctx context.Context, key string) (hasp.Info, error) {
	info, err := l.Operator().Inspect(ctx, key)
	if err != nil {
		return info, Trouble(l.URL, err)
	}
	info.Key = key
	if info.Held && len(info.Holders) == 0 { // an engine that has one holder at a time
		info.Leases, info.Holders = 1, []driver.Holding{{Holder: info.Holder, Fence: info.Fence, Left: info.Left}}
	}
	return info, nil
}

// Asking returns the context of one question to the store, which Ctrl-C ends.
func Asking() (context.Context, context.CancelFunc) {
	ctx, stop := Listening()
	ctx, cancel := context.WithTimeout(ctx, AskLimit)
	return ctx, func() { cancel(); stop() }
}

// Listening returns a context that Ctrl-C ends, for what has no natural limit:
// a list may be long. Each answer of the store has a limit of its own.
func Listening() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

// CheckKey refuses what no store takes.
func CheckKey(key string) error {
	switch {
	case key == "":
		return Usage("the key is empty: it has 1 to %d bytes", driver.MaxKey)
	case len(key) > driver.MaxKey:
		return Usage("the key has %d bytes: at most %d are allowed", len(key), driver.MaxKey)
	}
	return nil
}

// SilentLimit is how long hasp tries to release keys in a store that does not
// answer.
const SilentLimit = 500 * time.Millisecond

// CheckTTL refuses a TTL that the store does not grant.
func (l *Locks) CheckTTL(ttl time.Duration) *Exit {
	tr := l.Traits()
	switch {
	case ttl > 10*365*24*time.Hour: // the library's most
		return Usage("the TTL of %v is too long: the most is ten years", ttl)
	case ttl < tr.MinTTL:
		return Usage("the TTL of %v is too short: %s needs at least %v", ttl, tr.Engine, tr.MinTTL)
	case tr.MaxTTL > 0 && ttl > tr.MaxTTL:
		if l.Store.Redisson {
			return Usage("the TTL of %v is too long: it may be %v, Redisson's lockWatchdogTimeout, as its watchdog ends the lock of all readers so long after it "+
				"renewed one of its own. Lower the TTL, or raise both in every program (lock-watchdog-timeout= in the store's URL)", ttl, tr.MaxTTL)
		}
		if len(l.Store.Servers) == 0 {
			return Usage("the TTL of %v is too long: %s grants at most %v", ttl, tr.Engine, tr.MaxTTL)
		}
		return Usage("the TTL of %v is too long: %s allows at most %v, as its servers grant nothing for so long after a restart. "+
			"Lower the TTL, or raise max-ttl= in the store's URL, for every client at once (see: hasp doctor --help)", ttl, tr.Engine, tr.MaxTTL)
	}
	return nil
}

// Distinct returns each key once, in the order given.
func Distinct(words []string) (keys []string, err error) {
	for _, key := range words {
		if err := CheckKey(key); err != nil {
			return nil, err
		}
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}
