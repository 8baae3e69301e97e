// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// meant returns the URL that was probably meant, as a question after a colon; or
// nothing. A text that may hold a password is never repeated.
func meant(text string) string {
	if strings.ContainsAny(text, "@?#%") {
		return ""
	}
	scheme, rest, _ := strings.Cut(text, ":")
	url := ""
	switch {
	case strings.HasPrefix(text, "/"), strings.HasPrefix(text, "./"), strings.HasPrefix(text, "../"),
		!strings.Contains(text, ":") && slices.Contains([]string{".db", ".sqlite", ".sqlite3"}, filepath.Ext(text)):
		url = "sqlite:" + text
	case slices.Contains([]string{"redis", "rediss"}, strings.ToLower(scheme)) && address(strings.Trim(rest, "/")) != "":
		url = strings.ToLower(scheme) + "://" + address(strings.Trim(rest, "/"))
	default:
		if at := address(text); at != "" {
			url = "redis://" + at
		}
	}
	if url == "" {
		return ""
	}
	return ": did you mean " + url + "?"
}

// address returns HOST:PORT for a text that is that, or a host that is well known;
// else nothing: a lone word may be anything.
func address(text string) string {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, "6379"
		if host != "localhost" && net.ParseIP(host) == nil {
			return ""
		}
	}
	if !isHost(host) || !isPort(port) {
		return ""
	}
	return net.JoinHostPort(host, port)
}

// isHost says whether a text is an address or may be a name.
func isHost(text string) bool {
	return text != "" && (net.ParseIP(text) != nil || !strings.ContainsFunc(text, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_'
	}))
}

// isPort says whether a text is a port that a server can have.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// checkPort refuses what stands where the port does and is none; whole is the URL
// from its // on. A / in a password makes it end too early: then it is not the port
// that is wrong.
func checkPort(whole string) error {
	hosts, tail := whole, ""
	if i := strings.IndexAny(whole, "/?#"); i >= 0 {
		hosts, tail = whole[:i], whole[i:]
	}
	if strings.Contains(tail, "@") {
		return nil
	}
	host := hosts[strings.LastIndexByte(hosts, '@')+1:]
	colon := strings.LastIndexByte(host, ':')
	switch {
	case bare(host):
		return errBare
	case colon < strings.LastIndexByte(host, ']') || colon < 0 || colon == len(host)-1 || isPort(host[colon+1:]):
		return nil
	}
	return errors.New("the port in the store's URL is not a number from 1 to 65535 (a password stands before the host: redis://:PASSWORD@HOST)")
}
