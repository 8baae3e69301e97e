// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package run has the commands that hold a key: hasp run, elect, acquire, held and release.
//
// A command dies with its lock in two places: hold.go says when and why (ending), and how long the lease lasts (left);
// package child ends the processes.
package run

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/driver"
	"github.com/spf13/cobra"
)

// options are the flags of hasp run, and of hasp elect, which has some of them.
type options struct {
	store      base.StoreFlag
	agent      string // its address
	shared     bool
	slots      int  // 0: not given
	election   bool // it is hasp elect
	forShell   bool // it is hasp acquire
	now        bool
	wait       base.Duration
	busyCode   int
	ttl        base.Duration
	maxHold    base.Duration
	atLeast    base.Duration
	occurrence string        // of --once; "": none
	remember   base.Duration // --keep
	grace      base.Duration
	onLost     base.Choice
	reason     string
	reasoned   bool // --reason was given
	quiet      bool
	verbose    bool
	output     base.Choice
	audit      base.AuditFlag
	metrics    string // the file
}

const (
	lostTerm   = "term"
	lostKill   = "kill"
	lostIgnore = "ignore"
)

func newRun(args []string) *cobra.Command {
	o := &options{
		busyCode: base.ExitBusy,
		onLost:   base.OneOf(lostTerm, lostTerm, lostKill, lostIgnore),
		output:   base.Outputs(),
		remember: base.Duration{D: 25 * time.Hour},
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
			if child.Crowded() {
				return alone()
			}
			o.reasoned = cmd.Flags().Changed("reason")
			if o.agent, err = agentOf(cmd, o.agent); err != nil {
				return err
			}
			if err = o.checkOnce(cmd.Flags().Changed("once"), keys); err != nil {
				return err
			}
			return run(cmd, o, keys, command)
		},
		DisableFlagsInUseLine: true,
	}
	cmd.SetFlagErrorFunc(commandFlagError(args))
	f := cmd.Flags()
	f.SortFlags = false
	o.askFlags(cmd)
	f.Var(&o.atLeast, "hold-at-least", "keep the key for at least so long, even when the command was quicker")
	f.StringVar(&o.occurrence, "once", "", "run once for an `OCCURRENCE`, such as a date; @day and @hour are the current ones. A run that fails does not count")
	f.Var(&o.remember, "keep", "for how long --once remembers an occurrence; default 25h")
	o.holdFlags(cmd, "when the lock is lost: TERM and then KILL the command, only KILL it, or let it go on")
	f.StringVar(&o.agent, "agent", "", "take the key from the hasp agent at a `SOCKET`, unix:PATH; without it, or --store, what HASP_AGENT says")
	f.StringVar(&o.metrics, "metrics-file", "", "write how it went to `FILE`; for the textfile collector of node_exporter")
	base.Brief(cmd, "nonblock", "wait", "conflict-exit-code", "shared", "slots", "max-hold", "ttl", "quiet", "metrics-file", "store")
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
	return &base.Exit{Code: st.Exit(), Interrupted: st.Signal == syscall.SIGINT, Group: st.Keyboard}
}

// askFlags say how a key is asked for, and for how long.
func (o *options) askFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&o.shared, "shared", "s", false, "read: share the key with other readers; exclude writers")
	f.Var(base.Number(&o.slots, 1, math.MaxInt32), "slots", "share the key with at most N-1 others; the command sees its number, 0 to N-1, as HASP_SLOT")
	f.BoolVarP(&o.now, "nonblock", "n", false, "do not wait; when the key is busy exit with 75, or -E")
	f.VarP(&o.wait, "wait", "w", "wait so long at most, as 30 or 1m30s; 0 is -n; then exit with 75, or -E")
	f.VarP(base.Number(&o.busyCode, 0, 255), "conflict-exit-code", "E", "exit with this `CODE` when the key is busy; 0 to 255")
	f.Var(&o.maxHold, "max-hold", "end the command after so long; as if the lock was lost")
}

// commandFlagError says what is wrong with a flag, which may be the command's.
func commandFlagError(args []string) func(cmd *cobra.Command, err error) error {
	return func(cmd *cobra.Command, err error) error {
		if line, ok := corrected(cmd.Flags(), args); ok {
			return base.Usage("%v. The command goes after --. Did you mean:\n  %s", err, line)
		}
		return base.Usage("%v%s; see: %s --help-all", err, base.MeantFlag(cmd, err), cmd.CommandPath())
	}
}

// holdFlags are those of whatever holds a key while a command runs.
func (o *options) holdFlags(cmd *cobra.Command, onLost string) {
	f := cmd.Flags()
	f.Var(&o.ttl, "ttl", "how long the store keeps a key after a crash; default 30s, or the most that the store allows")
	o.onLost.Add(cmd, "on-lost", "", onLost)
	f.Var(&o.grace, "grace", "from TERM to KILL; KILL comes when the lease ends; default 5s, or a sixth of TTL or --max-hold when that is less")
	f.StringVar(&o.reason, "reason", "", "`TEXT` for those who wait for the key (default: the name of COMMAND)")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "report errors only; not who holds the key, not that it is busy, not how the command ended")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "also say when the key is acquired, renewed, released")
	o.output.AddOutput(cmd, "messages as lines, or as objects, one a line")
	o.audit.Add(cmd, "record a loss of the lock")
	o.store.Add(cmd)
}

// longestKept is what a store certainly keeps a key for, after hasp has left.
const longestKept = 5 * 365 * 24 * time.Hour

// lockOptions checks the flags against each other and against the store, and
// returns them as the library wants them.
func (o *options) lockOptions(from source) (*hasp.LockOptions, error) {
	if o.shared && o.slots > 0 {
		return nil, base.Usage("--shared is for any number of readers, and --slots for that many holders: use one of them")
	}
	if o.now && o.wait.Given && o.wait.D > 0 {
		return nil, base.Usage("-n does not wait, and -w does: use one of them")
	}
	for _, f := range []struct {
		name string
		v    base.Duration
	}{{"--ttl", o.ttl}, {"--max-hold", o.maxHold}, {"--hold-at-least", o.atLeast}, {"--keep", o.remember}} {
		if f.v.Given && f.v.D == 0 {
			return nil, base.Usage("%s is 0: it must be positive", f.name)
		}
	}
	if !o.ttl.Given {
		o.ttl.D = from.ttl()
	}
	if o.ttl.D == 0 {
		o.ttl.D = hasp.DefaultTTL
		if most := from.Traits().MaxTTL; most > 0 {
			o.ttl.D = min(o.ttl.D, most)
		}
	}
	if err := from.check(o); err != nil {
		return nil, err
	}
	if err := o.checkGrace(); err != nil {
		return nil, err
	}
	if o.atLeast.D > longestKept {
		return nil, base.Usage("--hold-at-least %v is longer than %v, which is five years", o.atLeast.D, longestKept)
	}
	if o.maxHold.Given && o.atLeast.D > o.maxHold.D {
		return nil, base.Usage("--hold-at-least %v is longer than --max-hold %v", o.atLeast.D, o.maxHold.D)
	}
	lo := &hasp.LockOptions{TTL: o.ttl.D, MaxHold: o.maxHold.D, Lead: o.lead(), Reason: o.reason}
	if o.atLeast.Given && !o.shared { // a reader stays one when its command has ended
		lo.Reason, lo.Label = strings.TrimSpace(fmt.Sprintf("%s (--hold-at-least %v)", o.reason, o.atLeast.D)), &driver.Label{Kept: true}
	}
	return lo, nil
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
	if o.onLost.Word == lostIgnore { // nothing has to end in time
		return 0
	}
	return o.grace.D
}

// checkGrace sets the default, and refuses a grace that leaves no time to use and
// renew a lease.
func (o *options) checkGrace() error {
	if !o.grace.Given {
		o.grace.D = min(5*time.Second, o.ttl.D/6)
		if o.maxHold.Given {
			o.grace.D = min(o.grace.D, o.maxHold.D/6)
		}
		return nil
	}
	// A lease is renewed after a third of its TTL: some time for that must be left.
	if most := o.ttl.D / 2; o.grace.D > most {
		return base.Usage("--grace %v is too long for a TTL of %v: at most half of it, %v, since the command is told so long "+
			"before the lease ends", o.grace.D, o.ttl.D, most)
	}
	if o.maxHold.Given && o.grace.D >= o.maxHold.D {
		return base.Usage("--grace %v must be less than --max-hold %v", o.grace.D, o.maxHold.D)
	}
	return nil
}

// Commands are those that hold a key. args are the words after "hasp".
func Commands(args []string) []*cobra.Command {
	return append(forShells(args), newRun(args), newElect(args))
}
