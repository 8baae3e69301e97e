// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// hosts are the servers of one store, any of which serves it:
// SCHEME://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT][/PATH].
type hosts struct {
	scheme         string
	user, password string
	addrs          []string // each with its port
	path           string   // unescaped, without the leading slash

	seen *sights
}

func (h *hosts) sights() *sights { return h.seen }

// parseHosts reads what follows the colon after the scheme, and returns the query as it is.
// No error repeats a part of it.
func parseHosts(scheme, rest, port string) (h *hosts, query string, err error) {
	h = &hosts{scheme: scheme, seen: &sights{scheme: scheme}}
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return nil, "", fmt.Errorf("after %s: come // and the hosts: %s://HOST[:PORT],HOST[:PORT]", scheme, scheme)
	}
	if strings.Contains(rest, "#") {
		return nil, "", errors.New("the store's URL has a # in it: write %23 when it belongs to the password")
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	if strings.Contains(tail, "@") {
		return nil, "", errors.New("the store's URL cannot be read; in a password, write characters with a meaning in a URL with %")
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		if err := h.credentials(authority[:i]); err != nil {
			return nil, "", err
		}
		authority = authority[i+1:]
	}
	for i, one := range strings.Split(authority, ",") {
		addr, ok := hostPort(one, port)
		switch {
		case bare(one):
			return nil, "", errBare
		case !ok:
			return nil, "", fmt.Errorf("host %d in the store's URL is not HOST or HOST:PORT (a password stands before the host: %s://USER:PASSWORD@HOST)", i+1, scheme)
		case slices.Contains(h.addrs, addr):
			return nil, "", fmt.Errorf("the store's URL names %s twice", addr)
		}
		h.addrs = append(h.addrs, addr)
	}
	path, query, _ := strings.Cut(tail, "?")
	if h.path, err = url.PathUnescape(strings.TrimPrefix(path, "/")); err != nil {
		return nil, "", errors.New("the path in the store's URL has a % that is not followed by two hexadecimal digits: write %25 for it")
	}
	return h, query, nil
}

// credentials reads USER[:PASSWORD].
func (h *hosts) credentials(text string) error {
	user, password, _ := strings.Cut(text, ":")
	var err, err2 error
	h.user, err = url.PathUnescape(user)
	h.password, err2 = url.PathUnescape(password)
	if err != nil || err2 != nil {
		return errors.New("the store's URL has a % in its password that is not followed by two hexadecimal digits: write %25 for it")
	}
	return nil
}

// needsBoth is the error of a URL with only one of user and password.
func (h *hosts) needsBoth() error {
	return fmt.Errorf("the store's URL has a user without a password, or a password without a user: write %s://USER:PASSWORD@HOST", h.scheme)
}

// both checks that a URL has a user and a password, or neither.
func (h *hosts) both() error {
	if (h.user == "") != (h.password == "") {
		return h.needsBoth()
	}
	return nil
}

// errBare: it may also be a port that the last colon is before.
var errBare = errors.New("the store's URL has an address of IPv6 without brackets: write [::1] or [::1]:PORT")

func bare(host string) bool { return strings.Count(host, ":") > 1 && !strings.HasPrefix(host, "[") }

// hostPort returns HOST:PORT for a host with or without a port.
func hostPort(text, port string) (string, bool) {
	host, own, err := net.SplitHostPort(text)
	if err == nil {
		port = own
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	}
	if !isHost(host) || !isPort(port) {
		return "", false
	}
	return net.JoinHostPort(host, port), true
}

// parts are those of a URL that has no parts but these.
func (h *hosts) parts(k Kind, params url.Values) Parts {
	return Parts{Kind: k, Addrs: h.addrs, User: h.user, Password: h.password != "", Database: h.path, Params: params}
}

// String returns the URL without user, password and parameters.
func (h *hosts) String() string {
	text := h.scheme + "://" + strings.Join(h.addrs, ",")
	if h.path != "" {
		text += "/" + strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23").Replace(h.path)
	}
	return text
}
