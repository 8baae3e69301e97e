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
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Help describes the forms of a URL.
const Help = `The store of the locks is named by --store URL, or by the environment variable
HASP_STORE, or by a file that HASP_STORE_FILE names (for URLs with a password).
Without any of them it is a SQLite file in your state directory.

  sqlite:PATH                                   a file on this machine
  redis://[USER:PASSWORD@]HOST[:PORT][/DB]      Redis or Valkey
  rediss://[USER:PASSWORD@]HOST[:PORT][/DB]     the same with TLS
  unix://[USER:PASSWORD@]/PATH/TO/SOCKET[?db=N] the same over a unix socket
  redlock://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],HOST[:PORT][/DB]
                                                3, 5 or 7 independent ones, of which a majority grants a lock;
                                                redlocks:// with TLS
with the parameters ?ttl=DURATION (such as 30s; the default TTL of hasp run) and, for Redis,
prefix=TEXT (before every key; "lock:" when not given, nothing when empty), db=N, and max-ttl=DURATION:
the longest TTL, for which a server grants nothing after a restart (30s for redlock:, else none);
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

	path     string           // of the SQLite file
	nodes    []*redis.Options // none for SQLite, several for redlock
	redlock  bool
	prefix   string // of keys in Redis
	noPrefix bool
	maxTTL   time.Duration // 0: no node record
	tls      tlsFiles      // of the URL alone
}

// Parse reads a URL.
func Parse(text string) (*URL, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	if !ok {
		return nil, errors.New("the store's URL has no scheme (redis:, sqlite: or another)" + meant(text))
	}
	switch strings.ToLower(scheme) {
	case "sqlite":
		return parseSQLite(rest)
	case "redis", "rediss", "unix":
		return parseRedis(strings.ToLower(scheme) + ":" + rest)
	case "redlock", "redlocks":
		return parseRedlock(strings.ToLower(scheme), rest)
	}
	if question := meant(text); question != "" {
		return nil, errors.New("the store's URL has no scheme (redis:, sqlite: or another)" + question)
	}
	if isWord(scheme) && !strings.Contains(rest, "@") {
		return nil, fmt.Errorf("the store's URL begins with %q, which hasp does not know", scheme+":")
	}
	return nil, errors.New("the store's URL begins with a scheme that hasp does not know")
}

// parseSQLite reads what follows "sqlite:". The path is a path: only ?, # and %
// are special in it.
func parseSQLite(rest string) (*URL, error) {
	path, query, _ := strings.Cut(rest, "?")
	u := &URL{}
	if err := u.parameters(query, nil); err != nil {
		return nil, err
	}
	if after, ok := strings.CutPrefix(path, "//"); ok {
		if !strings.HasPrefix(after, "/") {
			return nil, errors.New("after sqlite: comes a path: write sqlite:/PATH, or sqlite:PATH when it is relative")
		}
		path = after
	}
	path, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return nil, errors.New("the path of the SQLite file has a % that is not followed by two hexadecimal digits: write %25 for it")
	case path == "":
		return nil, errors.New("the path of the SQLite file is missing")
	case path == ":memory:":
		return nil, errors.New("a lock in memory keeps nobody else away: name a file")
	case strings.ContainsRune(path, 0):
		return nil, errors.New("the path of the SQLite file has a NUL in it")
	}
	u.path = path
	return u, nil
}

// parseRedis reads a whole URL of Redis. What url.Parse and redis.ParseURL
// complain of is not repeated: they quote the URL.
func parseRedis(text string) (*URL, error) {
	if _, whole, ok := strings.Cut(text, "://"); ok && !strings.HasPrefix(text, "unix:") && !checkPort(whole) {
		return nil, errors.New("the port in the store's URL is not a number from 1 to 65535 (a password stands before the host: redis://:PASSWORD@HOST)")
	}
	parsed, err := url.Parse(text)
	if err != nil || parsed.Opaque != "" || !strings.HasPrefix(text, parsed.Scheme+"://") {
		if question := meant(text); question != "" {
			return nil, errors.New("the store's URL cannot be read" + question)
		}
		return nil, errors.New("the store's URL cannot be read; in a password, write characters with a meaning in a URL with %")
	}
	if parsed.Fragment != "" || strings.HasSuffix(text, "#") {
		return nil, errors.New("the store's URL has a # in it: write %23 when it belongs to the password")
	}
	if _, has := parsed.User.Password(); parsed.User.Username() != "" && !has {
		return nil, errors.New("the store's URL has a user without a password: a password alone is written with a colon, redis://:PASSWORD@HOST")
	}
	u := &URL{}
	var db string
	if err := u.parameters(parsed.RawQuery, &db); err != nil {
		return nil, err
	}
	if parsed.Scheme == "unix" {
		if parsed.Host != "" || parsed.Path == "" {
			return nil, errors.New("after unix:// comes the whole path of the socket: unix:///PATH/TO/SOCKET")
		}
	} else if name := strings.Trim(parsed.Path, "/"); name != "" && db == "" {
		db = name
	} else if name != "" && name != db {
		return nil, errors.New("the store's URL names two databases: /N and db=N")
	}
	if db != "" {
		if n, err := strconv.Atoi(db); err != nil || n < 0 {
			return nil, errors.New("the database in the store's URL is not a number")
		}
		parsed.RawQuery = "db=" + db
	} else {
		parsed.RawQuery = ""
	}
	if parsed.Scheme != "unix" {
		parsed.Path = ""
	}
	o, err := redis.ParseURL(parsed.String())
	if err != nil {
		return nil, errors.New("the store's URL cannot be read as a Redis address")
	}
	if len(u.tls) > 0 && o.TLSConfig == nil {
		return nil, errors.New("the store's URL has parameters of TLS (tls-…=), and does not ask for TLS: write rediss: (redlocks:)")
	}
	u.nodes = []*redis.Options{o}
	return u, u.checkTTLs()
}

// parameters reads the part after the question mark. db is nil where a prefix
// and a database mean nothing.
func (u *URL) parameters(query string, db *string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("the parameters of the store's URL cannot be read: they are name=value, joined with &")
	}
	known := []string{"ttl"}
	if db != nil {
		known = append([]string{"ttl", "prefix", "db", "max-ttl"}, slices.Sorted(maps.Keys(envTLS))...)
	}
	for name, v := range values {
		switch {
		case !slices.Contains(known, name) && isWord(name) && !strings.Contains(query, "@"):
			return fmt.Errorf("the store's URL has the parameter %q: known here are %s", name, strings.Join(known, ", "))
		case !slices.Contains(known, name):
			return fmt.Errorf("the store's URL has a parameter that is not known: known here are %s", strings.Join(known, ", "))
		case len(v) > 1:
			return fmt.Errorf("the store's URL has the parameter %s more than once", name)
		}
	}
	if values.Has("ttl") {
		u.TTL, err = time.ParseDuration(values.Get("ttl"))
		if err != nil || u.TTL <= 0 {
			return errors.New("ttl= in the store's URL is not a positive duration, such as 30s")
		}
	}
	if db != nil {
		if values.Has("max-ttl") {
			u.maxTTL, err = time.ParseDuration(values.Get("max-ttl"))
			if err != nil || u.maxTTL < minMaxTTL {
				return fmt.Errorf("max-ttl= in the store's URL is not a duration of at least %v, such as 30s", minMaxTTL)
			}
		}
		u.tls = tlsFiles{}
		for name := range envTLS {
			if values.Has(name) {
				u.tls[name] = values.Get(name)
			}
		}
		*db = values.Get("db")
		u.prefix = values.Get("prefix")
		u.noPrefix = values.Has("prefix") && u.prefix == ""
	}
	return nil
}

// minMaxTTL is the least that max-ttl may be. Less wins nothing: a server that was
// restarted is held back for ten seconds more than that.
const minMaxTTL = time.Second

// isWord: short lower-case words are repeated in errors, as they are typing
// mistakes and not secrets.
func isWord(s string) bool {
	if s == "" || len(s) > 16 {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool { return (c < 'a' || c > 'z') && c != '_' && c != '+' })
}

// Secret says whether the URL holds a user or a password.
func (u *URL) Secret() bool {
	return len(u.nodes) > 0 && (u.nodes[0].Username != "" || u.nodes[0].Password != "")
}

// Password says whether the URL holds a password.
func (u *URL) Password() bool { return len(u.nodes) > 0 && u.nodes[0].Password != "" }

// IsFile says whether the store is a file of this machine, and not a server.
func (u *URL) IsFile() bool { return len(u.nodes) == 0 }

// String returns the URL without user and password.
func (u *URL) String() string {
	if len(u.nodes) == 0 {
		return "sqlite:" + u.path
	}
	first := u.nodes[0]
	if first.Network == "unix" {
		return fmt.Sprintf("unix://%s?db=%d", first.Addr, first.DB)
	}
	scheme := "redis"
	if u.redlock {
		scheme = "redlock"
	}
	if first.TLSConfig != nil {
		scheme += "s"
	}
	return fmt.Sprintf("%s://%s/%d", scheme, strings.Join(u.names(), ","), first.DB)
}
