// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zk

import (
	"errors"
	"fmt"
	"io"
)

// Code is an error that a server answered.
type Code int32

// The codes that callers distinguish.
const (
	ErrUnimplemented  Code = -6
	ErrNoNode         Code = -101
	ErrNoAuth         Code = -102
	ErrBadVersion     Code = -103
	ErrEphemeral      Code = -108
	ErrNodeExists     Code = -110
	ErrNotEmpty       Code = -111
	ErrSessionExpired Code = -112
	ErrInvalidACL     Code = -114
	ErrAuthFailed     Code = -115
	ErrSessionMoved   Code = -118
	ErrNotReadOnly    Code = -119
	ErrWantsSASL      Code = -124
	ErrQuotaExceeded  Code = -125
)

// decided reports whether the leader has said so, of a write: not so when a server turned it away by itself.
func (c Code) decided() bool {
	switch c {
	case 0, ErrNoNode, ErrBadVersion, ErrNodeExists, ErrNotEmpty:
		return true
	}
	return false
}

// runtimeInconsistency is the code of the parts of a multi after the failed one.
const runtimeInconsistency Code = -2

var names = map[Code]string{
	-1: "system error", runtimeInconsistency: "runtime inconsistency", -4: "connection loss", -5: "marshalling error", -7: "operation timed out", -8: "bad arguments",
	ErrUnimplemented: "unimplemented", ErrNoNode: "no node", ErrNoAuth: "not authorised", ErrBadVersion: "bad version",
	ErrEphemeral: "an ephemeral node has no children", ErrNodeExists: "the node exists", ErrNotEmpty: "the node is not empty",
	ErrSessionExpired: "session expired", ErrInvalidACL: "invalid ACL", ErrAuthFailed: "authentication failed",
	ErrSessionMoved: "session moved", ErrNotReadOnly: "the server is read-only", ErrQuotaExceeded: "quota exceeded",
	ErrWantsSASL: "the servers take only clients that log in with SASL, which this one does not have", -127: "throttled",
}

func (c Code) Error() string {
	if name, ok := names[c]; ok {
		return "zookeeper: " + name
	}
	return fmt.Sprintf("zookeeper: error %d", int32(c))
}

var (
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("zookeeper: the connection was closed")
	// ErrEnded: the session that was asked is over, and with it all its nodes.
	ErrEnded = errors.New("zookeeper: the session is over")
	// ErrLost: the connection was lost before all answers arrived.
	ErrLost error = lost{}
	// ErrUnreachable: no server could be reached.
	ErrUnreachable = errors.New("zookeeper: no server could be reached")
	// ErrFull: the server takes no more connections of this host.
	ErrFull = errors.New("the server closed a new connection at once: this host may have as many connections as its maxClientCnxns allows (60 by default; raise it, or run fewer commands at once)")
)

// lost is an io.EOF, for callers that tell how a connection ended from what a server answered.
type lost struct{}

func (lost) Error() string        { return "zookeeper: connection lost" }
func (lost) Is(target error) bool { return target == io.EOF }

// unsent is the error of a request of which no byte was sent, nor will be.
type unsent struct{ error }

func (e unsent) Unwrap() error { return e.error }

// IsUnsent reports whether a request that failed was never sent.
func IsUnsent(err error) bool {
	var u unsent
	return errors.As(err, &u)
}
