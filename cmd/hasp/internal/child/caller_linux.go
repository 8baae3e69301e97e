// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
)

// ErrUnseen is the error of Caller when too little can be seen of the caller to know what it is.
var ErrUnseen = errors.New("the shell that called hasp cannot be seen: is there a /proc, is it yours, and has it not ended?")

// Caller returns the process that this one works for: its parent; but of a shell's
// $( … ), which is a copy of the shell and ends when it has made its text, the shell.
func Caller() (Process, error) {
	around := Around()
	if len(around) < 2 {
		return Process{}, ErrUnseen
	}
	chain := around[1:]
	caller := chain[0]
	written := map[string]bool{} // by the caller, and the copies around it
	for i, p := range chain {
		if i > 0 {
			read, ok := p.pipes(0o400)
			if !ok {
				return caller, ErrUnseen
			}
			if slices.ContainsFunc(read, func(pipe string) bool { return written[pipe] }) {
				caller = p
				clear(written)
			}
		}
		copied, ok := p.copies(chain[i+1:])
		if !ok {
			return caller, ErrUnseen
		}
		if !copied {
			break
		}
		wrote, ok := p.pipes(0o200)
		if !ok {
			return caller, ErrUnseen
		}
		for _, pipe := range wrote {
			written[pipe] = true
		}
	}
	return caller, nil
}

// copies says whether a process is a copy of its parent, the first of those around it: a shell's ( … ), $( … ) or part of a
// pipeline. What was executed since has its arguments and its stack elsewhere. ok: that can be seen.
func (p Process) copies(around []Process) (copied, ok bool) {
	own, ok := p.image()
	if !ok || len(around) == 0 {
		return false, ok
	}
	its, ok := around[0].image()
	return ok && own == its, true // another user's is no copy
}

// image tells where the process has its stack and its arguments: with the addresses at random, two programs hardly ever
// have them at the same place, and where they do the key is held for longer than it had to be.
func (p Process) image() (place [2]string, ok bool) {
	text, _ := os.ReadFile(p.file("stat"))
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) < 46 {
		return place, false
	}
	place = [2]string{string(f[25]), string(f[45])}
	return place, place[1] != "0" // of a process that may not be looked at
}

// pipes returns the pipes of which the process has the end with that mode alone: to read (0o400) or to write (0o200).
// The pipe of ksh93 may be a file without a name, which the shell and its copy have open to read and to write.
func (p Process) pipes(end os.FileMode) (names []string, ok bool) {
	fds, err := os.ReadDir(p.file("fd"))
	for _, fd := range fds {
		name := p.file("fd/" + fd.Name())
		link, err := os.Lstat(name)
		target, err2 := os.Readlink(name)
		if err != nil || err2 != nil || link.Mode().Perm()&end == 0 {
			continue
		}
		both := link.Mode().Perm()&0o600 == 0o600
		if strings.HasPrefix(target, "pipe:") && !both || strings.HasSuffix(target, " (deleted)") && both {
			names = append(names, target)
		}
	}
	return names, err == nil
}

// Ignores says whether the process ignores a signal.
func (p Process) Ignores(sig syscall.Signal) bool { return ignores(p.PID, sig) }
