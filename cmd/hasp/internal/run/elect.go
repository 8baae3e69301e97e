// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/internal/people"
	"github.com/spf13/cobra"
)

// The pause between the end of the command and the next candidacy. It doubles
// from the least to the most, so that a command that fails at once does not
// spin, and others may lead meanwhile; a command that ran for as long as the
// most begins with the least again.
const (
	leastPause = time.Second
	mostPause  = time.Minute
)

func newElect(args []string) *cobra.Command {
	o := &options{
		election: true,
		busyCode: base.ExitBusy, // for one within a hasp that holds the key
		onLost:   base.OneOf(lostTerm, lostTerm, lostKill),
		output:   base.Outputs(),
	}
	observe := false
	cmd := &cobra.Command{
		Use:     "elect [flags] KEY -- COMMAND [ARGUMENT...]",
		Short:   "Run a command while leading, again and again; or watch who leads",
		Long:    electLong,
		Example: electExample,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, words []string) error {
			if observe {
				return observeLeader(cmd, o, words)
			}
			keys, command, err := split(cmd, args, words)
			if err != nil {
				return err
			}
			if len(keys) > 1 {
				return base.Usage("an election has one key, and these are %d: hasp elect KEY -- COMMAND", len(keys))
			}
			if child.Crowded() {
				return alone()
			}
			o.reasoned = cmd.Flags().Changed("reason")
			return elect(cmd, o, keys, command)
		},
		DisableFlagsInUseLine: true,
	}
	cmd.SetFlagErrorFunc(commandFlagError(args))
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVarP(&observe, "observe", "l", false, "run nothing, print who leads; now and at each change")
	o.holdFlags(cmd, "when the leadership is lost: TERM and then KILL the command, or only KILL it")
	base.Brief(cmd, "observe", "ttl", "grace", "quiet", "verbose", "output", "store")
	return cmd
}

// candidate is what a job knows of its candidacy.
type candidate struct {
	terminal bool        // it has one
	answered atomic.Bool // the store has given a good answer
	pause    time.Duration
}

// elect is hasp elect: it runs the command while it leads, until a signal ends
// the candidacy.
func elect(cmd *cobra.Command, o *options, keys, argv []string) error {
	j, stop := newJob(o, keys, argv)
	defer stop()
	j.candidate = &candidate{terminal: child.HasTerminal()}
	status, err := j.all(cmd, j.campaign)
	return j.rep.verdict(status, err)
}

// campaign leads again and again.
func (j *job) campaign() (*child.Status, error) {
	for {
		began := time.Now()
		status, err := j.single()
		if status != nil {
			began = j.acquired
		}
		if j.over(status, err) {
			return status, err
		}
		if err := j.rest(status, err, time.Since(began)); err != nil {
			return nil, err
		}
		j.silent = false
	}
}

// ends reports whether a signal ends a wait. A candidate also gets signals meant for
// its command, which may not be running: HUP ends the wait at a terminal, which is
// gone then; elsewhere it is a request to the command, as USR1 and USR2 are.
func (j *job) ends(sig os.Signal) bool {
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT:
		return true
	case syscall.SIGHUP:
		return j.candidate == nil || j.candidate.terminal
	}
	return j.candidate == nil
}

// over says whether the candidacy is over with this term, or with this attempt
// when no command ran: status is nil.
func (j *job) over(status *child.Status, err error) bool {
	if status == nil {
		end := (*base.Exit)(nil)
		if errors.As(err, &end) && end.Code == base.ExitLost { // before the command began
			return false
		}
		return end == nil || !j.candidate.answered.Load() || end.Ends(true)
	}
	signalled := slices.ContainsFunc(status.Passed, func(sig syscall.Signal) bool { return j.ends(sig) || sig == status.Signal })
	return signalled || status.Keyboard
}

// rest waits before the next candidacy. An error is the end of it.
func (j *job) rest(status *child.Status, err error, took time.Duration) error {
	c := j.candidate
	c.pause = min(max(2*c.pause, leastPause), mostPause)
	if status != nil && took >= mostPause {
		c.pause = leastPause
	}
	e := entry{Event: "again", Left: people.Seconds(c.pause)}
	l, end := normal, (*base.Exit)(nil)
	switch {
	case errors.As(err, &end):
		e.Message, e.Error, e.Verdict = end.Message, end.Why, end.Verdict
		if strings.HasPrefix(end.Verdict, "lost") || status == nil {
			l = problem
		}
	default:
		e.Message = fmt.Sprintf("%s: the command %s", base.QuoteAll(j.keys), outcome(*status))
	}
	if status != nil {
		code := status.Exit()
		e.Status = &code
	}
	e.Message += fmt.Sprintf("; a candidate again in %s", people.Short(c.pause))
	j.rep.say(l, e)
	again := time.After(c.pause)
	for {
		if j.received != nil { // while the key was given back
			return j.interrupted(base.Signaled{Sig: j.received.(syscall.Signal)})
		}
		select {
		case <-again:
			return nil
		case sig := <-j.signals:
			if j.ends(sig) {
				j.received = sig
			}
		}
	}
}
