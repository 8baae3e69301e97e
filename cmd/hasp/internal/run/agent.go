// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/pipe"
	"github.com/spf13/cobra"
)

const envAgent = "HASP_AGENT"

// agentOf returns the address of the agent that --agent names, or HASP_AGENT where no store is named by a flag; "": none.
func agentOf(cmd *cobra.Command, flag string) (addr string, err error) {
	where, given, direct := "--agent", cmd.Flags().Changed("agent"), cmd.Flags().Changed("store")
	env, set := os.LookupEnv(envAgent)
	switch {
	case given && direct:
		return "", base.Usage("--agent names an agent, which has a store, and --store another one: use one of them")
	case direct, !given && !set:
		return "", nil
	case !given:
		where, flag = envAgent, env
	}
	path, ok := strings.CutPrefix(flag, "unix:")
	if !ok || path == "" {
		return "", base.BadConfig(fmt.Errorf("%s is %q, which is no socket: name unix:PATH, as hasp agent --listen does", where, flag))
	}
	if path[0] != '@' { // the command may go elsewhere
		path, err = filepath.Abs(path)
	}
	if most := len(syscall.RawSockaddrUnix{}.Path); len(path) >= most {
		return "", base.BadConfig(fmt.Errorf("%s is %q, a path of %d bytes: that of a socket has less than %d", where, "unix:"+path, len(path), most))
	}
	return "unix:" + path, err
}

// agentKeys are the keys of the store of an agent.
type agentKeys struct {
	*pipe.Client
	j      *job
	params pipe.LockParams
}

// dialAgent connects to the agent. When this process stands still the agent keeps the keys for as long as a store would.
func dialAgent(j *job) (source, error) {
	ctx, cancel := context.WithTimeout(context.Background(), base.AskLimit)
	defer cancel()
	alive := min(max(hasp.DefaultTTL, j.o.ttl.D), longestKept)
	c, err := pipe.Dial(ctx, j.o.agent, "hasp run", alive)
	if err == nil && !j.o.ttl.Given && time.Duration(c.Hello.TTL)*time.Millisecond > alive { // which only its answer says
		c.Kill()
		c, err = pipe.Dial(ctx, j.o.agent, "hasp run", time.Duration(c.Hello.TTL)*time.Millisecond)
	}
	a := &agentKeys{Client: c, j: j}
	if err == nil {
		j.o.store.Text = c.Hello.Store // for the commands that messages name
		return a, nil
	}
	end, op := a.trouble(err), (*net.OpError)(nil)
	switch {
	case errors.Is(err, fs.ErrPermission):
		end.Code, end.Verdict = base.ExitDenied, "denied"
		end.Message = fmt.Sprintf("this user may not connect to the agent at %s (%v): hasp agent --group lets the users of a group in", j.o.agent, fs.ErrPermission)
	case errors.As(err, &op):
		end.Message = fmt.Sprintf("no agent is at %s: %v. Start it: hasp agent --listen %[1]s", j.o.agent, op.Err)
	case errors.As(err, new(*pipe.Error)):
		end.Message += ". Is it of another version of hasp?"
	case ctx.Err() == nil:
		end.Message = fmt.Sprintf("the agent at %s closed the connection before it answered: it ends, does not serve this user (hasp agent --group), or is none of hasp's", j.o.agent)
	}
	return nil, end
}

func (a *agentKeys) String() string { return a.Hello.Store }
func (a *agentKeys) found() string  { return "of the agent at " + a.j.o.agent }

func (a *agentKeys) ttl() time.Duration {
	if a.Hello.MaxTTL > 0 && a.Hello.MaxTTL < a.Hello.TTL {
		return 0
	}
	return time.Duration(a.Hello.TTL) * time.Millisecond
}

func (a *agentKeys) Traits() driver.Traits {
	return driver.Traits{Engine: a.Hello.Engine, Fencing: a.Hello.Fences, MaxTTL: time.Duration(a.Hello.MaxTTL) * time.Millisecond}
}

// check refuses what an agent cannot do. What the store cannot do the agent refuses.
func (a *agentKeys) check(o *options) error {
	if o.atLeast.Given {
		return base.Usage("--hold-at-least keeps the key when hasp has ended, and an agent keeps none then: leave it out, or name the store with --store")
	}
	if o.occurrence != "" {
		return base.Usage("--once leaves a mark in the store, and an agent makes none: name the store with --store")
	}
	return nil
}

func (a *agentKeys) name(o *options, keys []string, lo *hasp.LockOptions) {
	a.j.wait.store += ", " + a.found()
	a.params = pipe.LockParams{Keys: keys, Slots: o.slots, TTL: pipe.InMillis(lo.TTL), Lead: pipe.InMillis(lo.Lead), MaxHold: pipe.InMillis(lo.MaxHold), Reason: lo.Reason}
	if lo.MaxHold == 0 { // the agent's bound is for clients that stand still, which it knows of us
		a.params.MaxHold = pipe.InMillis(longestKept)
	}
	if o.shared {
		a.params.Mode = "shared"
	}
}

func (a *agentKeys) ask(ctx context.Context, wait time.Duration) (held, error) {
	p := a.params
	if wait >= 0 {
		wait = min(wait, longestKept) // the protocol has no more than twice that
		most := pipe.InMillis(wait)
		p.Wait = &most
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait+time.Duration(len(p.Keys)+1)*base.AskLimit) // of an agent that does not answer; each key may take as long
		defer cancel()
	}
	if wait != 0 {
		waiting, stop := context.WithCancel(ctx)
		defer stop()
		go a.watch(waiting)
	}
	l, err := a.Lock(ctx, p)
	if err == nil {
		h := &agentLease{Lease: l, from: a, granted: time.Now()}
		go h.watch()
		return h, nil
	}
	var e *pipe.Error
	switch {
	case !errors.As(err, &e):
	case e.Kind == pipe.Busy:
		err = &hasp.Error{Op: "lock", Key: e.Key, Err: fmt.Errorf("%w%w", &hasp.HeldError{Holder: e.Holder.Back()}, e)}
	case e.Kind == pipe.Unavailable && wait > 0:
		err = &hasp.WaitError{End: context.DeadlineExceeded, Why: e}
	}
	return nil, err
}

// watch tells what is in the way, as the library does of a store, until ctx ends.
func (a *agentKeys) watch(ctx context.Context) {
	keys := slices.Sorted(slices.Values(a.params.Keys)) // as they are acquired
	slices.Reverse(keys)
	for pause := silence / 4; ; pause = rest {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		e := &event.Event{Kind: event.Waiting, Key: keys[len(keys)-1], Waited: time.Since(a.j.wait.began)}
		goesOn := false
		for _, key := range keys { // this run waits for the first of them that is held, or has that itself
			info, err := a.Inspect(ctx, key)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				e.Kind, e.Err = event.Trouble, errors.New(strings.TrimPrefix(a.trouble(err).Message, fmt.Sprintf("the store %s ", a)))
				break
			}
			if goesOn = slices.ContainsFunc(info.Holders, func(l driver.Holding) bool { return a.mine(l.Holder) }); goesOn {
				break
			}
			if info.Held && info.Leases >= a.j.o.slots {
				e.Key, e.Holder, e.Left, e.Ahead = key, info.Holder, info.Left, max(slices.IndexFunc(info.Queue, a.mine), 0)
				break
			}
		}
		if !goesOn {
			a.j.observe(ctx, e)
		}
	}
}

// mine says whether it is this process; it counts for people alone.
func (*agentKeys) mine(h hasp.Holder) bool {
	host, _ := os.Hostname()
	l := h.Describe()
	return l.PID == os.Getpid() && l.Host == host
}

func (a *agentKeys) Inspect(ctx context.Context, key string) (hasp.Info, error) {
	var k people.KeyJSON
	err := a.Call(ctx, "show", map[string]string{"key": key}, &k)
	return k.Info(), err
}

func (a *agentKeys) trouble(err error) *base.Exit {
	end := &base.Exit{Code: base.ExitUnreachable, Verdict: "unreachable", Message: fmt.Sprintf("the agent at %s has ended, or does not answer", a.j.o.agent)}
	var e *pipe.Error
	if !errors.As(err, &e) {
		return end
	}
	switch e.Kind {
	case pipe.Denied:
		end.Code, end.Verdict = base.ExitDenied, "denied"
	case pipe.Misconfigured, pipe.Unsupported:
		end.Code, end.Verdict = base.ExitConfig, "misconfigured"
	case pipe.Invalid, pipe.Limit:
		end.Code, end.Verdict = base.ExitUsage, "usage"
	}
	if end.Message = e.Message; !strings.HasPrefix(end.Message, "the store ") {
		end.Message = fmt.Sprintf("the agent at %s: %s", a.j.o.agent, end.Message)
	}
	return end
}

// inherit leaves the variables of a store as they are: hasp run did not look at them.
func (a *agentKeys) inherit() ([]string, func(), error) {
	all := []string{envAgent + "=" + a.j.o.agent}
	for _, name := range []string{store.EnvURL, store.EnvFile} {
		if text, ok := os.LookupEnv(name); ok {
			all = append(all, name+"="+text)
		}
	}
	return all, func() {}, nil
}

// Close ends the connection: what was not released is abandoned.
func (a *agentKeys) Close() error {
	a.Kill()
	return nil
}

// agentLease are keys that an agent holds for us.
type agentLease struct {
	*pipe.Lease
	from     *agentKeys
	granted  time.Time
	released atomic.Bool
}

func (l *agentLease) keys() (all []leaseJSON) {
	for _, k := range l.Keys {
		fence, _ := strconv.ParseUint(k.Fence, 10, 64) // there may be none
		all = append(all, leaseJSON{k.Key, fence, k.Owner, k.Slot, k.Abandoned})
	}
	return all
}

// Err is that of the lease as the library would have it.
func (l *agentLease) Err() error { return l.ofLibrary(l.Lease.Err()) }

func (l *agentLease) ofLibrary(err error) error {
	if err == nil {
		return nil
	}
	ours, e := &hasp.Error{Op: "hold"}, (*pipe.Error)(nil)
	if !errors.As(err, &e) {
		ours.Op, ours.Err = "release", errors.New(l.from.trouble(err).Message)
		return ours
	}
	said := *e
	for _, k := range l.Keys { // the agent's text begins with LOST, as the report of this run does
		if text, ok := strings.CutPrefix(said.Message, "LOST "+base.Quote(k.Key)+": "); ok {
			ours.Key, said.Message = k.Key, text
		}
	}
	ours.Err = &said
	return ours
}

// watch tells of the loss.
func (l *agentLease) watch() {
	if <-l.Done(); !l.released.Load() {
		l.tell(event.Lost, l.Err())
	}
}

func (l *agentLease) tell(kind event.Kind, err error) {
	for _, k := range l.keys() {
		if base.KeyOf(err, k.Key) == k.Key {
			l.from.j.observe(context.Background(), &event.Event{Kind: kind, Key: k.Key, Owner: k.Owner, Fence: k.Fence, Held: time.Since(l.granted), Err: err})
		}
	}
}

func (l *agentLease) Release() error {
	l.released.Store(l.Lease.Err() == nil)
	err := l.ofLibrary(l.Lease.Release())
	l.tell(event.Released, err)
	return err
}

// unused: an agent takes what is not released for abandoned.
func (l *agentLease) unused() error {
	if l.Abandoned {
		l.released.Store(true) // its end is no loss
		return l.Abandon()
	}
	return l.Release()
}
