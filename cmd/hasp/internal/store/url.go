// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package store turns the URL of a store into an engine that is ready for use.
//
// A URL may hold a password. No error and no text of this package contains one,
// nor a part of a URL that could not be understood, as that may hold one, too.
package store

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Help describes the forms of a URL.
const Help = `The store of the locks is named by --store URL, or by the environment variable
HASP_STORE, or by a file that HASP_STORE_FILE names (for URLs with a password).
Without any of them it is a SQLite file in your state directory.

  sqlite:PATH                                   a file on this machine
  redis://[USER:PASSWORD@]HOST[:PORT][/DB]      Redis or Valkey
  rediss://[USER:PASSWORD@]HOST[:PORT][/DB]     the same with TLS
  unix://[USER:PASSWORD@]/PATH/TO/SOCKET[?db=N] the same over a unix socket
  redis+sentinel://NAME[:PASSWORD]@HOST[:PORT],HOST[:PORT][/DB][?user=USER]
                                [&sentinel-user=USER][&sentinel-password=PASSWORD]
                                                the master that these Sentinels call NAME; rediss+sentinel:// with TLS
  redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]
                                                a Redis Cluster; rediss+cluster:// with TLS
  redlock://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],HOST[:PORT][/DB]
                                                3, 5 or 7 independent ones, of which a majority grants a lock;
                                                redlocks:// with TLS
  etcd://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT][?prefix=TEXT]
                                                the members of an etcd cluster; etcds:// with TLS
  zk://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT][/PATH][?layout=mutex|semaphore]
                                                a ZooKeeper ensemble, with Apache Curator's locks
  postgres://[USER:PASSWORD@]HOST[:PORT]/DATABASE
                                                PostgreSQL, with psql's parameters (sslmode=…); make the tables with hasp init
  mysql://USER:PASSWORD@HOST[:PORT]/DATABASE[?tls=true]
                                                MariaDB or MySQL; make the tables with hasp init
with the parameters ?ttl=DURATION (such as 30s; the default TTL of hasp run) and, for Redis,
prefix=TEXT (before every key; "lock:" when not given, nothing when empty), db=N, and max-ttl=DURATION:
the longest TTL, for which a server grants nothing after a restart (30s for redlock:, else none), and
replicas=N: so many replicas must confirm a lock before it is held (not with max-ttl=);
or layout=redisson with kind=lock|fair|fenced|readwrite (lock when not given): the locks of Redisson, so that
programs in Java take turns with hasp (no prefix when not given; not with redlock:, max-ttl= or replicas=),
and for readwrite lock-watchdog-timeout=DURATION: Redisson's setting (30s), the longest TTL;
with TLS, tls-ca=FILE (else the system's authorities), tls-cert=FILE and tls-key=FILE (a certificate of
yours) and tls-server-name=NAME, or HASP_TLS_CA, HASP_TLS_CERT, HASP_TLS_KEY and HASP_TLS_SERVER_NAME.
Characters with a meaning in a URL are written with %: %3A for :, %2F for /, %3F for ?, %23 for #, %40 for @, %25 for %.`

// URL names a store.
type URL struct {
	// TTL is the default TTL of hasp run on this store, 0 when the URL does
	// not say.
	TTL time.Duration
	// Warning is what a person should know about where the URL was found.
	Warning string

	text  string // as it was found; empty for the default
	given bool   // by a flag
	file  string // that HASP_STORE_FILE names, when it was there

	place place // what it names
}

// place is what the URLs of a scheme name. Each scheme has a file of its own: how its
// URLs are read, opened and written, and what is done with them by hand.
type place interface {
	// open opens the store. It does no I/O that may wait. now is asked for what the URL says by then at each login, and returns a place
	// of the same type.
	open(now func() place) (*Store, error)
	// String returns the URL without secrets and parameters.
	String() string
	// inherited returns the URL as given with whole paths; empty: as it was given.
	inherited(given string) string
	// secrets says whether the URL holds a user or a password, and whether it holds a password.
	secrets() (some, password bool)
	// byHand is the command line for a statement, see [URL.ByHand].
	byHand(node int, statement string) string
	// remarks are those of [URL.Remarks].
	remarks() []string
}

// schemes has what reads the rest of a URL after its scheme.
var schemes = map[string]func(scheme, rest string) (*URL, error){
	"sqlite": parseSQLite,
	"redis":  parseRedis, "rediss": parseRedis, "unix": parseRedis,
	"redis+sentinel": parseSentinel, "rediss+sentinel": parseSentinel,
	"redis+cluster": parseCluster, "rediss+cluster": parseCluster,
	"redlock": parseRedlock, "redlocks": parseRedlock,
	"etcd": parseEtcd, "etcds": parseEtcd,
	"zk":       parseZK,
	"postgres": parsePostgres, "postgresql": parsePostgres,
	"mysql": parseMySQL, "mariadb": parseMySQL,
}

// Parse reads a URL.
func Parse(text string) (*URL, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	if !ok {
		return nil, errors.New("the store's URL has no scheme (redis:, sqlite: or another)" + meant(text))
	}
	scheme = strings.ToLower(scheme)
	if parse := schemes[scheme]; parse != nil {
		return parse(scheme, rest)
	}
	if question := meant(text); question != "" {
		return nil, errors.New("the store's URL has no scheme (redis:, sqlite: or another)" + question)
	}
	if isWord(scheme) && !strings.Contains(rest, "@") {
		return nil, fmt.Errorf("the store's URL begins with %q, which hasp does not know", scheme+":")
	}
	return nil, errors.New("the store's URL begins with a scheme that hasp does not know")
}

// parameters reads the part after the question mark, with the parameters that this scheme
// knows besides ttl.
func (u *URL) parameters(query string, more ...string) (url.Values, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("the parameters of the store's URL cannot be read: they are name=value, joined with &")
	}
	known := append([]string{"ttl"}, more...)
	for name, v := range values {
		switch {
		case !slices.Contains(known, name) && isWord(name) && !strings.Contains(query, "@"):
			return nil, fmt.Errorf("the store's URL has the parameter %q: known here are %s", name, strings.Join(known, ", "))
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("the store's URL has a parameter that is not known: known here are %s", strings.Join(known, ", "))
		case len(v) > 1:
			return nil, fmt.Errorf("the store's URL has the parameter %s more than once", name)
		}
	}
	if values.Has("ttl") {
		u.TTL, err = time.ParseDuration(values.Get("ttl"))
		if err != nil || u.TTL <= 0 {
			return nil, errors.New("ttl= in the store's URL is not a positive duration, such as 30s")
		}
	}
	return values, nil
}

// isWord: short lower-case words are repeated in errors, as they are typing
// mistakes and not secrets.
func isWord(s string) bool {
	if s == "" || len(s) > 16 {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool { return (c < 'a' || c > 'z') && c != '_' && c != '+' })
}

// Open opens the store. It reads the files of TLS, and does no other I/O.
func (u *URL) Open() (*Store, error) { return u.place.open(newRotation(u).now) }

// Secret says whether the URL holds a user or a password.
func (u *URL) Secret() bool {
	some, _ := u.place.secrets()
	return some
}

// Password says whether the URL holds a password.
func (u *URL) Password() bool {
	_, password := u.place.secrets()
	return password
}

// Unserved is what to say of the store, or of its server at an address, that does not serve: what was seen of it, and what to look at. err is
// the client's.
func (u *URL) Unserved(addr string, err error) string {
	s := &sights{}
	if p, ok := u.place.(interface{ sights() *sights }); ok {
		s = p.sights()
	}
	return s.unserved(addr, err)
}

const checkLogin = "Check user, password and certificate"

// CheckLogin is what to check after a login that was refused: a sentence.
func (u *URL) CheckLogin(err error) string {
	if p, ok := u.place.(interface{ login(error) string }); ok {
		return p.login(err) + "."
	}
	return checkLogin + "."
}

// IsFile says whether the store is a file of this machine, and not a server.
func (u *URL) IsFile() bool {
	_, ok := u.place.(sqliteFile)
	return ok
}

// String returns the URL without user and password.
func (u *URL) String() string { return u.place.String() }

// ByHand returns the command line with which a person has the store, or its
// node of that number, carry out a statement of its own language. It holds no
// password.
func (u *URL) ByHand(node int, statement string) string { return u.place.byHand(node, statement) }

// Remarks are what else a person has to know for the command lines of ByHand.
func (u *URL) Remarks() []string { return u.place.remarks() }
