// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/spf13/cobra"
)

// options are the flags of hasp run, and of hasp elect, which has some of them.
type options struct {
	store      storeFlag
	shared     bool
	slots      slots
	election   bool // it is hasp elect
	forShell   bool // it is hasp acquire
	now        bool
	wait       duration
	busyCode   exitCode
	ttl        duration
	maxHold    duration
	atLeast    duration
	grace      duration
	onLost     choice
	reason     string
	reasoned   bool // --reason was given
	quiet      bool
	verbose    bool
	output     choice
	audit      auditFlag
	ttlFromURL bool
}

const (
	lostTerm   = "term"
	lostKill   = "kill"
	lostIgnore = "ignore"
)

func newRun(args []string) *cobra.Command {
	o := &options{
		busyCode: exitCode{exitBusy},
		onLost:   choice{lostTerm, []string{lostTerm, lostKill, lostIgnore}},
		output:   choice{"text", []string{"text", "json"}},
	}
	cmd := &cobra.Command{
		Use:     "run [flags] KEY [KEY...] -- COMMAND [ARGUMENT...]",
		Short:   "Hold a key, or several, while a command runs",
		Long:    runLong,
		Example: runExample,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, words []string) error {
			keys, command, err := split(cmd, args, words)
			if err != nil {
				return err
			}
			if err := o.oneKind(cmd, args); err != nil {
				return err
			}
			if child.Crowded() {
				return alone()
			}
			o.reasoned = cmd.Flags().Changed("reason")
			return run(cmd, o, keys, command)
		},
		DisableFlagsInUseLine: true,
	}
	cmd.SetFlagErrorFunc(commandFlagError(args))
	f := cmd.Flags()
	f.SortFlags = false
	o.askFlags(cmd)
	f.Var(&o.atLeast, "hold-at-least", "keep the key for at least so long, even when the command was quicker")
	o.holdFlags(cmd, "when the lock is lost: TERM and then KILL the command, only KILL it, or let it go on")
	return cmd
}

// alone runs this command line once more, in a process that starts without children. Left has it begun by the starter, which
// hands on what systemd said to this process.
func alone() error {
	self := "/proc/self/exe"
	if _, err := os.Stat(self); err != nil {
		self, _ = exec.LookPath(os.Args[0])
	}
	signals, stop := child.Notify()
	defer stop()
	st, err := child.Run(child.Spec{Path: self, Argv: os.Args, Env: os.Environ(), Signals: signals, Left: func() time.Duration { return time.Hour }})
	if err != nil {
		return startError("hasp", err)
	}
	return &exit{code: st.Exit(), interrupted: st.Signal == syscall.SIGINT, group: st.Keyboard}
}

// oneKind refuses --shared together with --slots.
func (o *options) oneKind(cmd *cobra.Command, args []string) error {
	if o.shared && o.slots.n > 0 {
		return usage("--shared is for any number of readers, and --slots for that many holders: use one of them:\n  %s\n  %s",
			without(cmd.Flags(), args, "slots"), without(cmd.Flags(), args, "shared"))
	}
	return nil
}

// askFlags say how a key is asked for, and for how long.
func (o *options) askFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&o.shared, "shared", "s", false, "read: share the key with other readers, and exclude writers")
	f.Var(&o.slots, "slots", "share the key with at most N-1 others; the command sees its number, 0 to N-1, as HASP_SLOT")
	f.BoolVarP(&o.now, "nonblock", "n", false, "try once; when the key is busy exit with 75, or -E")
	f.VarP(&o.wait, "wait", "w", "wait so long at most (seconds, or 1m30s; 0 is -n), then exit with 75, or -E")
	f.VarP(&o.busyCode, "conflict-exit-code", "E", "exit with this when the key is busy, 0 to 255")
	f.Var(&o.maxHold, "max-hold", "end the command after so long, as if the lock was lost")
}

// commandFlagError says what is wrong with a flag, which may be the command's.
func commandFlagError(args []string) func(cmd *cobra.Command, err error) error {
	return func(cmd *cobra.Command, err error) error {
		if line, ok := corrected(cmd.Flags(), args); ok {
			return usage("%v. The command goes after --. Did you mean:\n  %s", err, line)
		}
		return usage("%v%s; see: %s --help", err, meantFlag(cmd, err), cmd.CommandPath())
	}
}

// holdFlags are those of whatever holds a key while a command runs.
func (o *options) holdFlags(cmd *cobra.Command, onLost string) {
	f := cmd.Flags()
	f.Var(&o.ttl, "ttl", "how long the store keeps the key after hasp died (default 30s, or the most that the store allows)")
	f.Var(&o.onLost, "on-lost", onLost)
	f.Var(&o.grace, "grace", "from TERM to KILL, which comes when the lease ends (default 5s, or TTL/6 when that is less)")
	f.StringVar(&o.reason, "reason", "", "`TEXT` for those who wait for the key (default: the name of COMMAND)")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "report errors only: not who holds the key, not that it is busy, not how the command ended")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "also say when the key is acquired, renewed, released")
	f.VarP(&o.output, "output", "o", "messages as lines, or as objects, one a line")
	o.audit.add(cmd, "record a loss of the lock")
	o.store.add(cmd)
	complete(cmd, "on-lost", o.onLost.among)
	complete(cmd, "output", o.output.among)
}

// complete lists the values of a flag for the shell's completion.
func complete(cmd *cobra.Command, flag string, words []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // no such flag
	}
}

// lockers are the locks of the keys, as the flags say.
func (o *options) lockers(l *locks, keys []string, lo *hasp.LockOptions) []hasp.Locker {
	lockers := make([]hasp.Locker, len(keys))
	for i, key := range keys {
		switch {
		case o.shared:
			lockers[i] = l.RWMutex(key, lo).RLocker()
		case o.election:
			lockers[i] = l.Election(key, lo)
		case o.slots.n > 0:
			lockers[i] = l.Semaphore(key, o.slots.n, lo)
		default:
			lockers[i] = l.Mutex(key, lo)
		}
	}
	return lockers
}

// longestKept is what a store certainly keeps a key for, after hasp has left.
const longestKept = 5 * 365 * 24 * time.Hour

// lockOptions checks the flags against each other and against the store, and
// returns them as the library wants them.
func (o *options) lockOptions(l *locks) (*hasp.LockOptions, error) {
	if err := o.redisson(l); err != nil {
		return nil, err
	}
	if o.now && o.wait.set && o.wait.d > 0 {
		return nil, usage("-n does not wait, and -w does: use one of them")
	}
	for _, f := range []struct {
		name string
		v    duration
	}{{"--ttl", o.ttl}, {"--max-hold", o.maxHold}, {"--hold-at-least", o.atLeast}} {
		if f.v.set && f.v.d == 0 {
			return nil, usage("%s is 0: it must be positive", f.name)
		}
	}
	if !o.ttl.set {
		o.ttl.d, o.ttlFromURL = l.url.TTL, l.url.TTL > 0
	}
	if o.ttl.d == 0 {
		o.ttl.d = hasp.DefaultTTL
		if most := l.Traits().MaxTTL; most > 0 {
			o.ttl.d = min(o.ttl.d, most)
		}
	}
	if err := o.checkTTL(l); err != nil {
		return nil, err
	}
	if err := o.checkGrace(); err != nil {
		return nil, err
	}
	if o.atLeast.d > longestKept {
		return nil, usage("--hold-at-least %v is longer than %v, which is five years", o.atLeast.d, longestKept)
	}
	if o.maxHold.set && o.atLeast.d > o.maxHold.d {
		return nil, usage("--hold-at-least %v is longer than --max-hold %v", o.atLeast.d, o.maxHold.d)
	}
	return &hasp.LockOptions{TTL: o.ttl.d, MaxHold: o.maxHold.d, Lead: o.lead(), Reason: o.reason}, nil
}

// redisson refuses what Redisson's locks do not have, as the library would, but says which do.
func (o *options) redisson(l *locks) error {
	switch t := l.Traits(); {
	case !l.store.Redisson:
	case o.shared && !t.Shared:
		return badConfig(fmt.Errorf("the store %s cannot do this: of Redisson's locks, only those of kind=readwrite can be shared", l.url))
	case o.slots.n > 0 && !t.Slots:
		return badConfig(fmt.Errorf("the store %s cannot do this: Redisson's locks have no --slots", l.url))
	}
	return nil
}

// whose names what works under the lock, after an article.
func (o *options) whose(the string) string {
	if o.forShell {
		return the + " shell"
	}
	return the + " command"
}

// lead is how long before its deadline a lease counts as lost.
func (o *options) lead() time.Duration {
	if o.onLost.word == lostIgnore { // nothing has to end in time
		return 0
	}
	return o.grace.d
}

func (o *options) checkTTL(l *locks) error {
	err := checkTTL(l, o.ttl.d)
	if err != nil && o.ttlFromURL {
		return badConfig(errors.New(err.message + " (ttl= in the store's URL)"))
	}
	if err != nil { // a nil *exit is no nil error
		return err
	}
	return nil
}

// checkTTL refuses a TTL that the store does not grant.
func checkTTL(l *locks, ttl time.Duration) *exit {
	tr := l.Traits()
	switch {
	case ttl < tr.MinTTL:
		return usage("the TTL of %v is too short: %s needs at least %v", ttl, tr.Engine, tr.MinTTL)
	case tr.MaxTTL > 0 && ttl > tr.MaxTTL:
		if l.store.Redisson {
			return usage("the TTL of %v is too long: it may be %v, Redisson's lockWatchdogTimeout, as its watchdog ends the lock of all readers so long after it "+
				"renewed one of its own. Lower the TTL, or raise both in every program (lock-watchdog-timeout= in the store's URL)", ttl, tr.MaxTTL)
		}
		if len(l.store.Servers) == 0 {
			return usage("the TTL of %v is too long: %s grants at most %v", ttl, tr.Engine, tr.MaxTTL)
		}
		return usage("the TTL of %v is too long: %s allows at most %v, as its servers grant nothing for so long after a restart. "+
			"Lower the TTL, or raise max-ttl= in the store's URL, for every client at once (see: hasp doctor --help)", ttl, tr.Engine, tr.MaxTTL)
	}
	return nil
}

// checkGrace sets the default, and refuses a grace that leaves no time to use and
// renew a lease.
func (o *options) checkGrace() error {
	if !o.grace.set {
		o.grace.d = min(5*time.Second, o.ttl.d/6)
		if o.maxHold.set {
			o.grace.d = min(o.grace.d, o.maxHold.d/6)
		}
		return nil
	}
	// A lease is renewed after a third of its TTL: some time for that must be left.
	if most := o.ttl.d / 2; o.grace.d > most {
		return usage("--grace %v is too long for a TTL of %v: at most half of it, %v, since the command is told so long "+
			"before the lease ends", o.grace.d, o.ttl.d, most)
	}
	if o.maxHold.set && o.grace.d >= o.maxHold.d {
		return usage("--grace %v must be less than --max-hold %v", o.grace.d, o.maxHold.d)
	}
	return nil
}
