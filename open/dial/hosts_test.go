// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"slices"
	"strings"
	"testing"
)

func TestParseHosts(t *testing.T) {
	for rest, want := range map[string]struct {
		addrs                       []string
		user, password, path, query string
		shown                       string
	}{
		"//h":                        {addrs: []string{"h:9"}, shown: "s://h:9"},
		"//h:1,[::1]:2,10.0.0.1,a_b": {addrs: []string{"h:1", "[::1]:2", "10.0.0.1:9", "a_b:9"}, shown: "s://h:1,[::1]:2,10.0.0.1:9,a_b:9"},
		"//[::1]":                    {addrs: []string{"[::1]:9"}, shown: "s://[::1]:9"},
		"//me:se%40c,r:et@h,i/a/b%25%3F?x=1": {addrs: []string{"h:9", "i:9"}, user: "me", password: "se@c,r:et", path: "a/b%?", query: "x=1",
			shown: "s://h:9,i:9/a/b%25%3F"},
		"//me:se@cret@h": {addrs: []string{"h:9"}, user: "me", password: "se@cret", shown: "s://h:9"},
		"//h?":           {addrs: []string{"h:9"}, shown: "s://h:9"},
	} {
		h, query, err := parseHosts("s", rest, "9")
		if err != nil {
			t.Errorf("%s: %v", rest, err)
			continue
		}
		if !slices.Equal(h.addrs, want.addrs) || h.user != want.user || h.password != want.password || h.path != want.path || query != want.query || h.String() != want.shown {
			t.Errorf("%s is read as %+v, %q, and shown as %s; want %+v", rest, h, query, h, want)
		}
	}
}

// What is wrong is said, and nothing of the URL that may be secret.
func TestParseHostsRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"etcd:h":                            "etcd://HOST",
		"etcd://":                           "host 1 in",
		"etcd://a,,b":                       "host 2 in",
		"etcd://a,b:x":                      "host 2 in",
		"etcd://a:0":                        "host 1 in",
		"etcd://a b":                        "host 1 in",
		"etcd://a,b:2379,a:2379":            "names a:2379 twice",
		"etcd://hunter2@a":                  "USER:PASSWORD@HOST",
		"etcd://:hunter2@a":                 "USER:PASSWORD@HOST",
		"etcd://u:hunter2":                  "USER:PASSWORD@HOST",
		"etcd://u:hun#ter2@a":               "%23",
		"etcd://u:hun/ter2@a":               "with %",
		"etcd://u:hun?ter2@a":               "with %",
		"etcd://u:hunter2%zz@a":             "%25",
		"etcd://a/%zz":                      "%25",
		"etcd://a/b":                        "?prefix=TEXT",
		"etcd://a?prefix=":                  "need one",
		"etcd://a?db=1":                     `"db": known here are ttl, prefix`,
		"etcd://u:hunter2@a?db=1&prefix=%z": "cannot be read",
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v; want something about %q, and no secret", text, err, want)
		}
	}
}

// TestEtcdOpensWithoutItsServers: with a password, too, it is the first request that waits for them.
func TestEtcdOpensWithoutItsServers(t *testing.T) {
	t.Parallel()
	u, err := Parse("etcd://user:word@127.0.0.1:1")
	must(t, err)
	s, err := u.Open(nil)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
