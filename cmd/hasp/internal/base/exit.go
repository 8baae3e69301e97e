// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package base is what the commands of hasp share: exit codes, flags, texts, and the open store. It imports none of them.
package base

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
)

// The exit codes that are hasp's own; docs/command.md explains them.
const (
	ExitLeaks         = 1 // of hasp leaks
	ExitUsage         = 64
	ExitUnreachable   = 69
	ExitBusy          = 75
	ExitDenied        = 77
	ExitConfig        = 78
	ExitLost          = 124
	ExitFailed        = 125
	ExitCannotExecute = 126
	ExitNotFound      = 127
)

// Exit is how hasp ends: its exit code, and its last line.
type Exit struct {
	Code    int
	Verdict string // one word, for -o json
	Message string // without "hasp: "; empty when everything was said
	Why     string // of a lost lock, for -o json
	Passes  bool   // it is the store's trouble, and may pass

	// interrupted: Ctrl-C ended it. group: and only the command saw that.
	Interrupted, Group bool
}

func (e *Exit) Error() string { return fmt.Sprintf("exit %d: %s", e.Code, e.Message) }

// Usage is the end by a command line that is wrong.
func Usage(format string, args ...any) *Exit {
	return &Exit{Code: ExitUsage, Verdict: "usage", Message: fmt.Sprintf(format, args...)}
}

// BadConfig is the end by a configuration that is wrong.
func BadConfig(err error) *Exit {
	return &Exit{Code: ExitConfig, Verdict: "misconfigured", Message: err.Error()}
}

// Ends says whether trouble with the store ends a command that asks again and again. answered: the store has given
// it a good answer, and what comes after that may pass, as in hasp.Mutex.Lock.
func (e *Exit) Ends(answered bool) bool {
	return e.Code != ExitUnreachable && !(answered && e.Passes)
}

// Trouble turns the error of an operation into a message for a person and an exit
// code. It is not for refusals.
func Trouble(u *store.URL, err error) *Exit {
	end := TroubleOf(fmt.Sprintf("the store %s", u), "", u, err)
	var e *hasp.Error
	end.Passes = errors.As(err, &e) && e.Class != driver.ClassImpossible
	return end
}

// TroubleOf is trouble with a store, or with its server at an address, that a message calls on.
func TroubleOf(on, addr string, u *store.URL, err error) *Exit {
	inner := err
	var e *hasp.Error
	class := driver.ClassUnknown
	if errors.As(err, &e) {
		inner, class = e.Err, e.Class
	}
	if errors.Is(err, hasp.ErrUnsupported) {
		class = driver.ClassImpossible
	} else if late := (interface{ Timeout() bool })(nil); class == driver.ClassUnknown && errors.As(err, &late) && late.Timeout() {
		class = driver.ClassUnreachable
	}
	if wait := (*hasp.WaitError)(nil); errors.As(inner, &wait) {
		inner = wait.Why
	}
	said := InFile(plain.Error(inner), u.String())
	if u.IsFile() { // the engine's own words say what to do
		switch class {
		case driver.ClassDenied:
			return &Exit{Code: ExitDenied, Verdict: "denied", Message: fmt.Sprintf("%s does not allow this: %s", on, said)}
		case driver.ClassReadOnly:
			return &Exit{Code: ExitConfig, Verdict: "read-only", Message: fmt.Sprintf("%s cannot be written: %s", on, said)}
		case driver.ClassUnreachable:
			return &Exit{Code: ExitUnreachable, Verdict: "unreachable", Message: fmt.Sprintf("%s cannot be used now: %s", on, said)}
		}
	}
	switch class {
	case driver.ClassDenied:
		return &Exit{Code: ExitDenied, Verdict: "denied",
			Message: plain.Then(on+" does not allow this: "+said, "Check the user's permissions.")}
	case driver.ClassLogin:
		return &Exit{Code: ExitDenied, Verdict: "login",
			Message: plain.Then(on+" refused the login: "+said, u.CheckLogin(err))}
	case driver.ClassMisconfigured, driver.ClassImpossible:
		return &Exit{Code: ExitConfig, Verdict: "misconfigured", Message: fmt.Sprintf("%s cannot do this: %s", on, said)}
	case driver.ClassFull:
		return &Exit{Code: ExitConfig, Verdict: "full", Message: fmt.Sprintf("%s is full: %s", on, said)}
	case driver.ClassReadOnly:
		return &Exit{Code: ExitConfig, Verdict: "read-only",
			Message: plain.Then(on+" cannot be written, is it a replica? "+said, u.NameMaster())}
	case driver.ClassUnreachable:
		message := on + " " + u.Unserved(addr, inner)
		if name := (*net.DNSError)(nil); errors.As(err, &name) && name.IsNotFound {
			message = plain.Then(on+" cannot be found: "+said, "Is its address right?")
		} else if errors.As(err, new(*quorum.VoteError)) || errors.Is(err, voting.ErrNotVoting) || errors.As(err, new(*redisdriver.ReplicasError)) {
			message = plain.Then(on+" grants nothing now: "+said, "Look: hasp doctor")
		}
		return &Exit{Code: ExitUnreachable, Verdict: "unreachable", Message: message}
	}
	// An error that the engine does not know: the store did not do its work,
	// and may do it the next time.
	return &Exit{Code: ExitUnreachable, Verdict: "unreachable", Message: fmt.Sprintf("%s failed: %s", on, said)}
}

// InFile is a text about a store. SQLite's engine does not know the path of a file before it could open it.
func InFile(text, store string) string {
	return strings.ReplaceAll(text, "the database file", strings.TrimPrefix(store, "sqlite:"))
}

// Failed is the end by a fault that is not the store's.
func Failed(format string, args ...any) *Exit {
	return &Exit{Code: ExitFailed, Verdict: "failed", Message: fmt.Sprintf(format, args...)}
}
