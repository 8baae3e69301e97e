// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/hasplock/hasp/internal/player"
	"github.com/spf13/cobra"
)

// exitBroken is the exit code of hasp verify when it saw a rule broken.
const exitBroken = 1

// The bounds of hasp verify.
const (
	verifyMost = 10 * time.Minute
	verifyTTL  = time.Second // unless --ttl is given
	// verifyWorker is the sub-command of its clients.
	verifyWorker = "verify-worker"
	// verifyPace is the least time from one order to the next: 200 acquisitions a
	// second at most, over all clients, so that a store in use is not loaded.
	verifyPace = 5 * time.Millisecond
	// verifyRest is the least time from one fault to the next: a process that is
	// killed has to be started again.
	verifyRest = 300 * time.Millisecond
)

// trial are the flags of hasp verify.
type trial struct {
	store   base.StoreFlag
	for_    base.Duration
	ttl     base.Duration
	clients int
	keys    int
	seed    uint64
	client  string
	output  base.Choice
}

func newVerify() *cobra.Command {
	t := &trial{clients: 6, keys: 2, output: base.Outputs(), for_: base.Duration{D: 20 * time.Second, Given: true}}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Try a store with clients that are killed and stopped, and judge what they saw",
		Long:  verifyLong,
		Example: `  hasp verify
  hasp verify --store redlock://a,b,c --for 2m
  hasp verify --for 60 --ttl 5s -o json | jq .findings
  hasp verify --client 'python3 conformance.py'`,
		Args: base.Exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("client") {
				return t.tryClient(cmd)
			}
			return t.run(cmd)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Var(&t.for_, "for", "how long clients are killed and stopped, at most 10m")
	f.Var(base.Number(&t.clients, 2, 64), "clients", "`N` processes that want the keys, 2 to 64")
	f.Var(base.Number(&t.keys, 1, 64), "keys", "`N` keys that they want, 1 to 64")
	f.Var(&t.ttl, "ttl", "of the leases, at most a third of --for (default 1s, or the least that the store has)")
	f.Uint64Var(&t.seed, "seed", 0, "`N` of an earlier run, for the same faults at the same moments")
	f.StringVar(&t.client, "client", "", "try a client of hasp agent instead of a store: the shell runs `COMMAND`, its adapter")
	t.output.AddOutput(cmd, "lines, or an object")
	t.store.Add(cmd)
	return cmd
}

// newWorker is a client of hasp verify, which starts it.
func newWorker() *cobra.Command {
	return &cobra.Command{
		Use:    verifyWorker,
		Short:  "A client of hasp verify, which starts it",
		Hidden: true,
		Args:   base.Exactly(0, ""),
		RunE: func(*cobra.Command, []string) error {
			err := player.Work(os.Stdin, os.Stdout, func(j player.Job, observe func(context.Context, *event.Event)) (player.Locks, error) {
				return base.Open(j.Store, j.Given, hasp.Options{Observe: observe, MaxSilence: base.AskLimit})
			})
			if end := (*base.Exit)(nil); err == nil || errors.As(err, &end) {
				return err
			}
			return base.Failed("%v", err)
		},
	}
}

// check sets the defaults and refuses what makes no sense.
func (t *trial) check(cmd *cobra.Command, l *base.Locks) error {
	if t.for_.D > verifyMost {
		return base.Usage("--for %v is too long: at most %v", t.for_.D, verifyMost)
	}
	if !t.ttl.Given {
		t.ttl.D = max(verifyTTL, l.Traits().MinTTL)
	}
	if err := l.CheckTTL(t.ttl.D); err != nil {
		return err
	}
	if least := 3 * t.ttl.D; t.for_.D < least {
		return base.Usage("--for %v is too short for a TTL of %v: at least three times that, %v, so that killed and stopped clients can be seen to lose their keys",
			t.for_.D, t.ttl.D, least)
	}
	if !cmd.Flags().Changed("seed") {
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		t.seed = uint64(binary.LittleEndian.Uint32(b[:]))
	}
	return nil
}

// run is hasp verify.
func (t *trial) run(cmd *cobra.Command) error {
	l, err := t.store.Open(cmd, nil)
	if err != nil {
		return err
	}
	silent := false
	defer func() { l.Leave(silent) }()
	if err := t.check(cmd, l); err != nil {
		return err
	}
	prefix, bare := "hasp-verify/"+l.Store.Name(), !l.Traits().Fencing
	o := &player.Trial{Clients: t.clients, TTL: t.ttl.D, Seed: t.seed, For: t.for_.D, Kill: true, Stop: player.CanPause,
		Rest: max(t.ttl.D/2, verifyRest), Pace: verifyPace,
		Client: func(int) (*exec.Cmd, player.Job) {
			client := player.Again("")
			client.Args = []string{os.Args[0], verifyWorker}
			return client, player.Job{Store: t.store.Text, Given: cmd.Flags().Changed("store"), TTL: t.ttl.D}
		}}
	for i := range t.keys {
		o.Keys = append(o.Keys, fmt.Sprintf("%s/%d", prefix, i))
	}
	o.Draw = func(r *mathrand.Rand) player.Order { return draw(r, o, l.Traits().Shared, bare) }
	if err := touch(l, prefix, o.TTL); err != nil {
		silent = true
		return base.Trouble(l.URL, err)
	}
	o.Session = l.Store.Session() // as the store has decided by now
	signals, stop := child.Notify()
	defer stop()
	if !t.output.JSON() {
		base.Note("trying %s for %s with %d clients (seed %d). Ctrl-C ends it early", l.URL, people.Short(o.For), o.Clients, o.Seed)
	}
	out, sig, err := o.Run(signals)
	if err != nil {
		return base.Failed("%v", err)
	}
	silent = out.Trouble != ""
	end := verdictOn(l, prefix, o, out, sig)
	v := &verified{Store: l.URL.String(), Kind: l.Traits().Engine, Seed: o.Seed, Tried: people.Seconds(out.Tried), TTL: people.Seconds(o.TTL), Clients: o.Clients,
		Keys: t.keys, Counts: out.Counts, Handoff: people.Seconds(out.Handoff), Recovered: out.Recovered, Back: people.Seconds(out.Back), Bound: people.Seconds(o.Bound()),
		Findings: out.Found, Promise: l.Store.Promise(), NotTried: notTried, Verdict: "ok", bare: bare}
	if bare {
		v.NotTried = bareNotTried + notTried
	}
	if end != nil {
		v.Verdict, v.Code = end.Verdict, end.Code
	}
	if t.output.JSON() {
		if err := plain.WriteJSON(base.Stdout, v); err != nil {
			return err
		}
	} else {
		v.print(base.Stdout)
	}
	if end != nil {
		return end
	}
	return nil
}

// draw draws the next order: of a client that only reads, where the store shares keys; bare where leases have no fences, so that
// nothing is written under them: a late write could not be told.
func draw(r *mathrand.Rand, o *player.Trial, shares, bare bool) player.Order {
	want := player.Want{Key: o.Keys[r.IntN(len(o.Keys))]}
	next := player.Order{Hold: player.Between(r, time.Millisecond, 20*time.Millisecond), Bare: bare}
	if r.IntN(30) == 0 { // through a renewal or two
		next.Hold = player.Between(r, o.TTL*2/5, o.TTL)
	}
	want.Shared = shares && r.IntN(3) == 0
	if r.IntN(8) == 0 {
		next.Limit = player.Between(r, 5*time.Millisecond, 50*time.Millisecond)
	}
	next.Wants = []player.Want{want}
	return next
}

// touch takes and releases a key, before any process is started.
func touch(l *base.Locks, prefix string, ttl time.Duration) error {
	ctx, cancel := base.Asking()
	defer cancel()
	lease, err := l.Mutex(prefix+"/first", &hasp.LockOptions{TTL: ttl, Reason: "hasp verify"}).Lock(ctx) // which asks again
	if err != nil {
		return err
	}
	return lease.Release()
}

// verdictOn is the end of hasp verify; nil when nothing was found.
func verdictOn(l *base.Locks, prefix string, o *player.Trial, out *player.Outcome, sig os.Signal) *base.Exit {
	switch {
	case len(out.Found) > 0:
		return &base.Exit{Code: exitBroken, Verdict: "broken", Message: fmt.Sprintf(
			"a rule of locks was broken on the store %s: BROKEN says which, and promise what can lead to that (seed %d)", l.URL, o.Seed)}
	case sig != nil:
		s, _ := sig.(syscall.Signal)
		return &base.Exit{Code: 128 + int(s), Verdict: "interrupted", Interrupted: s == syscall.SIGINT,
			Message: fmt.Sprintf("ended early by a signal (%v): no rule was broken until then", sig)}
	case out.Trouble != "":
		said := errors.New(out.Trouble)
		end := base.Trouble(l.URL, cmp.Or(touch(l, prefix, o.TTL), error(&hasp.Error{Class: out.Class, Err: said})))
		end.Message = "ended early: " + end.Message
		return end
	}
	return nil
}
