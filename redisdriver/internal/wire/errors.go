// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"regexp"
	"strings"
	"sync"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// Classify returns the class of an error of this client or its server.
func Classify(err error) driver.Class {
	var bad *ConfigError
	var kind *TypeError
	var server ServerError
	var replicas *ReplicasError
	switch {
	case err == nil:
		return driver.ClassUnknown
	case errors.As(err, &bad), errors.As(err, &kind), errors.Is(err, driver.ErrUnsupported),
		errors.Is(err, ErrClosed): // the program closed its client
		return driver.ClassImpossible
	case errors.Is(err, errNoMaster), isTLS(err):
		return driver.ClassMisconfigured
	case noMaster(err) && errors.Is(err, Nil): // one Sentinel does not know it, others do not answer
		return driver.ClassUnreachable
	case errors.As(err, &server):
		return ClassOf(server.Error())
	case errors.As(err, &replicas), errors.Is(err, voting.ErrNotVoting), errors.Is(err, ErrPoolTimeout), errors.Is(err, errPoolExhausted),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return driver.ClassUnreachable
	}
	if class := ofAddress(err); class != driver.ClassUnknown {
		return class
	}
	var network net.Error
	if errors.As(err, &network) || noMaster(err) {
		return driver.ClassUnreachable
	}
	return driver.ClassUnknown
}

// Says reports whether err is the server's, and begins with a word. Kvrocks puts ERR before it.
func Says(err error, word string) bool {
	var server ServerError
	return errors.As(err, &server) && strings.HasPrefix(strings.TrimPrefix(server.Error(), "ERR "), word)
}

// explain adds to errors of the server that do not say what to do.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case Says(err, "CROSSSLOT"), Says(err, "MOVED"):
		return fmt.Errorf("%w (this server is a node of a cluster: use a redis.ClusterClient)", err)
	case Says(err, "TRYAGAIN"), err != nil && strings.Contains(err.Error(), nonLocal):
		return fmt.Errorf("%w (the key's hash slot moves to another master; once it has moved, this works again)", err)
	case unauthenticated(err):
		return passwordError{err}
	case errors.Is(err, ErrClosed):
		return fmt.Errorf("%w (the program closed its Redis client: close hasp's client first)", err)
	}
	if server := (ServerError)(nil); errors.As(err, &server) {
		switch ClassOf(server.Error()) {
		case driver.ClassDenied, driver.ClassFull, driver.ClassReadOnly:
			return refusal{err}
		}
	}
	return err
}

// refusal is an error of the server that any program would have had: at which place of hasp's script is of no use to its reader.
type refusal struct{ error }

func (e refusal) Error() string {
	text := strings.TrimPrefix(Wrapped().ReplaceAllString(e.error.Error(), ""), "-")
	return strings.TrimSuffix(scriptPlace().ReplaceAllString(text, ""), ".")
}

func (e refusal) Unwrap() error { return e.error }

var scriptPlace = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(` script: [0-9a-f]+, on @user_script: ?\d+\.?$`)
})

// passwordError is in place of the server's words, which speak of its protocol.
type passwordError struct{ error }

func (passwordError) Error() string   { return "the server wants a password" }
func (e passwordError) Unwrap() error { return e.error }

func unauthenticated(err error) bool {
	return err != nil && Says(err, "Protocol error: unauthenticated")
}

// nonLocal is the error of a script with named keys that all exist on the master that their slot leaves, when it
// came to a key that does not.
const nonLocal = "non local key"

// ofAddress returns what is wrong with where we connect to, and stays so. A name that DNS does not know may come
// with its server, as that of a container does.
func ofAddress(err error) driver.Class {
	var address *net.AddrError
	var network net.UnknownNetworkError
	switch {
	case errors.As(err, &address), errors.As(err, &network):
		return driver.ClassMisconfigured
	case errors.Is(err, fs.ErrPermission): // of a socket in a folder, or a firewall
		return driver.ClassDenied
	}
	return driver.ClassUnknown
}

// isTLS: the two sides do not agree on their identities, or on TLS at all; asking
// again changes nothing.
func isTLS(err error) bool {
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var unknown x509.UnknownAuthorityError
	var op *net.OpError // how an alert of either side comes, without QUIC
	return errors.As(err, &cert) || errors.As(err, &record) || errors.As(err, &alert) || errors.As(err, &unknown) ||
		errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error")
}

// Wrapped is how servers before 7.0 report an error inside a script.
var Wrapped = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^ERR Error running script .*@user_script: ?\d+: `)
})

// codes are the first words of Redis' errors.
var codes = map[string]driver.Class{
	"NOAUTH": driver.ClassLogin, "WRONGPASS": driver.ClassLogin,

	"NOPERM": driver.ClassDenied, "DENIED": driver.ClassDenied,

	"WRONGTYPE": driver.ClassImpossible,

	"CROSSSLOT": driver.ClassMisconfigured, "NOPROTO": driver.ClassMisconfigured,

	"OOM": driver.ClassFull, "MISCONF": driver.ClassFull,

	"READONLY": driver.ClassReadOnly,

	"LOADING": driver.ClassUnreachable, "MASTERDOWN": driver.ClassUnreachable, "CLUSTERDOWN": driver.ClassUnreachable,
	"TRYAGAIN": driver.ClassUnreachable, "BUSY": driver.ClassUnreachable, "NOREPLICAS": driver.ClassUnreachable,
	"MOVED": driver.ClassUnreachable, "ASK": driver.ClassUnreachable, "UNBLOCKED": driver.ClassUnreachable,
}

// texts are errors that share the word ERR.
var texts = []struct {
	part  string
	class driver.Class
}{
	{"max number of clients", driver.ClassUnreachable},
	{"unauthenticated", driver.ClassLogin}, // a long command before AUTH
	{"invalid password", driver.ClassLogin},
	{"without any password configured", driver.ClassLogin},
	{"The user executing the script can't", driver.ClassDenied},
	{"ACL failure in script", driver.ClassDenied}, // 7.2 and later, and Valkey
	{"unknown command", driver.ClassMisconfigured},
	{"Unknown Redis command", driver.ClassMisconfigured},
	{"unknown subcommand", driver.ClassMisconfigured},
	{"wrong number of arguments", driver.ClassMisconfigured},
	{"DB index is out of range", driver.ClassMisconfigured},
	{"cluster support disabled", driver.ClassMisconfigured},
	{"value is not an integer", driver.ClassImpossible}, // a counter that holds something else
	{"hash value is not an integer", driver.ClassImpossible},
	{"not a valid float", driver.ClassImpossible},
	{"would overflow", driver.ClassImpossible},
	{nonLocal, driver.ClassUnreachable},
}

// ClassOf reads an error that the server wrote.
func ClassOf(text string) driver.Class {
	text = strings.TrimPrefix(Wrapped().ReplaceAllString(text, ""), "-")
	code, rest, _ := strings.Cut(text, " ")
	if c, ok := codes[code]; ok {
		return c
	}
	if c, ok := codes[strings.SplitN(rest, " ", 2)[0]]; ok && code == "ERR" { // Kvrocks
		return c
	}
	if FaultyScript().MatchString(text) { // it met what hasp did not write
		return driver.ClassImpossible
	}
	for _, t := range texts {
		if strings.Contains(text, t.part) {
			return t.class
		}
	}
	return driver.ClassUnknown
}

// FaultyScript matches the error of a script that met something else than it expects.
var FaultyScript = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:ERR )?(?:@?user_script: ?\d+: )+(.*?)(?: script: .*)?$`)
})

// ConfigError is a configuration that cannot work.
type ConfigError struct{ Why string }

func (e *ConfigError) Error() string { return "redis: " + e.Why }

// TypeError reports a key that holds another type of Redis value.
type TypeError struct{ Key, Type string }

func (e *TypeError) Error() string {
	return fmt.Sprintf("redis: key %q holds a %s, not a lock: choose another key or prefix", e.Key, e.Type)
}

// ErrReply is of an answer that is not of the form that was expected.
var ErrReply = errors.New("redis: the server returned a reply that this version of hasp does not know")

// ReplicasError reports that fewer replicas than Options.Replicas confirmed a request in time, so that a failover may undo it. A
// requested lease is not granted then, and a lease that was to be renewed lasts no longer.
type ReplicasError struct {
	Want, Got int

	Gone bool // the lease was gone before
}

func (e *ReplicasError) Error() string {
	if e.Gone {
		return "redis: the lease was gone before replicas confirmed it: another master took over, somebody broke it, or its TTL was over"
	}
	return fmt.Sprintf("redis: %d of %d replicas confirmed in time: see INFO replication on the master", e.Got, e.Want)
}
