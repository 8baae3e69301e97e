// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
)

// The exit codes that are hasp's own; docs/command.md explains them.
const (
	exitLeaks         = 1 // of hasp leaks
	exitUsage         = 64
	exitUnreachable   = 69
	exitBusy          = 75
	exitDenied        = 77
	exitConfig        = 78
	exitLost          = 124
	exitFailed        = 125
	exitCannotExecute = 126
	exitNotFound      = 127
)

// exit is how hasp ends: its exit code, and its last line.
type exit struct {
	code    int
	verdict string // one word, for -o json
	message string // without "hasp: "; empty when everything was said
	passes  bool   // it is the store's trouble, and may pass

	// interrupted: Ctrl-C ended it. group: and only the command saw that.
	interrupted, group bool
}

func (e *exit) Error() string { return fmt.Sprintf("exit %d: %s", e.code, e.message) }

func usage(format string, args ...any) *exit {
	return &exit{code: exitUsage, verdict: "usage", message: fmt.Sprintf(format, args...)}
}

func badConfig(err error) *exit {
	return &exit{code: exitConfig, verdict: "misconfigured", message: err.Error()}
}

// ends says whether trouble with the store ends a command that asks again and again. answered: the store has given
// it a good answer, and what comes after that may pass, as in hasp.Mutex.Lock.
func (e *exit) ends(answered bool) bool {
	return e.code != exitUnreachable && !(answered && e.passes)
}

// trouble turns the error of an operation into a message for a person and an exit
// code. It is not for refusals.
func trouble(u *store.URL, err error) *exit {
	end := troubleOf(fmt.Sprintf("the store %s", u), "", u, err)
	var e *hasp.Error
	end.passes = errors.As(err, &e) && e.Class != hasp.ClassImpossible
	return end
}

// troubleOf is trouble with a store, or with its server at an address, that a message calls on.
func troubleOf(on, addr string, u *store.URL, err error) *exit {
	inner := err
	var e *hasp.Error
	class := hasp.ClassUnknown
	if errors.As(err, &e) {
		inner, class = e.Err, e.Class
	}
	if errors.Is(err, hasp.ErrUnsupported) {
		class = hasp.ClassImpossible
	}
	if wait := (*hasp.WaitError)(nil); errors.As(inner, &wait) {
		inner = wait.Why
	}
	said := plain.Error(inner)
	if u.IsFile() { // the engine's own words say what to do
		switch class {
		case hasp.ClassDenied:
			return &exit{code: exitDenied, verdict: "denied", message: fmt.Sprintf("%s does not allow this: %s", on, said)}
		case hasp.ClassReadOnly:
			return &exit{code: exitConfig, verdict: "read-only", message: fmt.Sprintf("%s cannot be written: %s", on, said)}
		case hasp.ClassUnreachable:
			return &exit{code: exitUnreachable, verdict: "unreachable", message: fmt.Sprintf("%s cannot be used now: %s", on, said)}
		}
	}
	switch class {
	case hasp.ClassDenied:
		return &exit{code: exitDenied, verdict: "denied",
			message: plain.Then(on+" does not allow this: "+said, "Check the user's permissions.")}
	case hasp.ClassLogin:
		return &exit{code: exitDenied, verdict: "login",
			message: plain.Then(on+" refused the login: "+said, u.CheckLogin(err))}
	case hasp.ClassMisconfigured, hasp.ClassImpossible:
		return &exit{code: exitConfig, verdict: "misconfigured", message: fmt.Sprintf("%s cannot do this: %s", on, said)}
	case hasp.ClassFull:
		return &exit{code: exitConfig, verdict: "full", message: fmt.Sprintf("%s is full: %s", on, said)}
	case hasp.ClassReadOnly:
		return &exit{code: exitConfig, verdict: "read-only",
			message: fmt.Sprintf("%s cannot be written, is it a replica? %s", on, said)}
	case hasp.ClassUnreachable:
		if name := (*net.DNSError)(nil); errors.As(err, &name) && name.IsNotFound {
			return &exit{code: exitUnreachable, verdict: "unreachable", message: plain.Then(on+" cannot be found: "+said, "Is its address right?")}
		}
		if errors.As(err, new(*quorum.VoteError)) || errors.Is(err, driver.ErrNotVoting) || errors.As(err, new(*redisdriver.ReplicasError)) {
			return &exit{code: exitUnreachable, verdict: "unreachable", message: plain.Then(on+" grants nothing now: "+said, "Look: hasp doctor")}
		}
		return &exit{code: exitUnreachable, verdict: "unreachable", message: on + " " + u.Unserved(addr, inner)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &exit{code: exitUnreachable, verdict: "unreachable", message: on + " " + u.Unserved(addr, inner)}
	}
	// An error that the engine does not know: the store did not do its work,
	// and may do it the next time.
	return &exit{code: exitUnreachable, verdict: "unreachable", message: fmt.Sprintf("%s failed: %s", on, said)}
}
