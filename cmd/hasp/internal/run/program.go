// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
)

// find returns the path of the program. That is done before the wait for the
// key: no user wants to wait an hour for a typing mistake.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	return "", startError(name, err)
}

// startError says why a command cannot be executed, with the codes of a shell.
func startError(name string, err error) *base.Exit {
	code, what := base.ExitCannotExecute, err.Error()
	switch {
	case errors.Is(err, child.ErrNotBegun), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return &base.Exit{Code: base.ExitFailed, Verdict: "failed", Message: "cannot start " + base.Quote(name) + ": " + what + ". Is there a limit of memory or processes?"}
	case name == "":
		return base.Usage("the command is empty")
	case errors.Is(err, exec.ErrDot):
		what = "it is in the current directory only: write ./" + name
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		code, what = base.ExitNotFound, "not found"
	case errors.Is(err, fs.ErrPermission):
		what = "permission denied"
		if info, statErr := os.Stat(name); statErr == nil && !info.IsDir() {
			what += "; make it executable with chmod +x"
		}
	case errors.Is(err, syscall.ENOEXEC):
		what = "it is not a program; a script needs a first line such as #!/bin/sh"
	case errors.Is(err, syscall.E2BIG):
		what = "arguments and environment are too long together"
	default:
		var e *exec.Error
		var p *fs.PathError
		if errors.As(err, &e) {
			what = e.Err.Error()
		} else if errors.As(err, &p) {
			what = p.Err.Error()
		}
	}
	verdict := "cannot-execute"
	if code == base.ExitNotFound {
		verdict = "not-found"
	}
	return &base.Exit{Code: code, Verdict: verdict, Message: "cannot execute " + base.Quote(name) + ": " + what}
}
