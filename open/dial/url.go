// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package dial turns the URL of a store into an engine with its connections, for programs that need more of them than
// package open gives: the servers one by one, what was seen of them, a login that changes. The command is one.
//
// A URL may hold a password. No error and no text of this package contains one,
// nor a part of a URL that could not be understood, as that may hold one, too.
package dial

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Forms are the forms of a URL, for people.
const Forms = `  sqlite:PATH                                   a file on this machine
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

	place place // what it names
}

// place is what the URLs of a scheme name. Each scheme has a file of its own: how its
// URLs are read, opened and written.
type place interface {
	// open opens the store. It does no I/O that may wait. o.place is asked for what the URL says by then at each login, and returns a
	// place of the same type.
	open(o *opening) (*Store, error)
	// String returns the URL without secrets and parameters.
	String() string
	// parts are those of [URL.Parts].
	parts() Parts
}

// Kind is what a store is.
type Kind string

// The kinds of store.
const (
	SQLite   Kind = "sqlite"
	Redis    Kind = "redis"
	Sentinel Kind = "sentinel" // a master of Redis that Sentinels know
	Cluster  Kind = "cluster"  // of Redis
	Redlock  Kind = "redlock"  // several servers of Redis, of which a majority grants
	Etcd     Kind = "etcd"
	ZK       Kind = "zk"
	Postgres Kind = "postgres"
	MySQL    Kind = "mysql" // or MariaDB
)

// Parts are what a URL says, without passwords.
type Parts struct {
	Kind  Kind
	Addrs []string // HOST:PORT of each server; or the path of a socket or a file

	User, SentinelUser         string
	Password, SentinelPassword bool // there is one

	Master   string            // as its Sentinels call it
	Database string            // its name, or the number of Redis's
	Params   url.Values        // the parameters
	TLS      map[string]string // the parameters of TLS that are in force; nil without TLS
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
		return nil, noScheme(text)
	}
	scheme = strings.ToLower(scheme)
	if parse := schemes[scheme]; parse != nil {
		return parse(scheme, rest)
	}
	if meant(text) != "" {
		return nil, noScheme(text)
	}
	known := strings.Join(slices.Sorted(maps.Keys(schemes)), ":, ") + ":"
	if isWord(scheme) && !strings.Contains(rest, "@") {
		return nil, fmt.Errorf("the store's URL begins with %q, which hasp does not know: it knows %s", scheme+":", known)
	}
	return nil, errors.New("the store's URL begins with a scheme that hasp does not know: it knows " + known)
}

func noScheme(text string) error {
	return errors.New("the store's URL has no scheme (redis:, sqlite: or another)" + meant(text))
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

// Parts are what the URL says.
func (u *URL) Parts() Parts { return u.place.parts() }

// Secret says whether the URL holds a user or a password.
func (u *URL) Secret() bool {
	p := u.Parts()
	return p.User != "" || p.SentinelUser != "" || u.Password()
}

// Password says whether the URL holds a password.
func (u *URL) Password() bool {
	p := u.Parts()
	return p.Password || p.SentinelPassword
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

// String returns the URL without user and password.
func (u *URL) String() string { return u.place.String() }
