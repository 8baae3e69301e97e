// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// forShells are the commands for scripts that hold a key themselves.
func forShells(args []string) []*cobra.Command {
	return []*cobra.Command{
		newAcquire(args, nil), newKeeper(),
		newHeldOrRelease(false, "held [flags] KEY [KEY...]", "Does this shell hold a key, by hasp acquire", heldLong),
		newHeldOrRelease(true, "release [flags] [KEY...]", "Release what hasp acquire holds for this shell", releaseLong),
	}
}

// newAcquire returns hasp acquire, or with a keeper the part of it that runs in the
// keeper process.
func newAcquire(args []string, k *keeper) *cobra.Command {
	o := &options{
		forShell: true,
		busyCode: base.ExitBusy,
		onLost:   base.OneOf(lostTerm, lostTerm, lostKill, lostIgnore),
		output:   base.Outputs(),
	}
	pid := 0
	cmd := &cobra.Command{
		Use: "acquire [flags] KEY [KEY...]", Short: "Hold a key, or several, for the calling shell", Long: acquireLong, Example: acquireExample,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, words []string) error {
			keys, err := base.Distinct(words)
			switch {
			case err != nil:
				return err
			case len(keys) == 0:
				return base.Usage("KEY is missing: hasp acquire KEY")
			case o.busyCode == 0:
				return base.Usage("-E 0 would tell the shell that it holds a key which it does not hold: hasp acquire -n KEY || exit 0")
			}
			o.reasoned = cmd.Flags().Changed("reason")
			if k != nil {
				return k.serve(cmd, o, keys)
			}
			shell, err := callingShell(pid)
			if err != nil {
				return err
			}
			return acquire(request{args, shell, jobControl(shell)})
		},
		DisableFlagsInUseLine: true,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&pid, "pid", 0, "hold the key for this process instead of the one that called hasp: --pid $$")
	o.askFlags(cmd)
	o.holdFlags(cmd, "when the lock is lost: TERM and then KILL the shell and all that it started, only KILL them, or let them go on")
	f.Lookup("slots").Usage = "share the key with at most N-1 others; hasp held --print slot KEY tells which slot it is, 0 to N-1"
	f.Lookup("max-hold").Usage = "end the shell after so long; as if the lock was lost"
	f.Lookup("reason").Usage = "`TEXT` for those who wait for the key (default: the name of the script)"
	base.Brief(cmd, "nonblock", "wait", "conflict-exit-code", "shared", "slots", "max-hold", "ttl", "quiet", "store")
	return cmd
}

// shells are the programs that a key is held for without --pid. Another program that
// calls hasp, such as timeout or sudo, ends right after that.
var shells = []string{
	"ash", "bash", "busybox", "csh", "dash", "elvish", "fish", "ksh", "lksh", "mksh", "nu", "oksh", "osh", "posh", "pwsh", "rc", "sh", "tcsh", "yash", "zsh",
}

// callingShell returns the process that called us, or that --pid names.
func callingShell(pid int) (child.Process, error) {
	if pid != 0 {
		p, err := child.Find(pid)
		if err != nil {
			return p, base.Usage("%v", err)
		}
		return p, nil
	}
	p, err := child.Caller()
	if err != nil {
		return p, base.Usage("%v Say which process to hold the key for, as in hasp acquire --pid $$ KEY", err)
	}
	if !slices.Contains(shells, strings.TrimRight(p.Program(), "-.0123456789")) {
		return p, base.Usage("hasp was called by %s (pid %d), which is no shell that it knows, and would hold the key until that ends: "+
			"say which process to hold it for, as in hasp acquire --pid $$ KEY", base.Quote(p.Program()), p.PID)
	}
	return p, nil
}

// jobControl says whether a shell gives its commands process groups of their own,
// as a shell at a prompt does. The groups do not tell it when we run within the $( … ) of the shell.
func jobControl(shell child.Process) bool {
	if shell.PID != os.Getppid() {
		return shell.Ignores(unix.SIGTSTP) && shell.Ignores(unix.SIGTTOU)
	}
	group, err := unix.Getpgid(shell.PID)
	return err == nil && group != unix.Getpgrp()
}

// request is what hasp acquire sends to its keeper. It may contain a password, so it is
// not passed on the command line.
type request struct {
	Args       words // of hasp acquire
	Shell      child.Process
	JobControl bool
}

// acquire starts a keeper, which acquires the keys, and ends when the keeper has them.
// The keeper writes all messages.
func acquire(e request) error {
	if err := child.Room(); err != nil { // for the keeper, too
		return base.Failed("%v", err)
	}
	signals, stop := child.Notify()
	defer stop()
	keeper, pipe, err := startKeeper()
	if err != nil {
		return base.Failed("the process that holds the key cannot be started: %v", err)
	}
	defer pipe.Close()
	say, answered := json.NewEncoder(pipe), make(chan bool)
	go func() {
		_ = say.Encode(e) // without it there is no answer
		answered <- json.NewDecoder(pipe).Decode(new(bool)) == nil
	}()
	received := os.Signal(nil)
	for {
		select {
		case received = <-signals:
			_ = keeper.Process.Signal(received) // it may have ended
		case granted := <-answered:
			stop() // returns when the signals that came are delivered: they count, as we may have been stopped meanwhile
			select {
			case received = <-signals:
				_ = keeper.Process.Signal(received) // it releases the keys
			default:
			}
			if granted && received == nil && say.Encode(true) == nil {
				return nil
			}
			_ = keeper.Wait() // its status is what counts
			return keeperEnded(keeper.ProcessState.ExitCode(), received)
		}
	}
}

// keeperEnded returns the error for a keeper that ended without the keys.
func keeperEnded(code int, received os.Signal) error {
	if sig, ok := received.(syscall.Signal); ok && code < 0 { // before it could handle signals
		code = 128 + int(sig)
	}
	if code <= 0 || code == 2 { // Go's, when there is no room for another thread
		return base.Failed("the process that was to hold the key was killed, or failed")
	}
	return &base.Exit{Code: code, Interrupted: code == 128+int(syscall.SIGINT)}
}

// startKeeper starts this program once more, away from the terminal and from what
// the shell waits for, with a pipe to it.
func startKeeper() (cmd *exec.Cmd, pipe *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	pipe, its := os.NewFile(uintptr(pair[0]), "keeper"), os.NewFile(uintptr(pair[1]), "hasp acquire")
	defer its.Close()
	cmd = exec.Command("/proc/self/exe", keeperName)
	cmd.Args[0] = "hasp"
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{its} // keeperPipe
	cmd.SysProcAttr = child.Daemon()
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(err, pipe.Close())
	}
	return cmd, pipe, nil
}
