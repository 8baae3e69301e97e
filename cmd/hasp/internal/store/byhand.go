// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net"
	"strconv"
	"strings"

	"github.com/hasplock/hasp/cmd/hasp/internal/shell"
)

// ByHand returns the command line with which a person has the store, or its
// node of that number, carry out a statement of its own language. It holds no
// password.
func (u *URL) ByHand(node int, statement string) string {
	if len(u.nodes) == 0 {
		return shell.Join("sqlite3", "-readonly", u.path, statement)
	}
	o := u.nodes[node]
	cli := []string{"redis-cli"}
	if o.Network == "unix" {
		cli = append(cli, "-s", o.Addr)
	} else if host, port, err := net.SplitHostPort(o.Addr); err == nil {
		cli = append(cli, "-h", host, "-p", port)
	}
	if o.TLSConfig != nil {
		cli = append(cli, "--tls")
		for _, flag := range [][2]string{{"--cacert", "tls-ca"}, {"--cert", "tls-cert"}, {"--key", "tls-key"}, {"--sni", "tls-server-name"}} {
			if value := u.tlsFiles()[flag[1]]; value != "" {
				cli = append(cli, flag[0], value)
			}
		}
	}
	if o.Username != "" {
		cli = append(cli, "--user", o.Username)
	}
	if o.DB != 0 {
		cli = append(cli, "-n", strconv.Itoa(o.DB))
	}
	if words, ok := plainWords(statement); ok {
		return shell.Join(append(cli, words...)...)
	}
	// What has bytes that a shell cannot carry goes through standard input,
	// where redis-cli reads its own escapes.
	return shell.Join("printf", `%s\n`, statement) + " | " + shell.Join(cli...)
}

// Remarks are what else a person has to know for the command lines of ByHand.
func (u *URL) Remarks() []string {
	var all []string
	if len(u.nodes) > 0 && u.nodes[0].Password != "" {
		all = append(all, "set REDISCLI_AUTH to the password first")
	}
	if u.redlock {
		all = append(all, "the same on the other nodes: "+strings.Join(u.names()[1:], ", "))
	}
	return all
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
