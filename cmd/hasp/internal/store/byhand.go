// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net"
	"strconv"
	"strings"

	"github.com/hasplock/hasp/cmd/hasp/internal/shell"
)

// ByHand returns the command line with which a person has the store carry out
// a statement of its own language. It holds no password.
func (u *URL) ByHand(statement string) string {
	if u.redis == nil {
		return shell.Join("sqlite3", "-readonly", u.path, statement)
	}
	cli := []string{"redis-cli"}
	if u.redis.Network == "unix" {
		cli = append(cli, "-s", u.redis.Addr)
	} else if host, port, err := net.SplitHostPort(u.redis.Addr); err == nil {
		cli = append(cli, "-h", host, "-p", port)
	}
	if u.redis.TLSConfig != nil {
		cli = append(cli, "--tls")
	}
	if u.redis.Username != "" {
		cli = append(cli, "--user", u.redis.Username)
	}
	if u.redis.DB != 0 {
		cli = append(cli, "-n", strconv.Itoa(u.redis.DB))
	}
	if words, ok := plainWords(statement); ok {
		return shell.Join(append(cli, words...)...)
	}
	// What has bytes that a shell cannot carry goes through standard input,
	// where redis-cli reads its own escapes.
	return shell.Join("printf", `%s\n`, statement) + " | " + shell.Join(cli...)
}

// NeedsPassword says whether the command line of ByHand has to be given a
// password, and how.
func (u *URL) NeedsPassword() (how string, needs bool) {
	if u.redis == nil || u.redis.Password == "" {
		return "", false
	}
	return "set REDISCLI_AUTH to the password first", true
}

// plainWords splits a statement into words, and undoes quotes around text
// without escapes.
func plainWords(statement string) ([]string, bool) {
	var words []string
	for statement != "" {
		if statement[0] != '"' {
			word, rest, _ := strings.Cut(statement, " ")
			if strings.ContainsAny(word, `"'\`) {
				return nil, false
			}
			words, statement = append(words, word), rest
			continue
		}
		word, rest, ok := strings.Cut(statement[1:], `"`)
		if !ok || strings.ContainsAny(word, `\`) || rest != "" && rest[0] != ' ' {
			return nil, false
		}
		words, statement = append(words, word), strings.TrimPrefix(rest, " ")
	}
	return words, true
}
